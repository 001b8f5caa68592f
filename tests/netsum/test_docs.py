"""The docs: commands that exist, Python that compiles, blocks that are run, and the site without a warning."""

import ast
import codeop
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

from docs.manual import command_tree, names_of
from netsum.cli.app import app
from netsum.cli.parameters import options_of_command
from netsum_common.logs import LogFormatter
from tests.browser import browser, needs_browser

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
GENERATED = {"commands.md", "examples.md"}  # Written from the helps themselves, and with what examples print.
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


def extras_of(page: str) -> set[str]:
    """Return the extras that a page's first `pip install` brings, those that they name included."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    found = re.search(r"pip install (?:-e )?'\.\[([\w,]+)\]'", page)
    left, known = found[1].split(",") if found else [], set[str]()
    while left:
        extra = left.pop()
        known.add(extra)
        left += [
            each
            for one in declared[extra]
            for each in re.sub(r"netsum\[(.*)\]|.*", r"\1", one).split(",")
            if each
        ]
    return known


@pytest.mark.parametrize(
    "page",
    [*sorted((ROOT / "docs").glob("guides/*.md")), *sorted((ROOT / "docs").glob("tutorial/*.md"))],
    ids=lambda page: page.stem,
)
def test_a_guide_installs_what_its_commands_need(page: Path) -> None:
    text = page.read_text("utf-8")
    used = {line for where in set(commands()) if (line := where.partition(f"{page.relative_to(ROOT)}: ")[2])}
    extras = extras_of(text)
    if extras and used:
        assert "cli" in extras
    if any(line.startswith(("sim run", "sim sweep")) for line in used):
        assert "experiments" in extras


@pytest.mark.parametrize("page", ["cli", "packets", "p4runtime", "switch", "window", "xdp"])
def test_an_option_that_prose_names_is_one_of_a_command(page: str) -> None:
    ours = {
        option
        for command in command_tree().all()
        if command.function is not None
        for one in options_of_command(command.function).values()
        for option in names_of(one)
    }
    prose = BLOCK.sub("", (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"))
    # Those of a measurement's table are its program's, which is one of tests.
    named = set(re.findall(r"`(?!python -m tests)[^`\n]*?(?<![\w-])(--[a-z][a-z0-9-]*)", prose))
    assert named <= ours | {
        "--help",
        "--version",
        "--install-completion",
        "--show-completion",
        "--nproc-per-node",
    }


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


def is_session(text: str) -> bool:
    return text.startswith(("$ ", ">>> "))


def typed(text: str) -> str:
    """Return the lines that a reader types: a block's, or of a session its commands with their continuations and documents."""
    if not is_session(text):
        return text.rstrip("\n")
    found: list[str] = []
    document, continued = "", False
    for line in text.splitlines():
        prompt = re.match(r"\$ |>>> |\.\.\.(?: |$)", line)
        if not (document or continued or prompt):
            continue
        found.append(line if document or continued or not prompt else line[prompt.end() :])
        continued = line.endswith("\\")
        document = "" if line == document else document
        if begun := re.search(r"<<'(\w+)'", line):
            document = begun[1]
    return "\n".join(found).rstrip("\n")


def wrong_with(text: str) -> str:
    """Return why an interpreter does not take the lines of a session or of a shell's block; empty if it does."""
    if not text.startswith(">>> "):
        done = subprocess.run(
            ["bash", "-n"], input=typed(text), capture_output=True, text=True, timeout=60, check=False
        )
        return done.stderr
    waiting: list[str] = []
    for line in [*typed(text).splitlines(), ""]:
        waiting.append(line)
        try:
            if codeop.compile_command("\n".join(waiting), symbol="single") is not None:
                waiting.clear()
        except SyntaxError as error:
            return f"{error}: {waiting}"
    return f"not finished: {waiting}" if waiting else ""


