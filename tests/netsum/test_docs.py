"""The docs: commands that exist, Python that compiles, blocks that are run, and the site without a warning."""

import ast
import json
import logging
import os
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
import typer

from netsum.cli.app import app
from netsum_common.logs import LogFormatter

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
GENERATED = {"commands.md"}  # Written from the helps themselves.
BLOCK = re.compile(r"^(<!-- run -->\n)?```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:[#$] )?(?:[A-Z_]+=\S+ )*(?:sudo )?(?:\S*/)?netsum (?P<rest>.*)$")
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("NETSUM_")},
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
}


SPHINX = "import sys; from sphinx.cmd.build import main; sys.exit(main(sys.argv[1:]))"
WITHOUT_TORCH = """
import sys
from importlib.machinery import PathFinder

class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] == "torch" else super().find_spec(name, path, target)

sys.meta_path = [Finder if each is PathFinder else each for each in sys.meta_path]
"""


def blocks(*languages: str) -> Iterator[tuple[Path, str, bool]]:
    for page in PAGES:
        for marked, language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
            if language in languages:
                yield page, text, bool(marked)


def commands() -> Iterator[str]:
    for page, text, _ in blocks("sh", "bash", "console"):
        if page.name in GENERATED:
            continue
        for line in text.replace("\\\n", " ").splitlines():
            if (found := COMMAND.match(line.strip())) and found["rest"].split(" #")[0].strip():
                yield f"{page.relative_to(ROOT)}: {found['rest'].split(' #')[0].strip()}"


def test_the_pages_hold_commands_and_python() -> None:
    assert len(set(commands())) > 60
    assert sum(1 for _ in blocks("python")) > 20


@pytest.mark.parametrize("where", sorted(set(commands())))
def test_a_command_of_the_docs_exists_with_its_options(where: str) -> None:
    words = shlex.split(
        where.split(": ", 1)[1].removesuffix("&").split("|")[0].split("<<")[0].split(" > ")[0]
    )
    command = typer.main.get_command(app)
    while words and isinstance(command, typer.core.TyperGroup) and not words[0].startswith("-"):
        assert words[0] in command.commands, f"no such command: {words[0]}"
        command = command.commands[words.pop(0)]
    known = {
        option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
    }
    if "--" in words:
        words = words[: words.index("--")]
    if command.context_settings.get("ignore_unknown_options"):  # The rest belongs to another program.
        return
    used = {word.split("=")[0] for word in words if re.match(r"--[a-z]|-[a-zA-Z]$", word)}
    assert used <= known | {"--help", "-h"}


@pytest.mark.parametrize(
    ("page", "text"),
    [
        pytest.param(page, text, id=f"{page.stem}-{k}")
        for k, (page, text, _) in enumerate(blocks("python"))
        if ">>> " not in text
    ],
)
def test_python_of_the_docs_compiles(page: Path, text: str) -> None:
    compile(textwrap.dedent(text), str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        pytest.param(language, text, id=f"{page.stem}-{language}-{k}")
        for language in ("sh", "python")
        for k, (page, text, marked) in enumerate(blocks(language))
        if marked
    ],
)
def test_a_block_that_is_marked_to_be_run_runs(language: str, text: str, tmp_path: Path) -> None:
    for folder in ("p4", "examples"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    program = ["sh", "-e", "-c", text] if language == "sh" else [sys.executable, "-P", "-c", text]
    done = subprocess.run(
        program, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("language", ["json", "toml"])
def test_data_of_the_docs_can_be_read(language: str) -> None:
    found = [text for _, text, _ in blocks(language)]
    assert len(found) >= 3
    for text in found:
        assert json.loads(text) if language == "json" else tomllib.loads(text)


def test_lines_of_the_log_look_as_the_docs_show_them() -> None:
    record = logging.makeLogRecord(
        {
            "name": "controller.service.events",
            "levelname": "INFO",
            "created": datetime.fromisoformat("2026-11-24T03:04:05.678+00:00").timestamp(),
            "msg": "leave, left: it left",
            "job": "train",
            "worker": 2,
            "switch": "",
        }
    )
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8").splitlines()
    assert LogFormatter(as_json=False).format(record) in page
    assert LogFormatter(as_json=True).format(record) in page


@pytest.mark.slow
@pytest.mark.parametrize("torch", ["as-installed", "missing"])
def test_the_site_has_no_warning(tmp_path: Path, torch: str) -> None:
    for package in ("sphinx", "myst_parser", "furo", "sphinx_design", "sphinx_copybutton"):
        pytest.importorskip(package, reason="needs Sphinx: pip install 'netsum[docs]'")
    sphinx = [sys.executable, "-c", (WITHOUT_TORCH if torch == "missing" else "") + SPHINX]
    build = [*sphinx, "-q", "-W", "--keep-going", "-c", "docs", "-b", "html", "."]
    done = subprocess.run(
        [*build, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    start = (tmp_path / "docs" / "index.html").read_text(encoding="utf-8")
    assert "Train with PyTorch" in start
    assert (tmp_path / "searchindex.js").stat().st_size > 50_000
    for page in tmp_path.rglob("*.html"):
        loaded = re.findall(
            r"<(?:script|link|img)[^>]+(?:src|href)=\"(https?:[^\"]+)\"", page.read_text("utf-8")
        )
        assert not loaded, f"{page.name} loads {loaded} from the network"
