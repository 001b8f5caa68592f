"""The processes of a testbed: found by a mark in their environment, and ended.

A namespace and its interfaces exist only as long as a process in it, so ending a testbed's processes removes all of it.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from topologies.children import TestbedError
from topologies.runs import runs_as

MARK = "NETSUM_TESTBED_RUN"  # The environment variable with the run id, which every process of a testbed inherits.

END_TIMEOUT_S = 60.0


def end_processes(run_id: str) -> list[int]:
    """SIGKILL the processes that carry a run's mark or share a namespace with one that does; wait until all are gone.

    This process is spared, as it may itself have been started inside the testbed.

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
    """Whether process `pid` runs and carries the mark of a run; a zombie does not run.

    If this process may not read the other's environment, only whether it runs is checked.
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