def test_blocks_show_by_their_language_what_is_typed() -> None:
    languages: dict[str, int] = {}
    for page in PAGES:
        for language, text in re.findall(r"^```([^\n]*)\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S):
            where = f"{page.name}: {text}"
            if is_session(text):
                assert language in ("console", "pycon", "python"), where
                assert not re.search(r"^# netsum ", text, re.MULTILINE), where
            else:
                assert language not in ("console", "pycon"), where
                assert not re.search(r"^(?:[$#] netsum |>>> |\$ )", text, re.MULTILINE), where
            if is_session(text) or language in ("sh", "bash"):
                assert not wrong_with(text), where
            languages[language] = languages.get(language, 0) + 1
    assert languages["sh"] > 100
    assert languages["console"] > 20


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as it is built here."""
    return build_site(tmp_path_factory.mktemp("site"), "")


def build_site(folder: Path, before: str) -> Path:
    for package in ("sphinx", "myst_parser", "furo", "sphinx_design", "sphinx_copybutton"):
        pytest.importorskip(package, reason="needs Sphinx: pip install 'netsum[docs]'")
    build = [
        sys.executable,
        "-c",
        before + SPHINX,
        "-q",
        "-W",
        "--keep-going",
        "-c",
        "docs",
        "-b",
        "html",
        ".",
    ]
    done = subprocess.run(
        [*build, str(folder)], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("torch", ["as-installed", "missing"])
def test_the_site_has_no_warning(request: pytest.FixtureRequest, tmp_path: Path, torch: str) -> None:
    built = build_site(tmp_path, WITHOUT_TORCH) if torch == "missing" else request.getfixturevalue("site")
    start = (built / "docs" / "index.html").read_text(encoding="utf-8")
    assert "Train with PyTorch" in start
    assert 'property="og:description"' in start
    assert (built / "searchindex.js").stat().st_size > 50_000
    for old, new in {"index": "docs/index", "docs/guides/first-change": "docs/tutorial/2-change"}.items():
        (there,) = re.findall(r'href="(.*?)"', (built / f"{old}.html").read_text("utf-8"))
        assert ((built / old).parent / there).resolve() == (built / f"{new}.html").resolve()
    for page in built.rglob("*.html"):
        loaded = re.findall(
            r"<(?:script|link|img)[^>]+(?:src|href)=\"(https?:[^\"]+)\"", page.read_text("utf-8")
        )
        assert not loaded, f"{page.name} loads {loaded} from the network"


CLICK_ALL = """(() => {
  let copied = null;
  document.execCommand = () => { copied = document.activeElement.value ?? String(getSelection()); return true; };
  return [...document.querySelectorAll("button.copybtn")].map((button) => {
    copied = null;
    button.click();
    return [document.querySelector(button.dataset.clipboardTarget).innerText, copied];
  });
})()"""


def without_blank_lines(*texts: str) -> list[str]:
    return ["\n".join(line for line in text.splitlines() if line.strip()) for text in texts]


def source_of(page: Path) -> str:
    """Return the source of a module, which the site shows too."""
    module = ROOT / page.with_suffix("")
    file = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
    return file.read_text(encoding="utf-8")


@pytest.mark.slow
@needs_browser
def test_a_copy_button_of_the_site_copies_what_is_typed(site: Path) -> None:
    wrong, blocks_seen = [], 0
    with browser() as tab:
        for page in sorted(site.rglob("*.html")):
            if 'http-equiv="refresh"' in page.read_text("utf-8"):  # Leads on to another page.
                continue
            tab.open(page.as_uri())
            tab.until(f"location.href === '{page.as_uri()}' && document.readyState === 'complete'")
            if not tab.run("!!document.querySelector('div.highlight pre')"):
                continue
            tab.until("!!document.querySelector('button.copybtn')")
            for text, copied in tab.run(CLICK_ALL):
                blocks_seen += 1
                expected = typed(text)
                if site / "_modules" in page.parents:  # The source of a module, with blank lines more.
                    expected, copied = without_blank_lines(
                        source_of(page.relative_to(site / "_modules")), copied
                    )
                if (
                    copied is None
                    or copied.rstrip("\n") != expected
                    or (is_session(text) and wrong_with(text))
                ):
                    wrong.append((page.name, text, copied))
    assert blocks_seen > 200
    assert not wrong, wrong[0]
