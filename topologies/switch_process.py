"""The process of a testbed's switch, embedded engine or BMv2, on the interfaces of its namespace."""

import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from netsum_common.programs import command_of
from topologies.announcing import START_TIMEOUT_S, await_socket, start_announced
from topologies.captures import keep_earlier
from topologies.children import Child, TestbedError
from topologies.leftovers import MARK
from topologies.namespaces import inside_of, run
from topologies.topology import DROP_PORT, SwitchSpec

BMV2_PROGRAM = "simple_switch_grpc"
BMV2_PACKAGE = "p4lang's package p4lang-bmv2, https://github.com/p4lang/behavioral-model#installing-packaged-versions-of-bmv2"


class SwitchProcess(ABC):
    """A switch that can be started in a namespace, and again after it died.

    `socket`: the socket file of its P4Runtime server, seen from every namespace. `folder`: of the run; has the folders
    ``logs`` and, for packets, ``pcaps``. `capture`: whether the packets of every port go to ``pcaps``.
    """

    title: str

    def __init__(self, spec: SwitchSpec, run_id: str, socket: Path, folder: Path, capture: bool) -> None:
        self.spec = spec
        self.log = folder / "logs" / f"{spec.name}.log"
        self.status = socket.with_suffix(".status")
        self._notifications = socket.with_suffix(".notifications")
        self._run_id = run_id
        self._socket = socket
        self._files = (socket, self.status, self._notifications)
        self._pcaps = folder / "pcaps" if capture else None
        self._child: Child | None = None
        self._prefix: Sequence[str] = ()
        self.interfaces: Mapping[int, str] = {}

    @property
    def p4runtime_address(self) -> str:
        """The gRPC address of its P4Runtime server."""
        return f"unix:{self._socket}"

    @property
    def child(self) -> Child:
        """The process that was started last."""
        assert self._child is not None, f"{self.spec.name} was not started"
        return self._child

    def start(self, namespace_pid: int, interfaces: Mapping[int, str]) -> None:
        """Start the switch in the namespace of a process and await its answer; `TestbedError` if it ends or takes too long."""
        self._prefix, self.interfaces = inside_of(namespace_pid), interfaces
        self._start()

    def restart(self) -> None:
        """End the switch if it runs, and start it anew, empty, at the same address on the same interfaces."""
        self.stop()
        self._start()

    def stop(self) -> None:
        """End the switch, if it was started."""
        if self._child is not None:
            self._child.stop()
        for left in self._files:
            left.unlink(missing_ok=True)

    @abstractmethod
    def _start(self) -> None:
        """Start the switch and wait until it answers."""

    def _launch(self, command: Sequence[str], pass_fds: Sequence[int] = ()) -> Child:
        for left in self._files:
            left.unlink(missing_ok=True)
        if self._pcaps is not None:
            keep_earlier(self._pcaps, set(self.interfaces.values()))
        self._child = Child(
            f"{self.title} {self.spec.name}",
            [*self._prefix, *command],
            self.log,
            environment={MARK: self._run_id},
            pass_fds=pass_fds,
        )
        return self._child


class EmbeddedSwitch(SwitchProcess):
    """The embedded engine, with packet sockets on its interfaces."""

    title = "the embedded switch"
    engine = "embedded"

    def _start(self) -> None:
        interfaces = [
            word for port, name in self.interfaces.items() for word in ("--interface", f"{port}@{name}")
        ]

        def start(ready_fd: int) -> Child:
            return self._launch(
                [
                    *command_of("switch"),
                    *interfaces,
                    *("--p4runtime", self.p4runtime_address, "--device-id", str(self.spec.device_id)),
                    *("--cpu-port", str(self.spec.cpu_port), "--engine", self.engine),
                    *("--status", str(self.status)),
                    *(() if self._pcaps is None else ("--pcap", str(self._pcaps))),
                    *("--ready-fd", str(ready_fd)),
                ],
                pass_fds=(ready_fd,),
            )

        start_announced(start, START_TIMEOUT_S)


class XdpSwitch(EmbeddedSwitch):
    """The kernel, with the program as XDP at the interfaces."""

    title = "the XDP switch"
    engine = "xdp"


class Bmv2Switch(SwitchProcess):
    """BMv2's `simple_switch_grpc`."""

    title = "BMv2"

    def _start(self) -> None:
        # BMv2 announces ports on an address that all BMv2s of the machine share by default.
        self._launch(
            [
                *(BMV2_PROGRAM, "--no-p4", "--device-id", str(self.spec.device_id)),
                *(word for port, name in self.interfaces.items() for word in ("-i", f"{port}@{name}")),
                *("--notifications-addr", f"ipc://{self._notifications}"),
                *("--log-console", "--log-level", "error"),
                *(() if self._pcaps is None else ("--pcap", str(self._pcaps))),
                *("--", "--grpc-server-addr", self.p4runtime_address),
                *("--cpu-port", str(self.spec.cpu_port), "--drop-port", str(DROP_PORT)),
            ]
        )
        await_socket(self.child, self._socket, START_TIMEOUT_S)
        self._require_ports()

    def _require_ports(self) -> None:
        """Require that BMv2 listens on every interface: if one is missing, BMv2 only logs it and runs on."""
        held = Path(f"/proc/{self.child.pid}/net/packet").read_text(encoding="utf-8").splitlines()
        listened_on = {int(line.split()[4]) for line in held[1:]}
        links = {one["ifname"]: one for one in json.loads(run(*self._prefix, "ip", "-j", "link"))}
        for name in self.interfaces.values():
            link = links.get(name)
            if link is not None and link["ifindex"] in listened_on:
                continue
            self.stop()
            why = f"finds no interface {name}" if link is None else f"could not open the interface {name}"
            if link is not None and "UP" not in link["flags"]:
                why += ", which is down"
            raise TestbedError(f"{self.child.name} {why}, see {self.log}")


SWITCH_KINDS: Mapping[str, type[SwitchProcess]] = {
    "embedded": EmbeddedSwitch,
    "xdp": XdpSwitch,
    "bmv2": Bmv2Switch,
}
"""The kinds of switches that can run the P4 program, by the users' names for them."""


def missing_for_switch(kind: str) -> str | None:
    """Return why this machine cannot run a kind of switch, or None."""
    if kind == "bmv2" and shutil.which(BMV2_PROGRAM) is None:
        return f"BMv2 ({BMV2_PROGRAM}) is not installed: get {BMV2_PACKAGE}"
    return None
