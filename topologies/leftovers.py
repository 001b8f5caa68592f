"""The processes of a testbed, known by a mark in their environment, and the end of all of them.

A namespace exists as long as a process in it, and its interfaces with it: when no process of a testbed is left, nothing is.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from topologies.children import TestbedError
from topologies.runs import runs_as

MARK = "NETSUM_TESTBED_RUN"  # The environment variable that every process of a testbed inherits: the run id.

END_TIMEOUT_S = 60.0


def end_processes(run_id: str) -> list[int]:
    """SIGKILL the processes with the mark of a run, and those in a namespace with it, and wait until all are gone.

    This process is spared, as it may have been started from such a place.

    Returns the process ids that were ended. Raises TestbedError if some do not end.
    """
    ended: set[int] = set()
    deadline = time.monotonic() + END_TIMEOUT_S
    while living := set(processes(run_id)):
        if time.monotonic() > deadline:
            raise TestbedError(f"the processes {', '.join(map(str, sorted(living)))} of a testbed do not end")
        for pid in living:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ended |= living
        time.sleep(0.02)
    return sorted(ended)


def runs_in(run_id: str, pid: int) -> bool:
    """Whether a process of that id runs and carries the mark of a run; a zombie does not.

    For a process whose environment this process may not read: whether it runs at all.
    """
    try:
        return _mark(run_id) in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except PermissionError:
        return runs_as(pid)
    except OSError:
        return False


def processes(run_id: str) -> Iterator[int]:
    """Find the processes that carry the mark of a run or share a namespace with one; omit zombies and this process."""
    mark = _mark(run_id)
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # The process has ended meanwhile.
            marked = mark in (folder / "environ").read_bytes().split(b"\0")
            found[int(folder.name)] = (marked, os.readlink(folder / "ns" / "net"))
    home = {os.readlink("/proc/self/ns/net"), found.get(1, (False, ""))[1]}
    namespaces = {namespace for marked, namespace in found.values() if marked} - home
    for pid, (marked, namespace) in found.items():
        if pid != os.getpid() and (marked or namespace in namespaces):
            yield pid


def _mark(run_id: str) -> bytes:
    return f"{MARK}={run_id}".encode()
