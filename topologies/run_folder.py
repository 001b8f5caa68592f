"""A testbed's run folder, and the names by which running testbeds are found from anywhere on the machine.

The folder holds ``testbed.json`` (the parts of the testbed), ``logs/``, ``pcaps/`` and sockets. ``/run/netsum/NAME``
points to the folder. That makes names unique on the machine, and paths of sockets short (a path of a socket has at most
107 characters). A copy of ``testbed.json`` beside the names describes testbeds whose run folder was deleted.

Failures raise `TestbedError` with the reason.
"""

import contextlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netsum_common.names import check_name
from topologies.children import TestbedError
from topologies.leftovers import end_processes, runs_in
from topologies.runs import owner_is_gone

RUNNING = Path("/run/netsum")  # Names of running testbeds; empty after a boot.

MOST_NAME = 32  # Characters of a testbed's name.
STATE_FILE = "testbed.json"
CONTROLLER_SOCKET = "controller.sock"
KEEPER_SOCKET = "keeper.sock"


@dataclass(frozen=True)
class RunningTestbed:
    """A testbed that was brought up, as its ``testbed.json`` describes it."""

    name: str
    folder: Path  # The run folder, by its short path.
    state: dict[str, Any]  # The contents of ``testbed.json``; see docs/testbed.md.

    @property
    def run_id(self) -> str:
        """Run id that marks the child processes."""
        return str(self.state["keeper"]["run_id"])

    @property
    def abandoned(self) -> bool:
        """Whether its keeper has ended, so that its processes and interfaces may be left over."""
        return owner_is_gone(self.run_id)

    @property
    def folder_deleted(self) -> bool:
        """Whether its run folder is gone; the testbed may still run."""
        return not self.folder.is_dir()

    @property
    def controller_address(self) -> str:
        """Value of NETSUM_CONTROLLER at hosts."""
        return f"unix:{self.folder / CONTROLLER_SOCKET}"

    def namespace_pid(self, node: str) -> int:
        """Return the id of the process that keeps the namespaces of a host or switch.

        Raises TestbedError if the testbed has no such node, or that process has ended.
        """
        nodes = {**self.state["hosts"], **self.state["switches"]}
        if node not in nodes:
            raise TestbedError(f"the testbed {self.name} has no node {node!r}: expected {', '.join(nodes)}")
        if not self.runs(pid := int(nodes[node]["namespace_pid"])):
            raise TestbedError(
                f"{node} of the testbed {self.name} is gone, as the process that keeps its namespaces has ended: "
                f"`netsum testbed down --testbed {self.name}`"
            )
        return pid

    def runs(self, pid: int) -> bool:
        """Whether a process of the testbed runs."""
        return runs_in(self.run_id, pid)


def claim(name: str, folder: Path) -> Path:
    """Claim a testbed's name for a run folder that has its state file; return the folder's short path.

    An abandoned testbed of the same name is cleared away first.
    """
    try:
        check_name(name, MOST_NAME)
    except ValueError as expected:
        raise TestbedError(f"testbed: {expected}") from None
    try:
        RUNNING.mkdir(mode=0o755, exist_ok=True)
    except OSError as error:
        raise TestbedError(f"cannot make {RUNNING}: {error.strerror}") from None
    for testbed in running_testbeds():
        if testbed.name == name and testbed.abandoned:
            clear_away(testbed)
    path = RUNNING / name
    try:
        path.symlink_to(folder.resolve(), target_is_directory=True)
        write_state(folder, json.loads((folder / STATE_FILE).read_text(encoding="utf-8")))
    except FileExistsError:
        raise TestbedError(
            f"a testbed {name} is up already: `netsum testbed down --testbed {name}`, or choose another --testbed"
        ) from None
    return path


def release(name: str, folder: Path) -> None:
    """Release a testbed's name if it belongs to this run folder."""
    path = RUNNING / name
    with contextlib.suppress(OSError):
        if path.readlink() == folder.resolve():
            path.unlink()
            _copy(name).unlink()


def write_state(folder: Path, state: dict[str, Any]) -> None:
    """Replace ``testbed.json`` atomically, and its copy if the name belongs to this folder."""
    files = [folder / STATE_FILE]
    with contextlib.suppress(OSError):
        if (RUNNING / state["name"]).readlink() == folder.resolve():
            _copy(state["name"]).parent.mkdir(exist_ok=True)
            files.append(_copy(state["name"]))
    for file in files:
        draft = file.with_name(f"{file.name}.new")
        draft.write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
        draft.replace(file)


def _copy(name: str) -> Path:
    return RUNNING / ".states" / f"{name}.json"


def running_testbeds() -> list[RunningTestbed]:
    """Return the testbeds of this machine by name, abandoned ones too."""
    if not RUNNING.is_dir():
        return []
    found = []
    for path in sorted(RUNNING.iterdir()):
        # The testbed may be coming up or going down, or the entry may not be netsum's.
        with contextlib.suppress(OSError, ValueError):
            file = path / STATE_FILE if path.exists() else _copy(path.name)
            found.append(RunningTestbed(path.name, path, json.loads(file.read_text(encoding="utf-8"))))
    return found


def find_testbed(name: str | None = None) -> RunningTestbed:
    """Return a running testbed. `name`: its name; None: that in NETSUM_TESTBED, else the only one there is."""
    name = name or os.environ.get("NETSUM_TESTBED") or None
    testbeds = running_testbeds()
    names = ", ".join(testbed.name for testbed in testbeds)
    if name is not None:
        testbeds = [testbed for testbed in testbeds if testbed.name == name]
        if not testbeds:
            raise TestbedError(f"no testbed {name} is up" + (f"; running: {names}" if names else ""))
    if not testbeds:
        raise TestbedError("no testbed is up: `netsum testbed up star-4`")
    if len(testbeds) > 1:
        raise TestbedError(f"several testbeds are up: name one of {names} by --testbed")
    return testbeds[0]


def clear_away(testbed: RunningTestbed) -> list[int]:
    """End the processes of an abandoned testbed, and release its name; its folder stays.

    Returns the process ids that were ended.
    """
    ended = end_processes(testbed.run_id)
    folder = Path(testbed.state["folder"])
    release(testbed.name, folder)
    with contextlib.suppress(OSError):
        for path in [path for path in folder.iterdir() if path.is_socket()]:
            path.unlink()
    return ended


def new_run_folder(runs: Path, name: str) -> Path:
    """Make the folder of a run, ``runs/NAME-DATE-TIME``."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for number in range(1, 1000):
        folder = runs / (f"{name}-{stamp}" if number == 1 else f"{name}-{stamp}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise TestbedError(f"cannot make the run folder {folder}: {error.strerror}") from None
        (folder / "logs").mkdir()
        return folder
    raise TestbedError(f"cannot make a run folder for {name} in {runs}")
