"""A topology brought up by Mininet: every host and switch in namespaces of its own, links with rates between them.

Nothing is made in the machine's own network namespace, so testbeds do not collide. A namespace goes with its last process.
"""

import contextlib
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from netsum_common.targets import PROCESS_TARGETS
from topologies.children import Child, TestbedError, stop_all, uninterrupted
from topologies.generated import star
from topologies.hosts import Host
from topologies.leftovers import MARK, end_processes
from topologies.namespaces import COMMAND_TIMEOUT_S, await_interface, inside_of, missing_for_namespaces
from topologies.runs import delete_leftover_folders, new_run_id, socket_folder
from topologies.shaping import require_kernel_support, reshaping_commands
from topologies.switch_process import SwitchProcess
from topologies.topology import FlowSpec, LinkEnd, LinkSpec, SwitchSpec, Topology

if TYPE_CHECKING:
    from mininet.net import Mininet

MININET_PROGRAMS = ("mnexec", "ifconfig")
FLOW_PORT = 5001  # iperf's own.

_ALWAYS_S = 10**6  # Longest run of cross traffic: eleven days.


def missing_for_mininet() -> str | None:
    """Return why this machine cannot run a Mininet testbed, or None."""
    lacking = missing_for_namespaces()
    if lacking is not None:
        return lacking
    from topologies.find_mininet import find_mininet

    if find_mininet() is None or any(shutil.which(program) is None for program in MININET_PROGRAMS):
        return "Mininet is not installed: `apt-get install --no-install-recommends mininet`"
    return None


