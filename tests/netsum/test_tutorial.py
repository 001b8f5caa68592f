"""The tutorial: the files that a chapter shows are written, and its commands run one after the other."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = sorted((ROOT / "docs" / "tutorial").glob("*.md"))
BLOCK = re.compile(r"^<!-- (chapter|file (\S+)) -->\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DEADLINE_S = 1500.0

needs_torch = pytest.mark.skipif(
    find_spec("torch") is None, reason="needs PyTorch: pip install 'netsum[torch]'"
)
needs_p4c = pytest.mark.skipif(
    shutil.which("p4c-bm2-ss") is None, reason="p4c-bm2-ss is not on PATH: get p4lang's package p4lang-p4c"
)
needs_experiments = pytest.mark.skipif(
    find_spec("pyarrow") is None, reason="needs pyarrow: pip install 'netsum[experiments]'"
)


def chapter(number: int, folder: Path) -> list[str]:
    """Write a chapter's files into a folder; return its commands, a block each."""
    commands = []
    for kind, name, text in BLOCK.findall(CHAPTERS[number - 1].read_text(encoding="utf-8")):
        if kind == "chapter":
            commands.append(text)
        else:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
    return commands


def run(commands: list[str], folder: Path) -> str:
    paths = os.pathsep.join(map(str, (folder, ROOT, ROOT / "p4")))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NETSUM_")}
    environment |= {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": paths,
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "200",
    }
    done = subprocess.run(
        ["sh", "-e", "-c", "".join(commands)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def copy_of_the_program(folder: Path) -> None:
    """Copy the files that a change of the P4 program touches."""
    for name in ("p4", "tests"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored, dirs_exist_ok=True)
    shutil.copy(ROOT / "pyproject.toml", folder)


def test_there_are_four_chapters_whose_commands_are_run() -> None:
    assert len(CHAPTERS) == 4
    for path in CHAPTERS:
        assert "<!-- chapter -->" in path.read_text(encoding="utf-8"), path.name


def test_the_change_of_the_program_applies_to_it(tmp_path: Path) -> None:
    copy_of_the_program(tmp_path)
    run(chapter(2, tmp_path)[:1], tmp_path)
    assert "saturated.count" in (tmp_path / "p4" / "v1model" / "slot.p4").read_text(encoding="utf-8")


@pytest.mark.timeout(DEADLINE_S)
def test_see_it(tmp_path: Path) -> None:
    said = run(chapter(1, tmp_path), tmp_path)
    assert re.search(r"float32 .* yes +yes", said)
    assert "netsum.lua" in said


@pytest.mark.slow
@pytest.mark.p4c
@needs_p4c
@pytest.mark.timeout(DEADLINE_S)
def test_change_it(tmp_path: Path) -> None:
    copy_of_the_program(tmp_path)
    assert " passed" in run(chapter(2, tmp_path), tmp_path)


@pytest.mark.slow
@pytest.mark.torch
@needs_torch
@pytest.mark.timeout(DEADLINE_S)
def test_use_it(tmp_path: Path) -> None:
    said = run(chapter(3, tmp_path), tmp_path)
    losses = {
        name: float(loss) for name, loss in re.findall(r"^(\w+ ?\w*) ?: loss (\S+)$", said, re.MULTILINE)
    }
    assert len(losses) == 3
    assert max(losses.values()) - min(losses.values()) < 0.1


@needs_experiments
@pytest.mark.timeout(DEADLINE_S)
def test_study_it(tmp_path: Path) -> None:
    said = run(chapter(4, tmp_path), tmp_path)
    assert "all were right" in said
    folder = tmp_path / "runs" / "sim" / "mine"
    assert (folder / "report.html").exists()
    assert list(tmp_path.rglob("*.pcap"))
