"""The TOML file that names a controller's switches and hosts."""

import ipaddress
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from topologies.spanning_tree import spanning_tree

from controller.errors import ConfigError
from controller.service.network import HostSite, Network, PortSite, SwitchSite
from controller.targets.tofino import front_panel_ports
from netsum_common.channel import ChannelError, TlsFiles, check_target
from netsum_common.errors import unknown_keys
from topologies.addresses import ipv4_int, mac_int

LAST_PORT = 509  # The last port of a v1model switch; 510 is the CPU, 511 drops.


def network_of_file(path: Path) -> Network:
    """Read a TOML file that names switches and hosts; docs/controller.md shows one.

    Raises ConfigError that names the file, the place in the file and the expected value.
    """
    try:
        described = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    _refuse_unknown_keys(str(path), described, _KEYS)
    switch_tables = _named(_tables(path, described, "switch"))
    panels = {name: _Panel(name, table) for name, table in switch_tables.items()}
    hosts: dict[str, HostSite] = {}
    attached: dict[str, int] = {}
    for name, table in _named(_tables(path, described, "host")).items():
        switch = table.text("switch")
        if switch not in panels:
            raise ConfigError(
                f"{table.where}: there is no switch {switch}: the switches are {', '.join(panels) or 'none'}"
            )
        ip, mac = table.ipv4("ip"), table.mac("mac")
        if ip in (host.ip for host in hosts.values()):
            raise ConfigError(
                f"{table.where}: ip: another host also has {ip}, but the controller identifies workers by their address"
            )
        hosts[name] = HostSite(name, ip, mac, switch, table.endpoint("send_to"))
        attached[name] = table.port(panels[switch])
    links: dict[str, dict[int, str]] = {name: {} for name in switch_tables}
    pairs: list[tuple[str, str]] = []
    ends_of: list[list[tuple[str, int]]] = []
    for table in _tables(path, described, "link"):
        ends = table.get("switches", list), table.get("ports", list)
        if len(ends[0]) != 2 or len(ends[1]) != 2 or any(each not in list(links) for each in ends[0]):
            raise ConfigError(
                f'{table.where}: expected switches = ["s1", "s2"], which the file has, and ports = [3, 1]'
            )
        if ends[0][0] == ends[0][1]:
            raise ConfigError(f"{table.where}: a link joins two switches, not {ends[0][0]} with itself")
        pairs.append((ends[0][0], ends[0][1]))
        ends_of.append([])
        for name, port, peer in zip(*ends, reversed(ends[0]), strict=True):
            number = panels[name].number(port, table.where)
            users = [
                host.name for host in hosts.values() if (host.switch, attached[host.name]) == (name, number)
            ]
            if users or number in links[name]:
                other = users[0] if users else links[name][number]
                raise ConfigError(f"{table.where}: port {port} of switch {name} leads to {other} already")
            links[name][number] = peer
            ends_of[-1].append((name, number))
    tree = spanning_tree(switch_tables, pairs)
    spare = {end for number, both in enumerate(ends_of) if number not in tree for end in both}
    switches = {}
    for name, table in switch_tables.items():
        tls = table.get("tls", dict, {})
        _refuse_unknown_keys(f"{table.where}.tls", tls, ("ca", "cert", "key"))
        if not all(isinstance(file, str) for file in tls.values()):
            raise ConfigError(f'{table.where}.tls: expected files such as ca = "ca.pem", not {tls!r}')
        peers = {attached[host.name]: host.name for host in hosts.values() if host.switch == name}
        switches[name] = SwitchSite(
            name=name,
            p4runtime=table.target("p4runtime"),
            device_id=table.device_id(),
            ip=table.ipv4("ip"),
            mac=table.mac("mac"),
            stations=_stations(name, hosts, attached, links),
            ports={
                port: PortSite(panels[name].name(port), peer)
                for port, peer in sorted((peers | links[name]).items())
            },
            spare_ports=frozenset(port for end, port in spare if end == name),
            tls=TlsFiles(**{part: path.parent / file for part, file in tls.items()}),
        )
    return Network(switches, hosts)


