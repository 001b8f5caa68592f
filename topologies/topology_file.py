"""Topologies in JSON files of the format of p4lang's tutorials; errors name the place in the file.

docs/testbed.md describes the format and its defaults.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import AddressValueError, IPv4Address, IPv4Interface, IPv4Network, NetmaskValueError
from pathlib import Path

from topologies.addresses import mac_int, mac_of, switch_ip
from topologies.fields import (
    FieldError,
    Fields,
    integer_field,
    integers,
    ipv4_field,
    mac_field,
    read_field,
    read_json,
    shown,
    text_field,
)
from topologies.topology import (
    CPU_PORT,
    DEFAULT_MTU,
    MAX_PORT,
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

_MTU = integers(576, 65535, "an MTU between 576 and 65535 bytes")
_QUEUE = integers(1, 1_000_000, "a number of packets between 1 and 1000000")
_DEVICE_ID = integers(0, 2**63, "a P4Runtime device id from 0")
FILES = Path(__file__).with_name("files")  # The topologies that come with netsum.


def shipped_topologies() -> list[str]:
    """Return the names of the topologies that come with netsum."""
    return sorted(path.stem for path in FILES.glob("*.json"))


def topology_path(name_or_path: str) -> Path:
    """Return the path of a topology's file, which need not exist."""
    path = Path(name_or_path)
    return FILES / f"{path}.json" if path.suffix != ".json" and len(path.parts) == 1 else path


def load_topology(name_or_path: str) -> Topology:
    """Read a topology: one that comes with netsum by its name, any other by its file's path.

    Raises TopologyError if there is no such topology, or its file has an error; the message names the place.
    """
    path = topology_path(name_or_path)
    if path.parent == FILES and not path.is_file():
        raise TopologyError(
            f"there is no topology {name_or_path!r}: expected {', '.join(shipped_topologies())}, or a file's path "
            "that ends in .json"
        )
    try:
        return _topology(read_json(path), path.stem)
    except OSError as error:
        raise TopologyError(f"cannot read the topology {path}: {error.strerror}") from None
    except FieldError as error:
        raise TopologyError(error.in_file(path)) from None


def _topology(whole: Fields, name: str) -> Topology:
    """Read a topology from the object that its file holds."""
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
            mtu=whole.get("mtu", _MTU, DEFAULT_MTU),
            description=whole.get("description", text_field, ""),
        )
    )


def _host(one: Fields) -> HostSpec:
    one.only("ip", "mac", "commands", required=("ip",))
    address = one.need("ip", _interface)
    ip = str(address.ip)
    return HostSpec(
        name=one.key,
        ip=ip,
        mac=one.get("mac", _mac, mac_of(ip)),
        prefix_length=address.network.prefixlen,
        commands=tuple(read_field(place, command, text_field) for place, command in one.elements("commands")),
    )


def _switches(whole: Fields, hosts: Mapping[str, HostSpec]) -> dict[str, SwitchSpec]:
    taken = {host.ip for host in hosts.values()}
    networks = dict.fromkeys(
        IPv4Network((host.ip, host.prefix_length), strict=False) for host in hosts.values()
    )
    free = (ip for each in networks for ip in _addresses_from_above(each) if ip not in taken)
    switches = {}
    for number, one in enumerate(whole.members("switches"), start=1):
        one.only("ip", "mac", "device_id", "cpu_port", "program", "p4info", "runtime_json")
        ip = one.get("ip", _address, None) or next(free, None)
        if ip is None:
            raise FieldError(f"{one.place}.ip", "missing, and the hosts' subnets have no address left")
        taken.add(ip)
        switches[one.key] = SwitchSpec(
            name=one.key,
            ip=ip,
            mac=one.get("mac", _mac, mac_of(ip)),
            device_id=one.get("device_id", _DEVICE_ID, number),
            cpu_port=one.get("cpu_port", _cpu_port, CPU_PORT),
            program=one.get("program", text_field, ""),
            p4info=one.get("p4info", text_field, ""),
            runtime_json=one.get("runtime_json", text_field, ""),
        )
    return switches


def _addresses_from_above(network: IPv4Network) -> Iterator[str]:
    """Iterate over the addresses that hosts of a network may have, the highest first; a network may have millions."""
    if network.prefixlen >= 31:
        yield from map(str, reversed(list(network.hosts())))
        return
    for number in range(1, network.num_addresses - 1):
        yield switch_ip(network, number)


