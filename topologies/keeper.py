"""The process that owns a testbed for as long as it is up.

The keeper brings the testbed up, announces this, and then serves requests on its socket until SIGTERM or Ctrl-C, when it takes
the whole testbed down. All processes that the keeper starts die with it, even if it is killed.

Failures raise `TestbedError` with the reason.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from topologies.announcing import START_TIMEOUT_S, read_line, start_announced
from topologies.children import Child, TestbedError, ending_in_order, held_signals, uninterrupted
from topologies.leftovers import MARK
from topologies.mininet_testbed import MininetTestbed
from topologies.run_folder import (
    CONTROLLER_SOCKET,
    KEEPER_SOCKET,
    RunningTestbed,
    claim,
    clear_away,
    find_testbed,
    release,
    write_state,
)
from topologies.runs import new_run_id, owner_is_gone
from topologies.topology import LinkEnd, Topology

CONTROLLER = "controller"  # The users' name for the controller's process, beside the switches' names.

LINK_FIELDS = frozenset({"rate_bps", "latency_ns", "loss_ppm", "queue_pkts"})
"""The properties of a link that can be changed while it is up."""

UP_TIMEOUT_S = 2 * START_TIMEOUT_S
"""Time for a switch and a controller to start; other switches only load the code that the first one compiled."""
DOWN_TIMEOUT_S = 60.0
LOAD_TIMEOUT_S = START_TIMEOUT_S
REQUEST_TIMEOUT_S = 5.0
LONGEST_REQUEST = 1 << 16
RESTART_TIMEOUT_S = START_TIMEOUT_S + 20.0  # Longer than a part's own deadline, whose error says more.


@dataclass(frozen=True)
class TestbedPlan:
    """The testbed that a keeper runs, and its options."""

    name: str
    # topology, kind, capture, udp_port: see `topologies.mininet_testbed.MininetTestbed`.
    topology: Topology
    kind: str
    lanes: int  # int32 values per packet of the program that the controller loads.
    folder: Path
    udp_port: int
    capture: bool = False
    # The controller's command line; the testbed's name and the descriptor for its announcement are appended. None: no
    # controller.
    controller: Sequence[str] | None = None
    # Switches that get the user's own programs, which are in the run folder.
    own_programs: Sequence[str] = ()
    # The command line that loads those programs; the testbed's folder and the switches' names are appended.
    loader: Sequence[str] = ()


def keep(plan: TestbedPlan, ready: Callable[[], None]) -> None:
    """Bring a testbed up and keep it until SIGTERM, SIGHUP or Ctrl-C raises an exception here.

    Raises TestbedError if the testbed does not come up; all its processes have ended then.
    """
    _Keeper(plan).keep(ready)


class _Keeper:
    def __init__(self, plan: TestbedPlan) -> None:
        self._plan = plan
        self._run_id = new_run_id()
        self._controller: Child | None = None
        self._state: dict[str, Any] = {
            "format": 1,
            "name": plan.name,
            "ready": False,
            "folder": str(plan.folder.resolve()),
            "lanes": plan.lanes,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "keeper": {"pid": os.getpid(), "run_id": self._run_id},
            "own_programs": list(plan.own_programs),
            "controller": None,
        }

    def keep(self, ready: Callable[[], None]) -> None:
        plan = self._plan
        write_state(plan.folder, self._state)
        try:
            self._path = claim(plan.name, plan.folder)
        except TestbedError:
            shutil.rmtree(plan.folder, ignore_errors=True)
            raise
        try:
            with (
                MininetTestbed(
                    plan.topology,
                    plan.kind,
                    plan.folder,
                    udp_port=plan.udp_port,
                    sockets=self._path,
                    capture=plan.capture,
                    run_id=self._run_id,
                ) as testbed,
                socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as requests,
            ):
                self._testbed = testbed
                self._state |= testbed.describe()
                write_state(plan.folder, self._state)
                try:
                    self._load_programs(self._plan.own_programs)
                    self._start_controller()
                    requests.bind(os.fspath(self._path / KEEPER_SOCKET))
                    requests.listen()
                    self._state["ready"] = True
                    write_state(plan.folder, self._state)
                    ready()
                    while True:
                        self._answer(requests.accept()[0])
                finally:
                    self._stop_controller()
        finally:
            release(plan.name, plan.folder)
            for name in (KEEPER_SOCKET, CONTROLLER_SOCKET):
                (plan.folder / name).unlink(missing_ok=True)

    def _answer(self, connection: socket.socket) -> None:
        """Carry out one request: ``{"restart": NAME}``, or ``{"link": NUMBER, …}`` with new values of `LINK_FIELDS`."""
        with connection, contextlib.suppress(OSError):
            line = read_line(connection.fileno(), time.monotonic() + REQUEST_TIMEOUT_S, LONGEST_REQUEST)
            if line:
                error = self._carried_out(line)
                connection.settimeout(REQUEST_TIMEOUT_S)
                connection.sendall(json.dumps({"error": error}).encode() + b"\n")

    def _carried_out(self, line: bytes) -> str:
        """Carry out a request; return the error in a sentence, empty if there is none."""
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            request = None
        try:
            match request:
                case {"restart": str(name)}:
                    self._restart(name)
                case {"link": int(number), **changes} if self._are_of_link(number, changes):
                    self._reshape(number, changes)
                case _:
                    return (
                        f"the keeper of the testbed {self._plan.name} does not know the request {line[:80]!r}: "
                        "use the netsum that brought the testbed up"
                    )
            self._state |= self._testbed.describe()
            write_state(self._plan.folder, self._state)
        except TestbedError as fault:
            return str(fault)
        return ""

    def _are_of_link(self, number: int, changes: Mapping[Any, Any]) -> bool:
        known = 0 <= number < len(self._plan.topology.links) and changes.keys() <= LINK_FIELDS
        return known and all(value is None or isinstance(value, int) for value in changes.values())

    def _restart(self, name: str) -> None:
        if name == CONTROLLER:
            if self._controller is None:
                raise TestbedError(f"the testbed {self._plan.name} was brought up without a controller")
            self._controller.stop()
            self._start_controller()
        elif name in self._testbed.processes:
            self._testbed.restart_switch(name)
            self._load_programs([name] if name in self._plan.own_programs else [])
        else:
            names = ", ".join([*self._testbed.processes, CONTROLLER])
            raise TestbedError(f"the testbed {self._plan.name} has no process {name!r}: expected {names}")

    def _reshape(self, number: int, changes: dict[Any, Any]) -> None:
        link = replace(self._testbed.topology.links[number], **changes)
        if link.rate_bps is None:  # A link without a rate has no queue.
            link = replace(link, queue_pkts=None)
        self._testbed.reshape(number, link)

    def _start_controller(self) -> None:
        command = self._plan.controller
        if command is None:
            return
        (self._plan.folder / CONTROLLER_SOCKET).unlink(missing_ok=True)
        log = self._plan.folder / "logs" / "controller.log"

        def start(ready_fd: int) -> Child:
            self._controller = Child(
                "the controller",
                [*command, "--testbed", self._plan.name, "--ready-fd", str(ready_fd)],
                log,
                environment={MARK: self._run_id},
                pass_fds=(ready_fd,),
            )
            return self._controller

        child, said = start_announced(start, START_TIMEOUT_S)
        self._state["controller"] = {
            "pid": child.pid,
            "address": f"unix:{self._path / CONTROLLER_SOCKET}",
            "window": json.loads(said)["http"],
            "log": "logs/controller.log",
        }

    def _load_programs(self, switches: Sequence[str]) -> None:
        """Give switches the user's own programs and table entries."""
        if not switches:
            return
        loader = Child(
            "loading the programs",
            [*self._plan.loader, str(self._path), *switches],
            self._plan.folder / "logs" / "programs.log",
            environment={MARK: self._run_id},
        )
        loader.wait_until(time.monotonic() + LOAD_TIMEOUT_S)
        if not loader.succeeded:
            raise TestbedError(loader.last_words() or loader.how_it_ended())

    def _stop_controller(self) -> None:
        if self._controller is not None:
            self._controller.stop()


