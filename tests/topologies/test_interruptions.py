"""A signal that comes where Python ignores exceptions is not lost."""

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
