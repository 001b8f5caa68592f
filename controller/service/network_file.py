"""The TOML file that names a controller's switches and hosts."""

import ipaddress
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from controller.errors import ConfigError
from controller.service.network import ControlledNetwork, HostSite, switch_site
from netsum_common.channel import ChannelError, TlsFiles, check_target
from netsum_common.targets.tofino import front_panel_ports
from topologies.fields import (
    FieldError,
    Fields,
    integer_field,
    ipv4_field,
    mac_field,
    parse_toml,
    read_text,
    text_field,
)
from topologies.topology import MAX_PORT, HostSpec, LinkEnd, LinkSpec, SwitchSpec, Topology

_KEYS: Final = {
    "switch": ("name", "p4runtime", "device_id", "ip", "mac", "pm_show", "tls"),
    "host": ("name", "ip", "mac", "switch", "port", "send_to"),
    "link": ("name", "switches", "ports"),
}
_LAST_DEVICE_ID: Final = (1 << 64) - 1


def network_of_file(path: Path) -> ControlledNetwork:
    """Read a TOML file that names switches and hosts; docs/controller.md shows one.

    Raises ConfigError that names the file, the place in the file and the expected value.
    """
    try:
        whole = Fields("", parse_toml(read_text(path)), form="a table")
        whole.only(*_KEYS)
        return _network(whole, path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    except FieldError as error:
        raise ConfigError(error.in_file(path)) from None


def _network(whole: Fields, path: Path) -> ControlledNetwork:
    switches = _named(whole, "switch")
    panels = {name: _Panel(name, table, path.parent) for name, table in switches.items()}
    specs = {
        name: SwitchSpec(
            name,
            table.need("ip", ipv4_field),
            table.need("mac", mac_field),
            table.get("device_id", _device_id, 1),
        )
        for name, table in switches.items()
    }
    hosts = _named(whole, "host")
    stations: dict[str, HostSpec] = {}
    links = []
    for name, table in hosts.items():
        switch = table.need("switch", text_field)
        if switch not in switches:
            names = ", ".join(switches) or "none"
            raise FieldError(table.place, f"there is no switch {switch}: the switches are {names}")
        ip = table.need("ip", ipv4_field)
        if any(ip == host.ip for host in stations.values()):
            raise FieldError(
                f"{table.place}: ip",
                f"another host also has {ip}, but the controller identifies workers by their address",
            )
        stations[name] = HostSpec(name, ip, table.need("mac", mac_field))
        port = panels[switch].number(table.get("port", _as_it_is, None), table.place)
        links.append(LinkSpec((LinkEnd(name), LinkEnd(switch, port))))
    for table in _tables(whole, "link"):
        links.append(_link(table, panels, links))
    topology = Topology(path.stem, stations, specs, tuple(links))
    return ControlledNetwork(
        {
            name: switch_site(
                topology,
                name,
                table.need("p4runtime", _target),
                names=panels[name].names,
                tls=_tls(table, path.parent),
            )
            for name, table in switches.items()
        },
        {
            host.name: HostSite(
                host.name,
                host.ip,
                host.mac,
                topology.place(host.name)[0],
                hosts[host.name].get("send_to", _endpoint, None),
            )
            for host in stations.values()
        },
    )


def _link(table: Fields, panels: Mapping[str, "_Panel"], earlier: list[LinkSpec]) -> LinkSpec:
    """Read a link between two switches; refuse a port that an earlier link uses."""
    switches, ports = table.get("switches", _as_it_is, None), table.get("ports", _as_it_is, None)
    pairs = all(isinstance(each, list) and len(each) == 2 for each in (switches, ports))
    if not pairs or any(each not in list(panels) for each in switches):
        raise FieldError(
            table.place, 'expected switches = ["s1", "s2"], which the file has, and ports = [3, 1]'
        )
    if switches[0] == switches[1]:
        raise FieldError(table.place, f"a link joins two switches, not {switches[0]} with itself")
    ends = []
    for name, port in zip(switches, ports, strict=True):
        end = LinkEnd(name, panels[name].number(port, table.place))
        for link in earlier:
            if end in link.ends:
                other = link.ends[link.ends[0] == end].node
                raise FieldError(table.place, f"port {port} of switch {name} leads to {other} already")
        ends.append(end)
    return LinkSpec((ends[0], ends[1]))


def _tls(table: Fields, folder: Path) -> TlsFiles:
    place = f"{table.place}.tls"
    tls = Fields(place, table.get("tls", _as_it_is, {}), form="a table")
    tls.only("ca", "cert", "key")
    files = {key: tls.get(key, _as_it_is, None) for key in tls.keys}
    if not all(isinstance(file, str) for file in files.values()):
        raise FieldError(place, f'expected files such as ca = "ca.pem", not {files!r}')
    return TlsFiles(**{key: folder / file for key, file in files.items()})


class _Panel:
    """The ports of a switch, by number or, if `pm_show` names a saved output of ``pm show``, by front-panel name."""

    def __init__(self, switch: str, table: Fields, folder: Path) -> None:
        self._switch = switch
        self._source = table.get("pm_show", text_field, "")
        self._ports: Mapping[str, int] = {}
        if self._source:
            file = folder / self._source
            try:
                self._ports = front_panel_ports(file.read_text(encoding="utf-8"))
            except OSError as error:
                raise FieldError(table.place, f"pm_show: cannot read {file}: {error.strerror}") from None
            except ValueError as error:  # UnicodeDecodeError is one.
                raise FieldError(table.place, f"pm_show: {file}: {error}") from None
        self.names = {
            port: name for name, port in self._ports.items()
        }  # Front-panel names by port number, where known.

    def number(self, written: object, place: str) -> int:
        """Return the P4Runtime number of a port."""
        if isinstance(written, str):
            if not self._source:
                raise FieldError(
                    place,
                    f"port {written!r} is a name on the front panel: save what `pm show` prints in the driver's shell, and "
                    f'name that file by pm_show = "FILE" for switch {self._switch}; or give the number',
                )
            if written not in self._ports:
                raise FieldError(
                    place,
                    f"switch {self._switch} has no port {written!r}, {self._source} has {', '.join(self._ports)}",
                )
            return self._ports[written]
        if not isinstance(written, int) or isinstance(written, bool) or not 0 <= written <= MAX_PORT:
            raise FieldError(
                place,
                f'expected a port such as 3, 0 to {MAX_PORT}, or "5/0" as on the front panel, not {written!r}',
            )
        return written


def _tables(whole: Fields, kind: str) -> Iterator[Fields]:
    held = whole.get(kind, _as_it_is, None) or []
    if not isinstance(held, list) or not all(isinstance(each, dict) for each in held):
        raise FieldError("", f"expected [[{kind}]] tables")
    for number, each in enumerate(held, 1):
        table = Fields(f"[[{kind}]] {each.get('name', number)}", each, form="a table", joint=": ")
        table.only(*_KEYS[kind])
        yield table


def _named(whole: Fields, kind: str) -> dict[str, Fields]:
    found: dict[str, Fields] = {}
    for table in _tables(whole, kind):
        name = table.need("name", text_field)
        if name in found:
            raise FieldError(table.place, "this name is used twice")
        found[name] = table
    return found


def _as_it_is(found: Any) -> Any:
    return found


def _device_id(found: object) -> int:
    return integer_field(found, 0, _LAST_DEVICE_ID, f"a P4Runtime device id, 0 to {_LAST_DEVICE_ID}")


def _target(found: object) -> str:
    try:
        check_target(text := text_field(found))
    except ChannelError as error:
        raise ValueError(str(error).removeprefix("expected ")) from None
    return text


def _endpoint(found: object) -> tuple[str, int]:
    host, _, port = text_field(found).rpartition(":")
    try:
        if port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16:
            return str(ipaddress.IPv4Address(host)), int(port)
    except ValueError:
        pass
    raise ValueError('an IPv4 address and a UDP port such as "127.0.0.1:28275"')
