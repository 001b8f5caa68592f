"""The switches and hosts a controller has, and where each is."""

import ipaddress
import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controller.addresses import ipv4_int, mac_int
from controller.errors import ConfigError
from host_agent.wire.channel import PLAINTEXT, TlsFiles


@dataclass(frozen=True)
class PortSite:
    """A port of a switch: the name of its interface, and what is at the other end."""

    name: str = ""
    peer: str = ""


@dataclass(frozen=True)
class SwitchSite:
    """A switch.

    Attributes
    ----------
    name
        For people.
    p4runtime
        gRPC address of its P4Runtime server.
    device_id
        Its P4Runtime device id.
    ip, mac
        Its address on the data network.
    stations
        MAC address of every host (and other switch) to the port it is reached by.
    ports
        What is known of its ports.
    tls
        Certificates for its P4Runtime server.
    """

    name: str
    p4runtime: str
    device_id: int
    ip: str
    mac: str
    stations: Mapping[str, int]
    ports: Mapping[int, PortSite] = field(default_factory=dict)
    tls: TlsFiles = PLAINTEXT


@dataclass(frozen=True)
class HostSite:
    """A host.

    Attributes
    ----------
    name
        For people.
    ip, mac
        Its addresses on the data network.
    switch
        The switch it is on.
    sends_to
        (address, UDP port) at which it reaches the switch, where that is not the switch's own address.
    """

    name: str
    ip: str
    mac: str
    switch: str
    sends_to: tuple[str, int] | None = None


@dataclass(frozen=True)
class Network:
    """All of them.

    Attributes
    ----------
    switches, hosts
        By name.
    any_place
        Whether a worker of no known address may take the place of any host, as on one machine's loopback.
    """

    switches: Mapping[str, SwitchSite]
    hosts: Mapping[str, HostSite]
    any_place: bool = False

    def __post_init__(self) -> None:
        if not self.switches:
            raise ConfigError("a controller needs at least one switch")
        for host in self.hosts.values():
            if host.switch not in self.switches:
                raise ConfigError(f"host {host.name} is on switch {host.switch!r}, which is not there")

    def host_of(self, addresses: Iterable[str]) -> HostSite | None:
        """Return the host that has the first of these addresses that any has."""
        by_address = {host.ip: host for host in self.hosts.values()}
        return next((by_address[each] for each in addresses if each in by_address), None)

    def port_to(self, switch: str, host: HostSite) -> int | None:
        """Return the port of a switch that leads to a host."""
        return self.switches[switch].stations.get(host.mac)


def network_of_testbed(folder: Path) -> Network:
    """Read the ``testbed.json`` of a testbed's run folder.

    Raises
    ------
    ConfigError
        There is none, or it does not say what is needed.
    """
    path, described = _described(folder)
    try:
        peers = _peers(described.get("links", ()))
        switches = {
            name: SwitchSite(
                name=name,
                p4runtime=one["p4runtime"],
                device_id=one["device_id"],
                ip=one["ip"],
                mac=one["mac"],
                stations=one["forward"],
                ports={
                    number: PortSite(interface, peers.get(interface, ""))
                    for interface, number in one["ports"].items()
                },
            )
            for name, one in described["switches"].items()
        }
        hosts = {
            name: HostSite(name, one["ip"], one["mac"], one["switch"])
            for name, one in described["hosts"].items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path}: expected the description of a testbed ({error!r})") from None
    return Network(switches, hosts)


def lanes_of_testbed(folder: Path) -> int | None:
    """Return how many lanes the programs of a testbed's switches are to have, if it says.

    Raises
    ------
    ConfigError
        It is no testbed's folder.
    """
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


