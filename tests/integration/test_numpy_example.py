"""examples/numpy_allreduce.py, as a user runs it."""

import os
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "numpy_allreduce.py"


def test_four_workers_add(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NETSUM_")}
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = "mean 2.0, totals [0.0, 8.0, 16.0], 784 chunks"
    assert done.stdout.splitlines() == [f"worker {worker}: {result}" for worker in range(4)]
