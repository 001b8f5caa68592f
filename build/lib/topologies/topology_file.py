"""Reads topologies from JSON files in the shape of p4lang's tutorials, and says exactly what is wrong with one.

The shape, its defaults and what the tutorials have that netsum has not: docs/testbed.md.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from ipaddress import AddressValueError, IPv4Address, IPv4Interface, IPv4Network, NetmaskValueError
from pathlib import Path
from typing import Any, TypeVar

from topologies.topology import (
    DEFAULT_MTU,
    MAX_PORT,
    FieldError,
    FlowSpec,
    HostSpec,
    JobSpec,
    LinkEnd,
    LinkSpec,
    SwitchSpec,
    Topology,
    TopologyError,
    check,
)
from topologies.units import parse_latency_ns, parse_loss_ppm, parse_rate_bps

FILES = Path(__file__).with_name("files")
"""The topologies that come with netsum."""

Value = TypeVar("Value")


def shipped_topologies() -> list[str]:
    """Return the names of the topologies that come with netsum."""
    return sorted(path.stem for path in FILES.glob("*.json"))


def load_topology(name_or_path: str) -> Topology:
    """Read a topology that comes with netsum, by name, or any other, by its file's path.

    Raises
    ------
    TopologyError
        There is no such topology, or it is wrong; the message says where.
    """
    path = Path(name_or_path)
    if path.suffix != ".json" and len(path.parts) == 1:
        if name_or_path not in shipped_topologies():
            raise TopologyError(
                f"there is no topology {name_or_path!r}: expected {', '.join(shipped_topologies())}, or a file's path "
                "that ends in .json"
            )
        path = FILES / f"{name_or_path}.json"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise TopologyError(f"cannot read the topology {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise TopologyError(
            f"{path}: expected UTF-8, found byte 0x{error.object[error.start]:02x} at offset {error.start}"
        ) from None
    try:
        return parse_topology(text, path.stem)
    except json.JSONDecodeError as error:
        raise TopologyError(f"{path}, line {error.lineno}, column {error.colno}: {error.msg}") from None
    except FieldError as error:
        raise TopologyError(f"{path}: {error}") from None


def parse_topology(text: str, name: str) -> Topology:
    """Read a topology from a file's text.

    Raises
    ------
    json.JSONDecodeError
        It is not JSON.
    FieldError
        It is JSON, but not a topology.
    """
    whole = _Object("", json.loads(text, object_pairs_hook=_without_duplicates))
    whole.only(
        "description",
        "mtu",
        "hosts",
        "switches",
        "links",
        "jobs",
        "traffic",
        required=("hosts", "switches", "links"),
    )
    hosts = {one.key: _host(one) for one in whole.members("hosts")}
    switches = _switches(whole, hosts)
    traffic = tuple(_flow(one) for one in whole.items("traffic"))
    return check(
        Topology(
            name=name,
            hosts=hosts,
            switches=switches,
            links=tuple(_link(place, link, hosts, switches) for place, link in whole.elements("links")),
            jobs=_jobs(whole, hosts, switches, traffic),
            traffic=traffic,
            mtu=whole.get("mtu", _mtu, DEFAULT_MTU),
            description=whole.get("description", _text, ""),
        )
    )


class _Object:
    """A JSON object and its place in the file."""

    def __init__(self, place: str, found: object) -> None:
        self.place = place
        self.key = place.rpartition(".")[2]
        if not isinstance(found, dict):
            raise FieldError(place or "the file", f"expected an object, {{…}}, found {_shown(found)}")
        self._found: Mapping[str, Any] = found

    def only(self, *known: str, required: Sequence[str] = ()) -> None:
        for key in self._found:
            if key not in known:
                raise FieldError(self._at(key), f"unknown; expected {', '.join(known)}")
        for key in required:
            if key not in self._found:
                raise FieldError(self._at(key), "missing")

    def get(self, key: str, read: Callable[[object], Value], default: Value) -> Value:
        """Read a member by a function that raises ValueError with what it expected."""
        if key not in self._found:
            return default
        return _read(self._at(key), self._found[key], read)

    def need(self, key: str, read: Callable[[object], Value]) -> Value:
        if key not in self._found:
            raise FieldError(self._at(key), "missing")
        return _read(self._at(key), self._found[key], read)

    def members(self, key: str) -> Iterator["_Object"]:
        """Read a member that is an object of objects."""
        if key in self._found:
            for name, one in _Object(self._at(key), self._found[key])._found.items():
                yield _Object(f"{self._at(key)}.{name}", one)

    def elements(self, key: str) -> Iterator[tuple[str, object]]:
        """Read a member that is a list, each with its place."""
        found = self._found.get(key, [])
        if not isinstance(found, list):
            raise FieldError(self._at(key), f"expected a list, […], found {_shown(found)}")
        for at, one in enumerate(found):
            yield f"{self._at(key)}[{at}]", one

    def items(self, key: str) -> Iterator["_Object"]:
        """Read a member that is a list of objects."""
        for place, one in self.elements(key):
            yield _Object(place, one)

    def _at(self, key: str) -> str:
        return f"{self.place}.{key}" if self.place else key


def _host(one: _Object) -> HostSpec:
    one.only("ip", "mac", "commands", required=("ip",))
    address = one.need("ip", _interface)
    return HostSpec(
        name=one.key,
        address=address,
        mac=one.get("mac", _mac, _mac_of(address.ip)),
        commands=tuple(_read(place, command, _text) for place, command in one.elements("commands")),
    )


def _switches(whole: _Object, hosts: Mapping[str, HostSpec]) -> dict[str, SwitchSpec]:
    taken = {host.address.ip for host in hosts.values()}
    free = (
        address
        for host in list(hosts.values())[:1]
        for address in _addresses_from_above(host.address.network)
        if address not in taken
    )
    switches = {}
    for number, one in enumerate(whole.members("switches"), start=1):
        one.only("ip", "mac", "device_id")
        ip = one.get("ip", _address, None) or next(free, None)
        if ip is None:
            raise FieldError(f"{one.place}.ip", "missing, and the hosts' subnet has no address left")
        taken.add(ip)
        switches[one.key] = SwitchSpec(
            name=one.key,
            ip=ip,
            mac=one.get("mac", _mac, _mac_of(ip)),
            device_id=one.get("device_id", _device_id, number),
        )
    return switches


def _addresses_from_above(network: IPv4Network) -> Iterator[IPv4Address]:
    """Iterate over the addresses that hosts of a network may have, the highest first; a network may have millions."""
    if network.prefixlen >= 31:
        yield from reversed(list(network.hosts()))
        return
    for address in range(int(network.broadcast_address) - 1, int(network.network_address), -1):
        yield IPv4Address(address)


def _link(
    place: str, found: object, hosts: Mapping[str, HostSpec], switches: Mapping[str, SwitchSpec]
) -> LinkSpec:
    """Read a link: ``["h1", "s1-p1", LATENCY, BANDWIDTH]``, the last two optional, or an object with more."""
    if isinstance(found, list):
        if not 2 <= len(found) <= 4:
            raise FieldError(place, f"expected [end, end, latency, bandwidth], found {_shown(found)}")
        names = (f"{place}[0]", f"{place}[1]")
        fields = _Object(place, dict(zip(("latency", "bandwidth"), found[2:], strict=False)))
        ends = found[:2]
    else:
        fields = _Object(place, found)
        fields.only("ends", "latency", "bandwidth", "loss", "queue", required=("ends",))
        ends = fields.need("ends", _pair)
        names = (f"{place}.ends[0]", f"{place}.ends[1]")
    one, other = (_end(name, end, hosts, switches) for name, end in zip(names, ends, strict=True))
    if one.port is not None and other.port is None:
        one, other = other, one
    if other.port is None:
        raise FieldError(place, "expected a switch's port at one end at least, found two hosts")
    rate_bps = fields.get("bandwidth", _rate_or_none, None)
    queue_pkts = fields.get("queue", _queue, None)
    if queue_pkts is not None and rate_bps is None:
        raise FieldError(
            f"{place}.queue", "expected a bandwidth beside it: nothing waits before a link without one"
        )
    return LinkSpec(
        ends=(one, other),
        latency_ns=fields.get("latency", parse_latency_ns, 0),
        rate_bps=rate_bps,
        loss_ppm=fields.get("loss", parse_loss_ppm, 0),
        queue_pkts=queue_pkts,
    )


def _end(
    place: str, found: object, hosts: Mapping[str, HostSpec], switches: Mapping[str, SwitchSpec]
) -> LinkEnd:
    if isinstance(found, str):
        if found in hosts:
            return LinkEnd(found)
        node, _, port = found.partition("-p")
        if node in switches and port.isascii() and port.isdigit() and 1 <= int(port) <= MAX_PORT:
            return LinkEnd(node, int(port))
    raise FieldError(
        place, f'expected a host or a switch\'s port 1 to {MAX_PORT}, as in "s1-p1", found {_shown(found)}'
    )


def _jobs(
    whole: _Object,
    hosts: Mapping[str, HostSpec],
    switches: Mapping[str, SwitchSpec],
    traffic: Sequence[FlowSpec],
) -> dict[str, JobSpec]:
    switch = next(iter(switches), "")
    jobs = {}
    for one in whole.members("jobs"):
        one.only("hosts", "switch", required=("hosts",))
        names = tuple(_read(place, name, _text) for place, name in one.elements("hosts"))
        jobs[one.key] = JobSpec(one.key, names, one.get("switch", _text, switch))
    if not jobs:
        busy = {host for flow in traffic for host in (flow.source, flow.target)}
        jobs["all"] = JobSpec("all", tuple(name for name in hosts if name not in busy), switch)
    return jobs


def _flow(one: _Object) -> FlowSpec:
    one.only("from", "to", "rate", required=("from", "to", "rate"))
    return FlowSpec(one.need("from", _text), one.need("to", _text), one.need("rate", parse_rate_bps))


def _read(place: str, found: object, read: Callable[[object], Value]) -> Value:
    try:
        return read(found)
    except ValueError as error:
        raise FieldError(place, f"expected {error}, found {_shown(found)}") from None


def _text(found: object) -> str:
    if not isinstance(found, str):
        raise ValueError("a text")
    return found


def _interface(found: object) -> IPv4Interface:
    expected = 'an IPv4 address with the length of its prefix, as in "10.0.0.1/24"'
    if not isinstance(found, str) or "/" not in found:
        raise ValueError(expected)
    try:
        return IPv4Interface(found)
    except (AddressValueError, NetmaskValueError):
        raise ValueError(expected) from None


def _address(found: object) -> IPv4Address | None:
    try:
        return IPv4Address(_text(found))
    except ValueError:
        raise ValueError('an IPv4 address, as in "10.0.0.254"') from None


def _mac(found: object) -> str:
    parts = found.split(":") if isinstance(found, str) else []
    digits = "0123456789abcdef"
    if len(parts) != 6 or any(len(part) != 2 or set(part.lower()) - set(digits) for part in parts):
        raise ValueError('an Ethernet address, as in "02:00:0a:00:00:01"')
    if int(parts[0], 16) & 1:
        raise ValueError("the Ethernet address of one station, with an even first byte")
    return str(found).lower()


def _mac_of(ip: IPv4Address) -> str:
    """Return a locally administered Ethernet address that tells the IPv4 address, as Mininet's tools do."""
    return ":".join(f"{byte:02x}" for byte in (2, 0, *ip.packed))


def _mtu(found: object) -> int:
    return _integer(found, 576, 65535, "an MTU between 576 and 65535 bytes")


def _queue(found: object) -> int:
    return _integer(found, 1, 1_000_000, "a number of packets between 1 and 1000000")


def _device_id(found: object) -> int:
    return _integer(found, 0, 2**63, "a P4Runtime device id from 0")


def _integer(found: object, least: int, most: int, expected: str) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or not least <= found <= most:
        raise ValueError(expected)
    return found


def _rate_or_none(found: object) -> int | None:
    return parse_rate_bps(found)


def _pair(found: object) -> list[object]:
    if not isinstance(found, list) or len(found) != 2:
        raise ValueError('a list of two ends, as in ["h1", "s1-p1"]')
    return found


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Refuse what JSON's readers pass over: the first of two members of one name."""
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise FieldError(twice, "expected once, found twice in one object")
    return found


def _shown(found: object) -> str:
    text = json.dumps(found, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"