class _Panel:
    """The ports of a switch, by number or, if the file names an output of ``pm show``, by their names on the front panel."""

    def __init__(self, switch: str, table: "_Table") -> None:
        self._switch = switch
        self._source = table.get("pm_show", str, "")
        self._ports: Mapping[str, int] = {}
        if self._source:
            file = table.path.parent / self._source
            try:
                self._ports = front_panel_ports(file.read_text(encoding="utf-8"))
            except OSError as error:
                raise ConfigError(f"{table.where}: pm_show: cannot read {file}: {error.strerror}") from None
            except ValueError as error:  # UnicodeDecodeError is one.
                raise ConfigError(f"{table.where}: pm_show: {file}: {error}") from None
        self._names = {port: name for name, port in self._ports.items()}

    def number(self, written: Any, where: str) -> int:
        """Return the number of a port as P4Runtime knows it."""
        if isinstance(written, str):
            if not self._source:
                raise ConfigError(
                    f"{where}: port {written!r} is a name on the front panel: save what `pm show` prints in the driver's "
                    f'shell, and name that file by pm_show = "FILE" for switch {self._switch}; or give the number'
                )
            if written not in self._ports:
                raise ConfigError(
                    f"{where}: switch {self._switch} has no port {written!r}, {self._source} has {', '.join(self._ports)}"
                )
            return self._ports[written]
        if not isinstance(written, int) or isinstance(written, bool) or not 0 <= written <= LAST_PORT:
            raise ConfigError(
                f'{where}: expected a port such as 3, 0 to {LAST_PORT}, or "5/0" as on the front panel, not {written!r}'
            )
        return written

    def name(self, port: int) -> str:
        """Return a port's name on the front panel; empty if it is not known."""
        return self._names.get(port, "")


def _stations(
    switch: str,
    hosts: Mapping[str, HostSite],
    attached: Mapping[str, int],
    links: Mapping[str, Mapping[int, str]],
) -> dict[str, int]:
    """Return the port by which a switch reaches each host over the fewest links, by the host's MAC address."""
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
    """One table of the file: each value is read with its expected type."""

    def __init__(self, path: Path, where: str, held: dict[str, Any]) -> None:
        self.path, self.where, self._held = path, f"{path}: {where}", held

    def get(self, key: str, kind: type[Any], default: Any = None) -> Any:
        if key not in self._held and default is not None:
            return default
        value = self._held.get(key)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ConfigError(f"{self.where}: expected {key} = {_EXAMPLES[kind]}, not {value!r}")
        return value

    def text(self, key: str) -> str:
        return str(self.get(key, str))

    def port(self, panel: "_Panel") -> int:
        return panel.number(self._held.get("port"), self.where)

    def device_id(self) -> int:
        value = int(self.get("device_id", int, 1))
        if not 0 <= value < 1 << 64:
            raise ConfigError(f"{self.where}: device_id is 0 to {(1 << 64) - 1}, not {value}")
        return value

    def ipv4(self, key: str) -> str:
        return self._address(key, ipv4_int)

    def mac(self, key: str) -> str:
        return self._address(key, mac_int).lower()

    def target(self, key: str) -> str:
        return self._address(key, check_target)

    def endpoint(self, key: str) -> tuple[str, int] | None:
        if key not in self._held:
            return None
        host, _, port = str(self.get(key, str)).rpartition(":")
        try:
            if port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16:
                return str(ipaddress.IPv4Address(host)), int(port)
        except ValueError:
            pass
        raise ConfigError(f'{self.where}: expected {key} = "127.0.0.1:28275"')

    def _address(self, key: str, check: Any) -> str:
        value = str(self.get(key, str))
        try:
            check(value)
        except (ValueError, ChannelError) as error:
            raise ConfigError(f"{self.where}: {key}: {error}") from None
        return value


_KEYS = {
    "switch": ("name", "p4runtime", "device_id", "ip", "mac", "pm_show", "tls"),
    "host": ("name", "ip", "mac", "switch", "port", "send_to"),
    "link": ("name", "switches", "ports"),
}
_EXAMPLES = {str: '"text"', int: "a number", list: "a list", dict: "a table"}


def _tables(path: Path, described: dict[str, Any], kind: str) -> list[_Table]:
    held = described.get(kind, [])
    if not isinstance(held, list) or not all(isinstance(each, dict) for each in held):
        raise ConfigError(f"{path}: expected [[{kind}]] tables")
    tables = []
    for number, each in enumerate(held, 1):
        table = _Table(path, f"[[{kind}]] {each.get('name', number)}", each)
        _refuse_unknown_keys(table.where, each, _KEYS[kind])
        tables.append(table)
    return tables


def _named(tables: list[_Table]) -> dict[str, _Table]:
    found: dict[str, _Table] = {}
    for table in tables:
        name = table.text("name")
        if name in found:
            raise ConfigError(f"{table.where}: this name is used twice")
        found[name] = table
    return found


def _refuse_unknown_keys(where: str, held: Mapping[str, Any], known: Iterable[str]) -> None:
    if sentence := unknown_keys(held, known):
        raise ConfigError(f"{where}: {sentence}")
