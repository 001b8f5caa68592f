"""The helps of all commands, the page made of them, and shell completion."""

import platform
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from docs import man_pages
from docs.manual import Command, command_tree, manual
from netsum.cli.app import app
from netsum.cli.exits import PANELS
from netsum.cli.parameters import options_of_command

ROOT = Path(__file__).resolve().parents[2]
EVERYTHING = list(command_tree().all())
COMMANDS = [command for command in EVERYTHING if command.function is not None]
HEAVY = {"numpy", "numba", "grpc", "scapy", "torch", "IPython", "host_agent", "controller", "sim", "asyncio"}


def ids(commands: list[Command]) -> list[str]:
    return [command.path for command in commands]


@pytest.mark.parametrize("command", EVERYTHING, ids=ids(EVERYTHING))
def test_every_command_has_help(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    done = CliRunner().invoke(app, [*command.path.split()[1:], "--help"], prog_name="netsum")
    assert done.exit_code == 0
    assert f"Usage: {command.path} " in done.stdout
    assert command.summary.split(".")[0].split("`")[0][:40] in done.stdout


@pytest.mark.parametrize("command", EVERYTHING, ids=ids(EVERYTHING))
def test_no_help_is_cut_at_80_columns_or_names_types_as_a_version_of_typer_does(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = CliRunner().invoke(app, [*command.path.split()[1:], "--help"], prog_name="netsum")
    assert not re.search(r"\w+…", done.stdout)
    assert not re.search(
        r"<(bool|int|float|str|path|list)\b|\b(INTEGER|FLOAT)\b|Usage: .*(\[\[|\{)", done.stdout
    )


@pytest.mark.parametrize("command", COMMANDS, ids=ids(COMMANDS))
def test_every_help_ends_with_examples_and_exit_statuses(command: Command) -> None:
    assert "**Examples**" in command.epilog
    assert f"{command.path.removesuffix(' serve')}" in command.epilog
    assert "**Exit status**" in command.epilog
    assert "- 2: wrong arguments" in command.epilog


WITHOUT_JSON = {
    "netsum aggregator serve": "serves until it is stopped",
    "netsum controller serve": "serves until it is stopped; --ready-fd has its addresses as JSON",
    "netsum switch serve": "serves until it is stopped",
    "netsum shell": "a prompt",
    "netsum testbed shell": "a prompt",
    "netsum testbed exec": "its output is the program's",
    "netsum testbed link": "has no result beside its status",
    "netsum testbed restart": "has no result beside its status",
    "netsum wireshark": "its output is the path alone",
}


def test_every_command_that_prints_a_result_prints_it_as_json_too() -> None:
    without = {each.path for each in COMMANDS if "as_json" not in options_of_command(each.function)}
    assert without == WITHOUT_JSON.keys()


@pytest.mark.parametrize("command", COMMANDS, ids=ids(COMMANDS))
def test_every_summary_is_one_sentence(command: Command) -> None:
    assert command.summary.endswith(".")


def test_the_page_is_that_of_the_helps() -> None:
    written = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert written == manual(), "run: python -m docs.manual > docs/commands.md"


def test_the_manual_pages_are_those_of_the_helps() -> None:
    written = {each.name: each.read_text(encoding="utf-8") for each in man_pages.FOLDER.iterdir()}
    assert written == man_pages.pages(), "run: python -m docs.man_pages"


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff: apt-get install groff")
def test_groff_formats_the_manual_pages_without_a_warning() -> None:
    for page in man_pages.FOLDER.iterdir():
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-Kutf8", "-ww", "-P-cbou", str(page)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert not done.stderr
        assert "EXIT STATUS" in done.stdout.upper() or page.name == "netsum.1"


def test_help_imports_nothing_heavy() -> None:
    script = "import sys; import netsum.cli.app; print(*{name.partition('.')[0] for name in sys.modules})"
    said = subprocess.check_output([sys.executable, "-c", script], text=True)
    assert not HEAVY & set(said.split())


def test_completion_offers_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_NETSUM_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "netsum job ")
    monkeypatch.setenv("COMP_CWORD", "2")
    done = CliRunner().invoke(app, [], prog_name="netsum")
    assert set(done.stdout.split()) >= {"create", "list", "show", "restart", "delete", "watch"}


def test_version() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert done.exit_code == 0
    first, system, *packages = done.stdout.splitlines()
    assert first == f"netsum {version('netsum')}"
    assert system.startswith(f"Python {platform.python_version()}, {platform.system()}-")
    assert f"numpy {version('numpy')}" in packages


@pytest.mark.parametrize("command", ["", "job", "job list"])
def test_help_and_a_command_is_the_help_of_that_command(command: str) -> None:
    asked, usual = (
        CliRunner().invoke(app, words, prog_name="netsum")
        for words in (["help", *command.split()], [*command.split(), "--help"])
    )
    assert (asked.exit_code, asked.stdout) == (0, usual.stdout)


def test_the_help_of_no_command_is_an_error_that_names_all() -> None:
    done = CliRunner().invoke(app, ["help", "nothing"], prog_name="netsum")
    assert done.exit_code == 2
    assert "there is no command 'nothing': expected allreduce, doctor" in done.stderr


def test_what_a_network_needs_comes_before_the_laboratory() -> None:
    said = CliRunner().invoke(app, ["--help"], prog_name="netsum").stdout
    panels = [said.index(f" {name} ") for name in PANELS]
    assert panels == sorted(panels)
    assert said.index("│ testbed ") < panels[-1] < said.index("│ sim ")
