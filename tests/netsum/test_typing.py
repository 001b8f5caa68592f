"""A user's own script, type-checked against netsum as it is installed."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import netsum
from netsum import Communicator, NetsumError, Statistics


def add(controller: str, values: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
    with netsum.join(controller, job="typed", rank=0, world_size=2) as seat, seat.communicator(timeout_s=60.0) as workers:
        assert_type(workers, Communicator)
        assert_type(workers.total_stats, Statistics)
        try:
            return workers.allreduce(values, "sum", exact=True)
        except NetsumError as error:
            raise SystemExit(str(error)) from None
"""
WRONG = """
import netsum

netsum.join("unix:c.sock", job="typed", rank="0", world_size=2)
"""
CHECKERS = {
    "mypy": [sys.executable, "-m", "mypy", "--strict", "--python-executable", sys.executable],
    "pyright": ["pyright", "--pythonpath", sys.executable],
}


@pytest.mark.slow
@pytest.mark.parametrize("checker", CHECKERS)
def test_a_users_script(checker: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("mypy") is None if checker == "mypy" else shutil.which(checker) is None:
        pytest.skip(f"{checker} is not installed: pip install {checker}")

    def check(text: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "script.py").write_text(text)
        return subprocess.run(
            [*CHECKERS[checker], "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False
        )

    right = check(SCRIPT)
    assert right.returncode == 0, right.stdout + right.stderr
    wrong = check(WRONG)
    assert wrong.returncode == 1
    assert '"rank"' in wrong.stdout
