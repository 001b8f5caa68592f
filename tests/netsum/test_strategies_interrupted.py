"""Ctrl-C of `python -m tests.strategies`: one sentence, nothing left running, and the next run goes on from what was kept."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

COMMAND = [
    *(sys.executable, "-m", "tests.strategies", "--tasks", "digits"),
    *("--strategies", "synchronous,backup,downpour", "--workers", "4", "--seeds", "3", "--steps", "400"),
]
PROMPT_S = 60.0
"""Most of it is the start of other processes on a loaded machine; a training that is not interrupted would end in it, too."""


def interrupted(folder: Path) -> tuple[int, str, str, list[str]]:
    """Interrupt a run after its first training; return status, output, what it wrote afterwards, and before."""
    before: list[str] = []
    with subprocess.Popen(
        [*COMMAND, "--folder", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as process:
        assert process.stderr is not None
        while not before or ": digits, " not in before[-1]:
            line = process.stderr.readline()
            assert line, (before, process.wait())
            before.append(line)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PROMPT_S)
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    return process.returncode, out, err, before


@pytest.mark.torch
@pytest.mark.timeout(600)
def test_an_interrupted_run_says_so_and_the_next_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    kept: dict[str, int] = {}
    for run in range(2):
        status, out, err, before = interrupted(folder)
        assert (status, out) == (130, ""), err
        # Another training may have ended before the signal arrived.
        *others, sentence = err.splitlines()
        assert all(": digits, " in line for line in others)
        assert sentence == (
            f"netsum: interrupted: results are kept in {folder}: repeat the command to continue"
        )
        assert before[0] == f"9 trainings, {len(kept)} of them run before\n"
        now = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
        assert len(kept) < len(now) < 9, f"run {run}"
        assert all(name.endswith(".json.gz") for name in now)
        assert kept.items() <= now.items(), "what was kept is not written again"
        kept = now
