"""Ctrl-C at any moment of `netsum allreduce` ends it with one sentence, and leaves nothing."""

import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

RUNS = 60 if "NETSUM_LONG_TESTS" in os.environ else 5
LATEST_S = float(os.environ.get("NETSUM_INTERRUPT_LATEST_S", "5"))
DEADLINE_S = 400.0
COMMAND = [sys.executable, "-c", "from netsum.cli import main; main()"]


def started_by(pid: int) -> list[Path]:
    """Files of a run in the temporary folder; its name begins with the process's id."""
    return list(Path(tempfile.gettempdir()).glob(f"netsum-{pid}-*"))


@pytest.mark.timeout(RUNS * 100 + 2 * DEADLINE_S)
def test_an_interruption_at_any_moment(tmp_path: Path) -> None:
    testbed = os.environ.get("NETSUM_INTERRUPT_TESTBED")  # One that is up; else ranks on loopback.
    where = ["--workers", "2"] if testbed is None else ["--testbed", testbed]
    command = [*COMMAND, "allreduce", *where, "--sizes", "64KiB,1MiB", "--repeats", "100000"]
    seed = int(os.environ.get("NETSUM_INTERRUPT_SEED", "19"))
    moments = random.Random(seed)
    for number in range(RUNS):
        moment_s = LATEST_S * (number + moments.random()) / RUNS  # From its first imports to its rounds.
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONFAULTHANDLER": "1"},
        ) as process:
            with pytest.raises(subprocess.TimeoutExpired):  # The command runs until it is interrupted.
                process.wait(moment_s)
            process.send_signal(signal.SIGINT)
            try:
                out, err = process.communicate(timeout=DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGABRT)  # Shows where it hangs.
                pytest.fail(f"run {number}, seed {seed}, {moment_s:.3f} s: hangs: {process.communicate()[1]}")
        details = (number, seed, moment_s, process.returncode, out, err)
        if "init_import_site" in err or (process.returncode == -signal.SIGINT and ", in main" not in err):
            continue  # The interpreter itself was still starting, or reading the command's first module.
        assert process.returncode == 130, details
        assert err == "netsum: interrupted\n", details
        assert out == "", details
        assert started_by(process.pid) == [], details
    assert not (tmp_path / "runs").exists()
