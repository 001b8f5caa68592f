"""Processes of this machine."""

import contextlib
import os
import signal
import time
from pathlib import Path

DEADLINE_S = 30.0


def with_words(*words: str) -> list[int]:
    """Return the processes whose command lines have all of these words."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # The process may have ended meanwhile.
            line = (entry / "cmdline").read_bytes().split(b"\0")
            if all(word.encode() in line for word in words):
                found.append(int(entry.name))
    return found


def kill(pid: int) -> None:
    """Kill a process, and wait until it runs no more: on a busy machine that is later than the signal."""
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + DEADLINE_S
    with contextlib.suppress(OSError):  # The process is gone, and so is its folder in /proc.
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
            assert time.monotonic() < deadline, f"process {pid} outlives SIGKILL"
            time.sleep(0.01)