def _peers(links: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return what is at the other end of each interface."""
    found = {}
    for link in links:
        ends = [str(end).partition("-")[0] for end in link["ends"]]
        for interface, peer in zip(link["interfaces"], reversed(ends), strict=True):
            found[interface] = peer
    return found


def network_of_file(path: Path) -> Network:
    """Read a TOML file that names switches and hosts; docs/controller.md shows one.

    Raises
    ------
    ConfigError
        With the file, the place in it and what was expected.
    """
    try:
        described = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    _refuse_strangers(path, "the file", described, {"switch", "host", "link"})
    hosts, attached = {}, {}
    for table in _tables(path, described, "host"):
        name = table.text("name")
        ip, mac = table.ipv4("ip"), table.mac("mac")
        hosts[name] = HostSite(name, ip, mac, table.text("switch"), table.endpoint("send_to"))
        attached[name] = table.number("port", 0, 509)
        table.done()
    switch_tables = {table.text("name"): table for table in _tables(path, described, "switch")}
    links: dict[str, dict[int, str]] = {name: {} for name in switch_tables}
    for table in _tables(path, described, "link"):
        ends = table.get("switches", list), table.get("ports", list)
        if len(ends[0]) != 2 or len(ends[1]) != 2 or any(each not in links for each in ends[0]):
            raise ConfigError(f'{table.where}: expected switches = ["s1", "s2"], ports = [3, 1]')
        for name, port, peer in zip(*ends, reversed(ends[0]), strict=True):
            links[name][port] = peer
        table.done()
    switches = {}
    for name, table in switch_tables.items():
        tls = table.get("tls", dict, {})
        _refuse_strangers(path, f"{table.where}.tls", tls, {"ca", "cert", "key"})
        peers = {attached[host.name]: host.name for host in hosts.values() if host.switch == name}
        switches[name] = SwitchSite(
            name=name,
            p4runtime=table.text("p4runtime"),
            device_id=table.number("device_id", 0, (1 << 64) - 1, 1),
            ip=table.ipv4("ip"),
            mac=table.mac("mac"),
            stations=_stations(name, hosts, attached, links),
            ports={port: PortSite("", peer) for port, peer in sorted((peers | links[name]).items())},
            tls=TlsFiles(**{part: path.parent / file for part, file in tls.items()}),
        )
        table.done()
    return Network(switches, hosts)


def _stations(
    switch: str,
    hosts: Mapping[str, HostSite],
    attached: Mapping[str, int],
    links: Mapping[str, Mapping[int, str]],
) -> dict[str, int]:
    """Return through which port of a switch each host is reached, by the fewest links."""
    first_port: dict[str, int | None] = {switch: None}
    frontier = [switch]
    while frontier:
        here = frontier.pop(0)
        for port, peer in sorted(links[here].items()):
            if peer not in first_port:
                first_port[peer] = port if here == switch else first_port[here]
                frontier.append(peer)
    found = {}
    for name, host in hosts.items():
        via = attached[name] if host.switch == switch else first_port.get(host.switch)
        if via is not None:
            found[host.mac] = via
    return found


class _Table:
    """One table of the file: every value is asked for by what it must be, and what nobody asks for is an error."""

    def __init__(self, path: Path, where: str, held: dict[str, Any]) -> None:
        self.path, self.where, self._held = path, f"{path}: {where}", dict(held)

    def get(self, key: str, kind: type[Any], default: Any = None) -> Any:
        if key not in self._held and default is not None:
            return default
        value = self._held.pop(key, None)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ConfigError(f"{self.where}: expected {key} = {_EXAMPLES[kind]}, not {value!r}")
        return value

    def text(self, key: str) -> str:
        value: str = self._held[key] if key == "name" and isinstance(self._held.get(key), str) else ""
        return value or str(self.get(key, str))

    def number(self, key: str, low: int, high: int, default: int | None = None) -> int:
        value = int(self.get(key, int, default))
        if not low <= value <= high:
            raise ConfigError(f"{self.where}: {key} is {low} to {high}, not {value}")
        return value

    def ipv4(self, key: str) -> str:
        return self._address(key, ipv4_int)

    def mac(self, key: str) -> str:
        return self._address(key, mac_int).lower()

    def endpoint(self, key: str) -> tuple[str, int] | None:
        if key not in self._held:
            return None
        host, _, port = str(self.get(key, str)).rpartition(":")
        try:
            return str(ipaddress.IPv4Address(host)), int(port)
        except ValueError:
            raise ConfigError(f'{self.where}: expected {key} = "127.0.0.1:28275"') from None

    def done(self) -> None:
        self._held.pop("name", None)
        if self._held:
            raise ConfigError(f"{self.where}: there is no {' or '.join(sorted(self._held))} here")

    def _address(self, key: str, check: Any) -> str:
        value = str(self.get(key, str))
        try:
            check(value)
        except ValueError as error:
            raise ConfigError(f"{self.where}: {key}: {error}") from None
        return value


_EXAMPLES = {str: '"text"', int: "a number", list: "a list", dict: "a table"}


def _tables(path: Path, described: dict[str, Any], kind: str) -> list[_Table]:
    held = described.get(kind, [])
    if not isinstance(held, list) or not all(isinstance(each, dict) for each in held):
        raise ConfigError(f"{path}: expected [[{kind}]] tables")
    return [
        _Table(path, f"[[{kind}]] {each.get('name', number)}", each) for number, each in enumerate(held, 1)
    ]


def _refuse_strangers(path: Path, where: str, held: Mapping[str, Any], known: set[str]) -> None:
    if strangers := held.keys() - known:
        raise ConfigError(f"{path}: {where} has no {' or '.join(sorted(strangers))}")