class MininetTestbed:
    """A topology, up for as long as the ``with`` block; with one switch, it is a `topologies.hosts.SwitchTestbed`.

    `kind`: the name of the target that runs the P4 program. `folder`: where ``logs`` and ``pcaps`` go.
    `udp_port`: the UDP port at which the P4 program takes contributions; hosts use it, too. `sockets`: a folder with a short
    path for the switches' sockets; None: a temporary one. `capture`: whether the packets of every switch port are written to
    ``pcaps``. Raises TestbedError if a program is missing, or a part does not come up; no process is left then.
    """

    hosts: tuple[Host, ...]
    net: "Mininet"

    def __init__(
        self,
        topology: Topology,
        kind: str,
        folder: Path,
        *,
        udp_port: int,
        sockets: Path | None = None,
        capture: bool = False,
        run_id: str | None = None,
    ) -> None:
        self._target = PROCESS_TARGETS[kind]
        lacking = self._target.lacking() or missing_for_mininet()
        if lacking is not None:
            raise TestbedError(lacking)
        self.topology = topology
        self.kind = kind
        self.folder = folder
        self.run_id = run_id or new_run_id()
        self._udp_port = udp_port
        self._given_sockets = sockets
        self._capture = capture
        self._flows: list[Child] = []
        self.processes: dict[str, SwitchProcess] = {}

    @property
    def spec(self) -> SwitchSpec:
        """The first switch's addresses and device id."""
        return self._first.spec

    @property
    def switch(self) -> Child:
        """The first switch's process."""
        return self._first.child

    @property
    def p4runtime_address(self) -> str:
        """The gRPC address of the first switch's P4Runtime server: a socket file, seen from every namespace."""
        return self._first.p4runtime_address

    @property
    def _first(self) -> SwitchProcess:
        return next(iter(self.processes.values()))

    def __enter__(self) -> "MininetTestbed":
        delete_leftover_folders()
        require_kernel_support(self.topology.links)
        (self.folder / "logs").mkdir(exist_ok=True)
        if self._capture:
            (self.folder / "pcaps").mkdir(exist_ok=True)
        self._sockets = self._given_sockets or socket_folder(self.run_id)
        self.processes = {
            name: SwitchProcess(
                *(self._target, switch, self.run_id),
                *(self._sockets / f"{name}.sock", self.folder, self._capture),
            )
            for name, switch in self.topology.switches.items()
        }
        try:
            self._bring_up()
        except BaseException:
            self._take_down()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._take_down()

    def restart_switch(self, name: str | None = None) -> None:
        """End a switch (the first one by default) if it runs and start it anew, empty."""
        (self._first if name is None else self.processes[name]).restart()

    def reshape(self, number: int, link: LinkSpec) -> None:
        """Give a link another rate, loss, latency or queue, while it carries packets.

        `link`: the new properties, with the same ends. Raises TestbedError if the kernel cannot do that, or a command
        fails.
        """
        require_kernel_support((link,))
        for end in link.ends:
            script = "\n".join(reshaping_commands(link, self._interface(end), self.topology.mtu))
            self.net[end.node].run(script)
            self._set_up_host(end)
        links = (*self.topology.links[:number], link, *self.topology.links[number + 1 :])
        self.topology = replace(self.topology, links=links)

    def describe(self) -> dict[str, Any]:
        """Return the description of the testbed for ``testbed.json``; see docs/testbed.md."""
        topology = self.topology
        return {
            "topology": topology.name,
            "switch_kind": self.kind,
            "mtu": topology.mtu,
            "switches": {
                name: {
                    "p4runtime": process.p4runtime_address,
                    "device_id": process.spec.device_id,
                    "ip": process.spec.ip,
                    "mac": process.spec.mac,
                    "namespace_pid": self.net[name].pid,
                    "pid": process.child.pid,
                    "ports": {interface: port for port, interface in process.interfaces.items()},
                    "forward": topology.forwarding(name),
                    "spare_ports": topology.spare_ports(name),
                    "log": os.path.relpath(process.log, self.folder),
                }
                for name, process in self.processes.items()
            },
            "hosts": {
                host.name: {
                    "namespace_pid": self.net[host.name].pid,
                    "ip": host.ip,
                    "prefix_length": topology.hosts[host.name].prefix_length,
                    "mac": host.mac,
                    "interface": self._interface(LinkEnd(host.name)),
                    "switch": topology.place(host.name)[0],
                    "port": host.port,
                    "udp_port": host.udp_port,
                }
                for host in self.hosts
            },
            "links": [
                {
                    "ends": [str(end) for end in link.ends],
                    "interfaces": [self._interface(end) for end in link.ends],
                    "rate_bps": link.rate_bps,
                    "latency_ns": link.latency_ns,
                    "loss_ppm": link.loss_ppm,
                    "queue_pkts": link.queue_pkts,
                }
                for link in topology.links
            ],
            "jobs": {
                name: {"hosts": list(job.hosts), "switch": job.switch} for name, job in topology.jobs.items()
            },
            "traffic": [
                {
                    "from": flow.source,
                    "to": flow.target,
                    "rate_bps": flow.rate_bps,
                    "pids": [end.pid for end in self._flows[2 * number : 2 * number + 2]],
                }
                for number, flow in enumerate(topology.traffic)
            ],
        }

    def _bring_up(self) -> None:
        from topologies import mininet_nodes

        self.net = mininet_nodes.build(self.topology, self.run_id, self.processes)
        deadline = time.monotonic() + COMMAND_TIMEOUT_S
        for end in (end for link in self.topology.links for end in link.ends):
            await_interface(inside_of(self.net[end.node].pid), self._interface(end), deadline)
            self._set_up_host(end)
        self.net.start()
        self.hosts = tuple(self._host(name) for name in self.topology.hosts)
        for flow in self.topology.traffic:
            self._start_flow(flow)

    def _set_up_host(self, end: LinkEnd) -> None:
        """Run the command by which a host's interface can receive from this kind of switch, if there is one."""
        command = self._target.host_setup(self._interface(end))
        if command and end.node in self.topology.hosts:
            self.net[end.node].run(command)

    def _host(self, name: str) -> Host:
        switch, port = self.topology.place(name)
        spec = self.topology.hosts[name]
        return Host(
            name=name,
            port=port,
            ip=spec.ip,
            mac=spec.mac,
            udp_port=self._udp_port,
            switch=(self.topology.switches[switch].ip, self._udp_port),
            prefix=inside_of(self.net[name].pid),
        )

    def _interface(self, end: LinkEnd) -> str:
        return f"{end.node}-eth{end.port or 0}"

    def _start_flow(self, flow: FlowSpec) -> None:
        target = self.topology.hosts[flow.target].ip
        ends = (
            (flow.target, ["iperf", "-s", "-u", "-p", str(FLOW_PORT)]),
            (
                flow.source,
                [
                    *("iperf", "-u", "-c", target, "-p", str(FLOW_PORT)),
                    *("-b", str(flow.rate_bps), "-t", str(_ALWAYS_S)),
                ],
            ),
        )
        for host, command in ends:
            log = self.folder / "logs" / f"{flow.source}-to-{flow.target}-at-{host}.log"
            self._flows.append(
                Child(
                    f"cross traffic at {host}",
                    [*inside_of(self.net[host].pid), *command],
                    log,
                    environment={MARK: self.run_id},
                )
            )

    def _take_down(self) -> None:
        with uninterrupted():
            stop_all(self._flows)
            for process in self.processes.values():
                process.stop()
            # This ends the nodes' shells, too. Mininet would wait for them without a deadline.
            end_processes(self.run_id)
            if hasattr(self, "net"):
                for node in (*self.net.hosts, *self.net.switches):
                    with contextlib.suppress(OSError):
                        node.cleanup()
            if self._given_sockets is None:
                shutil.rmtree(self._sockets, ignore_errors=True)


class MininetStar(MininetTestbed):
    """Hosts on one switch, on links without a rate or delay; see `topologies.hosts.SwitchTestbed`.

    `udp_port`, `folder`: see `MininetTestbed`. `drop_ppm`: packets per million that each link loses, each way.
    """

    switch_kind: ClassVar[str]

    def __init__(self, workers: int, udp_port: int, folder: Path, drop_ppm: int = 0) -> None:
        topology = star(workers).with_links(loss_ppm=drop_ppm)
        super().__init__(topology, self.switch_kind, folder, udp_port=udp_port)

    @classmethod
    def lacking(cls) -> str | None:
        """Return why this machine cannot run the star, or None."""
        return PROCESS_TARGETS[cls.switch_kind].lacking() or missing_for_mininet()


class EmbeddedStar(MininetStar):
    """A star whose switch is the embedded engine."""

    switch_kind = "embedded"


class Bmv2Star(MininetStar):
    """A star whose switch is BMv2."""

    switch_kind = "bmv2"
