"""A user's own script, type-checked against netsum's annotations."""

import importlib.util
import json
import os
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
    with (
        netsum.join(controller, job="typed", rank=0, world_size=2) as membership,
        membership.communicator(timeout_s=60.0) as workers,
    ):
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
ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("netsum", "netsum_common", "host_agent", "controller", "sim", "topologies")
# Checkers do not find packages that are installed in editable mode, so their settings say where netsum is.
CHECKERS = {
    "mypy": [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"],
    "pyright": ["pyright", "--pythonpath", sys.executable],
}


@pytest.mark.slow
@pytest.mark.parametrize("checker", CHECKERS)
def test_a_users_script(checker: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("mypy") is None if checker == "mypy" else shutil.which(checker) is None:
        pytest.skip(f"{checker} is not installed: pip install {checker}")

    def errors_in(text: str) -> list[str]:
        (tmp_path / "script.py").write_text(text)
        done = subprocess.run(
            [*CHECKERS[checker], "script.py"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "MYPYPATH": str(ROOT)},
        )
        assert done.stdout, done.stderr
        # Errors elsewhere are of libraries whose stubs are not installed.
        return [line for line in done.stdout.splitlines() if "script.py:" in line and " error: " in line]

    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(ROOT)]}))
    assert errors_in(SCRIPT) == []
    assert any('"rank"' in line for line in errors_in(WRONG))


def test_packages_say_that_they_are_typed() -> None:
    assert [name for name in PACKAGES if not (ROOT / name / "py.typed").exists()] == []
