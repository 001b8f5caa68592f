"""The switches and hosts of a controller, and their description in a testbed's run folder.

Failures raise `ConfigError` with the reason.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from controller.errors import ConfigError
from netsum_common.channel import PLAINTEXT, TlsFiles
from topologies.topology import HostSpec, LinkSpec, SwitchSpec, Topology


@dataclass(frozen=True)
class PortSite:
    """A port of a switch: the name of its interface or front-panel port, and the node at the other end."""

    name: str = ""
    peer: str = ""


@dataclass(frozen=True)
class SwitchSite:
    """A switch, as the controller's configuration describes it."""

    name: str  # The name in messages.
    p4runtime: str  # gRPC address of the switch's P4Runtime server.
    device_id: int  # P4Runtime device id of the switch.
    # ip, mac: the switch's address on the data network.
    ip: str
    mac: str
    stations: Mapping[str, int]  # The port to every host and other switch, by MAC address.
    ports: Mapping[int, PortSite] = field(default_factory=dict)  # Names and peers of the ports, where known.
    # The port to each neighbouring switch, by the switch's name; of parallel links, both ends name the same one.
    neighbours: Mapping[str, int] = field(default_factory=dict)
    # Ports of links outside the network's spanning tree; packets flooded there would circulate.
    spare_ports: frozenset[int] = frozenset()
    tls: TlsFiles = PLAINTEXT  # Certificates for the P4Runtime server.
    # Id of a process on this machine in the network namespace of the switch's interfaces; None: the controller's namespace.
    namespace_pid: int | None = None


@dataclass(frozen=True)
class HostSite:
    """A host, as the controller's configuration describes it."""

    name: str  # The name in messages.
    # ip, mac: the host's addresses on the data network.
    ip: str
    mac: str
    switch: str  # The switch that the host is on.
    # (address, UDP port) at which the host reaches the switch; None: the switch's own.
    sends_to: tuple[str, int] | None = None


@dataclass(frozen=True)
class ControlledNetwork:
    """All switches and hosts of a controller."""

    # switches, hosts: by name.
    switches: Mapping[str, SwitchSite]
    hosts: Mapping[str, HostSite]
    # Whether a worker with an unknown address may use any host, as on the loopback of one machine.
    any_place: bool = False

    def __post_init__(self) -> None:
        for host in self.hosts.values():
            if host.switch not in self.switches:
                raise ConfigError(
                    f"host {host.name} is on switch {host.switch!r}, which the network does not have"
                )
            switch = self.switches[host.switch]
            if host.sends_to is not None and host.sends_to[0] != switch.ip:
                raise ConfigError(
                    f"host {host.name} sends to {host.sends_to[0]}, but switch {switch.name} takes only what is sent to its "
                    f"own address, {switch.ip}"
                )

    def host_of(self, addresses: Iterable[str]) -> HostSite | None:
        """Return the host of the first address that any host has; None if no host has one."""
        by_address = {host.ip: host for host in self.hosts.values()}
        return next((by_address[each] for each in addresses if each in by_address), None)

    def port_to(self, switch: str, host: HostSite) -> int | None:
        """Return the port of a switch that leads to a host."""
        return self.switches[switch].stations.get(host.mac)


def switch_site(
    topology: Topology, name: str, p4runtime: str, *, names: Mapping[int, str], tls: TlsFiles = PLAINTEXT
) -> SwitchSite:
    """Return the site of a switch in a network.

    `names`: names of its ports, by number, where known.
    """
    spec = topology.switches[name]
    return SwitchSite(
        name,
        p4runtime,
        spec.device_id,
        spec.ip,
        spec.mac,
        topology.shortest(name),
        {port: PortSite(names.get(port, ""), end.node) for port, end in topology.ports(name).items()},
        topology.neighbours(name),
        frozenset(topology.spare_ports(name)),
        tls,
    )


def network_of_testbed(folder: Path) -> ControlledNetwork:
    """Read the ``testbed.json`` of a testbed's run folder."""
    path, described = _described(folder)
    try:
        topology = Topology(
            folder.name,
            {name: HostSpec(name, one["ip"], one["mac"]) for name, one in described["hosts"].items()},
            {
                name: SwitchSpec(name, one["ip"], one["mac"], one["device_id"])
                for name, one in described["switches"].items()
            },
            tuple(LinkSpec.between(*link["ends"]) for link in described.get("links", ())),
        )
        switches = {}
        for name, one in described["switches"].items():
            names = {number: interface for interface, number in one["ports"].items()}
            site = switch_site(topology, name, one["p4runtime"], names=names)
            switches[name] = replace(
                site,
                stations=one["forward"],
                spare_ports=frozenset(one["spare_ports"]),
                ports={port: PortSite(each) for port, each in names.items()} | dict(site.ports),
                namespace_pid=one.get("namespace_pid"),
            )
        hosts = {
            name: HostSite(name, spec.ip, spec.mac, described["hosts"][name]["switch"])
            for name, spec in topology.hosts.items()
        }
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ConfigError(f"{path}: expected the description of a testbed ({error!r})") from None
    return ControlledNetwork(switches, hosts)


def lanes_of_testbed(folder: Path) -> int | None:
    """Return the lane count of a testbed's switches, if it states one."""
    lanes = _described(folder)[1].get("lanes")
    return lanes if isinstance(lanes, int) else None


def _described(folder: Path) -> tuple[Path, dict[str, Any]]:
    path = folder / "testbed.json"
    try:
        described: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{folder} is no testbed's run folder: {path.name}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from None
    return path, described
