"""The process of a testbed's switch, on the interfaces of its namespace."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from netsum_common.targets import ProcessTarget, SwitchSetup
from topologies.announcing import START_TIMEOUT_S, await_socket, start_announced
from topologies.captures import keep_earlier
from topologies.children import Child, TestbedError
from topologies.leftovers import MARK
from topologies.namespaces import inside_of, run
from topologies.topology import SwitchSpec


class SwitchProcess:
    """A switch that can be started in a namespace, and again after it died.

    `target`: the kind of switch. `socket`: the socket file of its P4Runtime server, visible in every namespace. `folder`: the
    run folder, with ``logs`` and ``pcaps``. `capture`: whether the packets of every port are written to ``pcaps``.
    """

    def __init__(
        self,
        target: ProcessTarget,
        spec: SwitchSpec,
        run_id: str,
        socket: Path,
        folder: Path,
        capture: bool,
    ) -> None:
        self.target = target
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
        """The process of the switch's last start."""
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

    def _start(self) -> None:
        """Start the switch and wait until it answers."""
        if self.target.announces:
            start_announced(self._launch, START_TIMEOUT_S)
        else:
            self._launch()
            await_socket(self.child, self._socket, START_TIMEOUT_S)
            self._require_ports()

    def _launch(self, ready_fd: int | None = None) -> Child:
        for left in self._files:
            left.unlink(missing_ok=True)
        if self._pcaps is not None:
            keep_earlier(self._pcaps, set(self.interfaces.values()))
        setup = SwitchSetup(
            interfaces=self.interfaces,
            p4runtime=self.p4runtime_address,
            device_id=self.spec.device_id,
            cpu_port=self.spec.cpu_port,
            status=self.status,
            notifications=self._notifications,
            pcaps=self._pcaps,
        )
        self._child = Child(
            f"{self.target.title} {self.spec.name}",
            [*self._prefix, *self.target.command(setup, ready_fd)],
            self.log,
            environment={MARK: self._run_id},
            pass_fds=() if ready_fd is None else (ready_fd,),
        )
        return self._child

    def _require_ports(self) -> None:
        """Raise TestbedError unless the switch listens on every interface: BMv2 only logs a missing one, and runs on."""
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