def detach(plan: TestbedPlan) -> RunningTestbed:
    """Fork a keeper that brings a testbed up; return when all of the testbed is up.

    Raises TestbedError if the testbed does not come up; all its processes have ended then.
    """
    read_end, write_end = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    with open(read_end, "rb") as said, contextlib.ExitStack() as guard:
        pid = -1
        try:
            # A Ctrl-C between the fork and the guard would leave a keeper that is never ended.
            with uninterrupted():
                with held_signals():
                    pid = os.fork()
                if pid:
                    guard.enter_context(_ended_unless_done(pid))
        except BaseException:
            if pid == 0:  # The parent was interrupted, and has ended this child before it began.
                os._exit(1)
            raise
        if pid == 0:
            _become_keeper(plan, write_end)
        os.close(write_end)
        signal.alarm(int(UP_TIMEOUT_S))
        try:
            line = said.readline()
        finally:
            signal.alarm(0)
        if not line:
            raise TestbedError(
                f"the testbed {plan.name} did not come up, see {plan.folder / 'logs/keeper.log'}"
            )
        if error := json.loads(line)["error"]:
            raise TestbedError(error)
    return find_testbed(plan.name)


def _become_keeper(plan: TestbedPlan, write_end: int) -> NoReturn:
    """Keep a testbed, in a session of its own that the terminal's Ctrl-C does not reach; exit when it is down."""
    status = 1
    try:
        os.setsid()
        log = os.open(plan.folder / "logs" / "keeper.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.chdir("/")
        with open(write_end, "w", encoding="utf-8") as teller, ending_in_order():

            def report(error: str = "") -> None:
                teller.write(json.dumps({"error": error}) + "\n")
                teller.close()

            try:
                keep(plan, report)
            except TestbedError as error:
                print(error, file=sys.stderr)
                report("\n".join([str(error), *getattr(error, "__notes__", [])]))
    except SystemExit:
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


@contextlib.contextmanager
def _ended_unless_done(pid: int) -> Any:
    """End the forked keeper if the block raises an exception, as SIGALRM makes it do at the deadline."""

    def too_late(number: int, frame: object) -> None:
        del number, frame
        raise TestbedError(f"the testbed was not up within {UP_TIMEOUT_S:g} s")

    before = signal.signal(signal.SIGALRM, too_late)
    try:
        yield
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
        raise
    finally:
        signal.signal(signal.SIGALRM, before)


def take_down(testbed: RunningTestbed) -> None:
    """Ask the keeper of a testbed to end, kill it if it does not, and end the testbed's remaining processes."""
    keeper = int(testbed.state["keeper"]["pid"])
    if not testbed.abandoned:
        os.kill(keeper, signal.SIGTERM)
        deadline = time.monotonic() + DOWN_TIMEOUT_S
        while not owner_is_gone(testbed.run_id) and time.monotonic() < deadline:
            time.sleep(0.02)
        if not owner_is_gone(testbed.run_id):
            os.kill(keeper, signal.SIGKILL)
    clear_away(testbed)


def restart(testbed: RunningTestbed, name: str) -> None:
    """Have the keeper restart a switch or the controller; return when it is ready.

    Raises TestbedError if that fails. If the switch or one of its neighbours has lost its namespaces, nothing is ended.
    """
    for link in testbed.state["links"]:
        nodes = [LinkEnd.of(end).node for end in link["ends"]]
        for node in nodes if name in nodes else ():
            testbed.namespace_pid(node)
    ask_keeper(testbed, {"restart": name})


def ask_keeper(testbed: RunningTestbed, request: Mapping[str, object]) -> None:
    """Have the keeper carry out a request (see `_Keeper`); TestbedError if it fails, or the keeper does not answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(RESTART_TIMEOUT_S)
        try:
            connection.connect(os.fspath(testbed.folder / KEEPER_SOCKET))
            with connection.makefile("rw", encoding="utf-8") as stream:
                stream.write(json.dumps(request) + "\n")
                stream.flush()
                line = stream.readline()
        except OSError as error:
            raise TestbedError(
                f"the keeper of the testbed {testbed.name} does not answer ({error}): "
                f"`netsum testbed down --testbed {testbed.name}`"
            ) from None
    if not line:
        raise TestbedError(
            f"the keeper of the testbed {testbed.name} is gone: `netsum testbed down --testbed {testbed.name}`"
        )
    if error_text := json.loads(line)["error"]:
        raise TestbedError(error_text)
