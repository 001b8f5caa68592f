"""Mininet's nodes and links as netsum uses them. The one file that imports Mininet.

Mininet is pure Python, so the distribution's copy can be loaded into this environment. Only that package is loaded, as
others of the distribution could shadow packages of this environment.
"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from topologies.children import TestbedError
from topologies.find_mininet import find_mininet
from topologies.leftovers import MARK
from topologies.namespaces import inside_of, run
from topologies.shaping import shaping_commands
from topologies.switch_process import SwitchProcess
from topologies.topology import LinkSpec, Topology


def _load_mininet() -> None:
    spec = find_mininet()
    if "mininet" in sys.modules or spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["mininet"] = module
    spec.loader.exec_module(module)


_load_mininet()

from mininet.link import Intf, Link  # noqa: E402  # after it is found
from mininet.net import Mininet  # noqa: E402
from mininet.node import Host, Node, Switch  # noqa: E402

ROUTE_IS_THERE = "RTNETLINK answers: File exists"
"""Message of `ip route add` for a route that exists."""

# Mininet would raise limits of the whole machine (`fixLimits`). Nothing here needs that, and no `down` would undo it.
Mininet.inited = True


class MarkedNode(Node):
    """A node whose processes all carry the run's mark, in a namespace without IPv6, which would send packets of its own."""

    def __init__(self, name: str, run_id: str = "", **params: Any) -> None:
        self._run_id = run_id
        super().__init__(name, **params)
        self.run("echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6 || true")

    def _popen(self, cmd: Sequence[str], **params: Any) -> "subprocess.Popen[bytes]":
        """Start a process with the mark; Mininet starts the node's shell by this method, too."""
        params.setdefault("env", {**os.environ, MARK: self._run_id})
        started: subprocess.Popen[bytes] = super()._popen(cmd, **params)
        return started

    def run(self, script: str) -> str:
        """Run a shell script in the node and return its output; TestbedError if a command of it fails."""
        return run(*inside_of(self.pid), "sh", "-ec", script, node=self.name)


class TestbedHost(MarkedNode, Host):
    """A host."""

    __test__ = False  # Despite the name, pytest must not collect the class.


class TestbedSwitch(MarkedNode, Switch):
    """A switch; its process receives the list of interfaces when it starts."""

    __test__ = False

    def __init__(self, name: str, process: SwitchProcess, **params: Any) -> None:
        self.process = process
        super().__init__(name, **params)

    def start(self, controllers: Sequence[object]) -> None:
        """Start the switch's process in its namespace and wait until it answers."""
        del controllers  # Controllers connect to the switch.
        self.process.start(self.pid, {port: intf.name for port, intf in self.intfs.items() if intf.link})

    def stop(self, deleteIntfs: bool = True) -> None:  # Mininet's name
        """End the process."""
        self.process.stop()
        super().stop(deleteIntfs)


class ShapedInterface(Intf):
    """An end of a link, which gives outgoing packets the link's rate, queue, delay and loss."""

    def config(self, shape: LinkSpec | None = None, mtu: int = 1500, **params: Any) -> dict[str, Any]:
        """Configure it; Mininet calls this when it has made the interface."""
        configured: dict[str, Any] = super().config(**params)
        if shape is not None:
            self.node.run("\n".join(shaping_commands(shape, self.name, mtu)))
        return configured


def build(topology: Topology, run_id: str, processes: Mapping[str, SwitchProcess]) -> Mininet:
    """Make the nodes and links of a topology, each node in namespaces of its own; no switch runs yet.

    After a failure or an interruption, `topologies.leftovers.end_processes` removes the nodes made so far.
    """
    net = Mininet(topo=None, controller=None, build=False)
    for host in topology.hosts.values():
        net.addHost(
            host.name, cls=TestbedHost, run_id=run_id, ip=f"{host.ip}/{host.prefix_length}", mac=host.mac
        )
    for switch in topology.switches.values():
        net.addSwitch(
            switch.name,
            cls=TestbedSwitch,
            run_id=run_id,
            inNamespace=True,
            dpid=f"{switch.device_id:x}",
            process=processes[switch.name],
        )
    for link in topology.links:
        one, other = link.ends
        Link(
            net[one.node],
            net[other.node],
            port1=one.port,
            port2=other.port,
            cls1=ShapedInterface,
            cls2=ShapedInterface,
            shape=link,
            mtu=topology.mtu,
        )
    net.build()
    for host in topology.hosts.values():
        # The host commands of p4lang's tutorials call a host's interface eth0.
        net[host.name].run(f"ip link property add dev {net[host.name].defaultIntf()} altname eth0")
        for command in host.commands:
            try:
                net[host.name].run(command)
            except TestbedError as error:
                # The tutorials add routes that exist here already, as they come with an address.
                if ROUTE_IS_THERE not in str(error):
                    raise
    return net