def _link(
    place: str, found: object, hosts: Mapping[str, HostSpec], switches: Mapping[str, SwitchSpec]
) -> LinkSpec:
    """Read a link: ``["h1", "s1-p1", LATENCY, BANDWIDTH]``, the last two optional, or an object with more."""
    if isinstance(found, list):
        if not 2 <= len(found) <= 4:
            raise FieldError(place, f"expected [end, end, latency, bandwidth], found {shown(found)}")
        names = (f"{place}[0]", f"{place}[1]")
        fields = Fields(place, dict(zip(("latency", "bandwidth"), found[2:], strict=False)))
        ends = found[:2]
    else:
        fields = Fields(place, found)
        fields.only("ends", "latency", "bandwidth", "loss", "queue", required=("ends",))
        ends = fields.need("ends", _pair)
        names = (f"{place}.ends[0]", f"{place}.ends[1]")
    one, other = (_end(name, end, hosts, switches) for name, end in zip(names, ends, strict=True))
    if one.port is not None and other.port is None:
        one, other = other, one
    if other.port is None:
        raise FieldError(place, "expected a switch's port at one end at least, found two hosts")
    rate_bps: int | None = fields.get("bandwidth", parse_rate_bps, None)
    queue_pkts: int | None = fields.get("queue", _QUEUE, None)
    if queue_pkts is not None and rate_bps is None:
        raise FieldError(f"{place}.queue", "expected a bandwidth beside it: a link without one has no queue")
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
        if node in switches and re.fullmatch("[0-9]{1,9}", port) and 1 <= int(port) <= MAX_PORT:
            return LinkEnd(node, int(port))
    raise FieldError(
        place, f'expected a host or a switch\'s port 1 to {MAX_PORT}, as in "s1-p1", found {shown(found)}'
    )


def _jobs(
    whole: Fields,
    hosts: Mapping[str, HostSpec],
    switches: Mapping[str, SwitchSpec],
    traffic: Sequence[FlowSpec],
) -> dict[str, JobSpec]:
    switch = next(iter(switches)) if len(switches) == 1 else ""
    jobs = {}
    for one in whole.members("jobs"):
        one.only("hosts", "switch", required=("hosts",))
        names = tuple(read_field(place, name, text_field) for place, name in one.elements("hosts"))
        jobs[one.key] = JobSpec(one.key, names, one.get("switch", text_field, switch))
    if not jobs:
        busy = {host for flow in traffic for host in (flow.source, flow.target)}
        jobs["all"] = JobSpec("all", tuple(name for name in hosts if name not in busy), switch)
    return jobs


def _flow(one: Fields) -> FlowSpec:
    one.only("from", "to", "rate", required=("from", "to", "rate"))
    return FlowSpec(
        one.need("from", text_field), one.need("to", text_field), one.need("rate", parse_rate_bps)
    )


def _interface(found: object) -> IPv4Interface:
    expected = 'an IPv4 address with the length of its prefix, as in "10.0.0.1/24"'
    if not isinstance(found, str) or "/" not in found:
        raise ValueError(expected)
    try:
        address = IPv4Interface(found)
    except (AddressValueError, NetmaskValueError):
        raise ValueError(expected) from None
    _station(address.ip)
    network = address.network
    if network.prefixlen < 31 and address.ip in (network.network_address, network.broadcast_address):
        raise ValueError(f"the address of a host, neither the first nor the last of {network}")
    return address


def _address(found: object) -> str | None:
    ip = ipv4_field(found)
    _station(IPv4Address(ip))
    return ip


def _station(ip: IPv4Address) -> None:
    """Refuse an address that no host can have: multicast, loopback, unspecified or reserved."""
    if ip.is_multicast or ip.is_loopback or ip.is_unspecified or ip.is_reserved:
        raise ValueError('the IPv4 address of a station on a network, as in "10.0.0.1"')


def _mac(found: object) -> str:
    mac = mac_field(found)
    if mac_int(mac) >> 40 & 1:
        raise ValueError("the MAC address of one station, with an even first byte")
    return mac


def _cpu_port(found: object) -> int:
    """Read the port of the controller, which p4lang's tutorials write as a string."""
    number = int(found) if isinstance(found, str) and re.fullmatch("[0-9]{1,9}", found) else found
    return integer_field(number, 1, CPU_PORT, f"a port between 1 and {CPU_PORT}")


def _pair(found: object) -> list[object]:
    if not isinstance(found, list) or len(found) != 2:
        raise ValueError('a list of two ends, as in ["h1", "s1-p1"]')
    return found
