"""A signal that comes where Python ignores exceptions is not lost."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

DEADLINE_S = 400.0

IN_A_DESTRUCTOR = """
class Dying:
    def __del__(self):
        signal.raise_signal(NUMBER)
Dying()
"""
IN_A_WEAK_REFERENCE = """
class Thing: pass
thing = Thing()
weakref.finalize(thing, signal.raise_signal, NUMBER)
del thing
"""
IN_AN_IMPORT = "import interrupted; assert interrupted.made"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", [IN_A_DESTRUCTOR, IN_A_WEAK_REFERENCE, IN_AN_IMPORT])
def test_a_signal_is_not_lost(tmp_path: Path, moment: str, number: signal.Signals) -> None:
    module = f"import signal\nsignal.raise_signal({int(number)})\nmade = True\n"
    (tmp_path / "interrupted.py").write_text(module)
    script = f"""
import signal, threading, weakref
from topologies.children import ending_in_order
try:
    with ending_in_order():
{chr(10).join("        " + line for line in moment.replace("NUMBER", str(int(number))).splitlines())}
        print("went on")
        threading.Event().wait({DEADLINE_S})
        print("lost")
except KeyboardInterrupt:
    print("interrupted")
except SystemExit as end:
    print("exits with", end.code)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S / 2,
        check=False,
        env={"PYTHONPATH": f"{tmp_path}:{Path(__file__).resolve().parents[2]}"},
    )
    end = "interrupted" if number == signal.SIGINT else "exits with 143"
    assert (done.stdout, done.stderr) == (f"went on\n{end}\n", "")


FORKED = """
import os, signal, time
from topologies.children import held_signals
# The child runs for the first time when this process waits.
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
signal.signal(signal.SIGTERM, lambda *_: os._exit(3))
with held_signals():
    pid = os.fork()
if pid == 0:
    time.sleep(20)
    os._exit(0)
os.kill(pid, signal.SIGTERM)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for real-time priority")
def test_a_signal_to_a_child_that_has_just_been_forked_is_not_lost() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env={"PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )
    assert (done.stdout, done.stderr) == ("3\n", "")
