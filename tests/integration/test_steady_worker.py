"""The lines that workers of the fault tests print, and how the tests read them."""

import subprocess
import sys
from pathlib import Path

from tests.integration.testbed_faults import Worker
from topologies.children import Child

TALKING = """
import sys, threading
from tests.integration.steady_worker import emit

sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=lambda: [emit("round", round=each) for each in range(2000)]) for _ in range(4)]
for each in threads:
    each.start()
for each in threads:
    each.join()
"""


def test_lines_of_several_threads_stay_apart() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", TALKING], cwd=root, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 8000
    assert all(line.startswith('{"event": "round", ') and line.endswith("}") for line in lines)


def test_a_line_that_cannot_be_read_is_kept_and_those_after_it_are_read(tmp_path: Path) -> None:
    program = 'print(\'{"event": "one"}{"event": "two"}\\n\\n{"event": "trouble"}\')'
    worker = Worker(Child("talker", [sys.executable, "-c", program], tmp_path / "log", pipes=True))
    worker.listener.join(60.0)
    events = [each["event"] for each in worker.messages]
    assert events == ["unreadable", "unreadable", "trouble"]
    assert worker.messages[0]["line"] == '{"event": "one"}{"event": "two"}\n'
    worker.child.stop()
