"""An exploration that is killed goes on from its last checkpoint, and comes to the same totals."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from netsum.programs import compiled_program
from sim.explore import checkpoint
from sim.explore import search as search_module
from sim.explore.configurations import CONFIGURATIONS
from sim.explore.scenario import BlockPass, ExplorerScenario
from sim.explore.search import Search, SearchResult
from sim.explore.system import System

PROGRAM = compiled_program(64).json
NAME, MEMORY = "dead-worker-of-two", 1 << 29
EXPLORE_AND_DIE = f"""
import os, signal
from pathlib import Path
from sim.explore import checkpoint, search
from sim.explore.configurations import CONFIGURATIONS
from sim.explore.system import System
from netsum.programs import compiled_program

program = compiled_program(64).json
saves = 0
search._BUDGET = 100
looked_at = search.Search(System(CONFIGURATIONS[{NAME!r}], program), order="largest", memory_bytes={MEMORY})

def report(progress):
    global saves
    saves += 1
    if saves == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    if saves % 2:
        checkpoint.save(looked_at, program, Path("kept"))
    return True

looked_at.run(report)
"""


def totals(result: SearchResult) -> tuple[object, ...]:
    progress = result.progress
    return result.outcome, progress.states, progress.expanded, progress.steps, progress.ends


def test_killed_and_resumed(tmp_path: Path) -> None:
    whole = Search(System(CONFIGURATIONS[NAME], PROGRAM), order="largest", memory_bytes=MEMORY).run()
    done = subprocess.run([sys.executable, "-c", EXPLORE_AND_DIE], cwd=tmp_path, timeout=300, check=False)
    assert done.returncode == -signal.SIGKILL
    search, _ = checkpoint.load(tmp_path / "kept", MEMORY)
    assert 0 < search.progress.expanded < whole.progress.expanded
    assert totals(search.run()) == totals(whole)
    assert whole.outcome == "exhausted"


def test_killed_between_the_renames(tmp_path: Path) -> None:
    search = Search(System(CONFIGURATIONS["copies"], PROGRAM), order="breadth")
    assert search.run(until_s=0.0).outcome == "paused"
    checkpoint.save(search, PROGRAM, tmp_path / "kept")
    (tmp_path / "kept").rename(tmp_path / "kept.old")
    again, _ = checkpoint.load(tmp_path / "kept", MEMORY)
    assert again.progress.states == search.progress.states


def test_of_other_code(tmp_path: Path) -> None:
    search = Search(System(CONFIGURATIONS["copies"], PROGRAM), order="breadth")
    checkpoint.save(search, PROGRAM, tmp_path / "kept")
    document = tmp_path / "kept" / "search.json"
    document.write_text(document.read_text().replace('"stamp": "', '"stamp": "0'))
    with pytest.raises(checkpoint.CheckpointError, match="start the exploration again"):
        checkpoint.load(tmp_path / "kept", MEMORY)
    with pytest.raises(checkpoint.CheckpointError, match="is not a checkpoint"):
        checkpoint.load(tmp_path / "nothing", MEMORY)


def test_memory_has_a_limit_and_the_search_goes_on_with_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_module, "_FIRST_STATES", 1 << 14)
    scenario = ExplorerScenario(
        "copies", workers=1, rounds=(BlockPass(), BlockPass()), batches=False, copies=1
    )
    options: dict[str, Any] = {"order": "breadth", "reduce": False}
    whole = Search(System(scenario, PROGRAM), **options)
    limit = whole.memory + 700_000
    small = Search(System(scenario, PROGRAM), memory_bytes=limit, **options)
    result = small.run()
    assert result.outcome == "memory"
    assert result.progress.memory <= limit
    checkpoint.save(small, PROGRAM, tmp_path / "kept")
    more, _ = checkpoint.load(tmp_path / "kept", MEMORY)
    assert totals(more.run()) == totals(whole.run())
