"""Networks generated from a few numbers: a star, a dumbbell, leaves and spines, a fat tree, pods.

Hosts are named ``h1``, ``h2`` and so on. Hosts have the lowest addresses of their subnet, switches the highest. Each switch
numbers its ports from 1 in the order of its links.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Network
from typing import Final

from topologies.addresses import host_ip, mac_of, switch_ip
from topologies.topology import (
    MAX_PORT,
    HostSpec,
    JobSpec,
    LinkEnd,
    LinkSpec,
    SwitchSpec,
    Topology,
    TopologyError,
)

MAX_HOSTS: Final = 1 << 17
MAX_SWITCHES: Final = (1 << 16) - 1
MAX_FAT_TREE_PORTS: Final = 80  # With 82 ports, there are more than MAX_HOSTS hosts.
_SMALL, _LARGE = IPv4Network("10.0.0.0/24"), IPv4Network("10.0.0.0/8")

Pairs = Iterable[tuple[str, str]]


def network(name: str, hosts: int, switches: Sequence[str], pairs: Pairs, adds: str = "") -> Topology:
    """Return a network of hosts ``h1`` … and switches.

    `pairs`: the two nodes of each link; a host comes first. `adds`: the switch that adds; empty: the first.
    """
    _check_hosts(hosts)
    specs = addressed([f"h{number}" for number in range(1, hosts + 1)], switches)
    taken: Counter[str] = Counter()

    def end(node: str) -> LinkEnd:
        taken[node] += 1
        return LinkEnd(node, None if node in specs[0] else taken[node])

    links = tuple(LinkSpec((end(one), end(other))) for one, other in pairs)
    return Topology(name, *specs, links, {"all": JobSpec("all", tuple(specs[0]), adds or switches[0])})


def addressed(
    hosts: Sequence[str], switches: Sequence[str]
) -> tuple[dict[str, HostSpec], dict[str, SwitchSpec]]:
    """Return hosts and switches of the given names; their addresses are in one subnet that has room for all."""
    subnet = _SMALL if len(hosts) + len(switches) < _SMALL.num_addresses - 1 else _LARGE
    ips = {host: host_ip(subnet, number) for number, host in enumerate(hosts, 1)}
    specs = {}
    for number, switch in enumerate(switches, 1):
        ip = switch_ip(subnet, number)
        specs[switch] = SwitchSpec(switch, ip, mac_of(ip), number)
    return {host: HostSpec(host, ip, mac_of(ip), subnet.prefixlen) for host, ip in ips.items()}, specs


def _check_hosts(hosts: int) -> None:
    if not 1 <= hosts <= MAX_HOSTS:
        raise TopologyError(f"hosts: expected 1 to {MAX_HOSTS}, found {hosts}")


def _check_ports(name: str, ports: int) -> None:
    if ports > MAX_PORT:
        raise TopologyError(f"{name}: expected at most {MAX_PORT} links at a switch, found {ports}")


def _racks(hosts: int, switches: Sequence[str]) -> Pairs:
    """Iterate over the links of hosts to switches; each switch gets the same number of successive hosts."""
    return ((f"h{number + 1}", switches[number * len(switches) // hosts]) for number in range(hosts))


def star(hosts: int) -> Topology:
    """Return hosts ``h1`` … on ports 1 … of one switch ``s1``."""
    _check_ports("hosts", hosts)
    return network(f"star-{hosts}", hosts, ["s1"], _racks(hosts, ["s1"]))


def dumbbell(hosts: int) -> Topology:
    """Return two switches with a link between them; odd hosts are on the left one, ``s1``, even ones on ``s2``."""
    _check_ports("hosts", hosts)
    links = ((f"h{number}", "s1" if number % 2 else "s2") for number in range(1, hosts + 1))
    return network(f"dumbbell-{hosts}", hosts, ["s1", "s2"], [("s1", "s2"), *links])


def leaf_spine(hosts: int, leaves: int, spines: int) -> Topology:
    """Return leaves with equal numbers of hosts; each leaf has a link to each spine, and ``spine1`` adds."""
    if leaves < 1 or spines < 1 or hosts % leaves:
        raise TopologyError(
            f"hosts: expected a multiple of the {leaves} leaves, and leaves and spines of 1 or more, found {hosts}"
        )
    _check_ports("hosts", hosts // leaves + spines)
    leaf = [f"leaf{number}" for number in range(1, leaves + 1)]
    spine = [f"spine{number}" for number in range(1, spines + 1)]
    pairs = [*_racks(hosts, leaf), *itertools.product(leaf, spine)]
    return network(f"leaf-spine-{hosts}", hosts, [*leaf, *spine], pairs, "spine1")


def fat_tree(ports: int) -> Topology:
    """Return the fat tree of switches with `ports` ports, an even number; it has ports³ / 4 hosts, and ``core1`` adds.

    Al-Fares, Loukissas, Vahdat: "A scalable, commodity data center network architecture", SIGCOMM 2008.
    """
    if ports < 2 or ports % 2 or ports > MAX_FAT_TREE_PORTS:
        raise TopologyError(f"ports: expected an even number from 2 to {MAX_FAT_TREE_PORTS}, found {ports}")
    half = ports // 2
    return replace(pods_of(ports, half, half, half, half), name=f"fat-tree-{ports}")


def pods_of(count: int, leaves: int, spines: int, rack: int, cores: int) -> Topology:
    """Return three levels of switches; ``core1`` adds.

    `count`: number of pods. A pod has `leaves` leaves with `rack` hosts each, and `spines` spines, each linked to every leaf of
    the pod. `cores`: uplinks of a spine. Each group of `cores` core switches is linked to one spine of every pod.
    """
    _check_ports("rack", rack + spines)
    _check_ports("leaves", leaves + cores)
    _check_ports("pods", count)
    if spines * cores + count * (leaves + spines) > MAX_SWITCHES:
        raise TopologyError(f"pods: expected at most {MAX_SWITCHES:,} switches in all of them")
    _check_hosts(count * leaves * rack)
    core = [f"core{number + 1}" for number in range(spines * cores)]
    switches, pairs = list(core), list[tuple[str, str]]()
    for pod in range(count):
        upper = [f"agg{pod}x{at}" for at in range(spines)]
        lower = [f"edge{pod}x{at}" for at in range(leaves)]
        switches += upper + lower
        pairs += itertools.product(lower, upper)
        for at, high in enumerate(upper):
            pairs += [(high, each) for each in core[at * cores : (at + 1) * cores]]
        first = pod * leaves * rack + 1
        pairs += [(f"h{first + host}", lower[host // rack]) for host in range(leaves * rack)]
    return network(f"pods-{count * leaves * rack}", count * leaves * rack, switches, pairs)


@dataclass(frozen=True)
class Kind:
    """A kind of network, as experiments name it.

    `make`: called with the least number of hosts, and with the values of the settings named in `keys`. `sized_by`: the setting
    that, if given, determines the number of hosts.
    """

    make: Callable[..., Topology]
    keys: tuple[str, ...] = ()
    sized_by: str = ""


def _leaf_spine(needed: int, *, hosts: int, leaves: int, spines: int, rack: int) -> Topology:
    if rack:
        leaves = -(-needed // rack)
    return leaf_spine(leaves * rack or hosts or -(-needed // leaves) * leaves, leaves, spines)


def _pods(needed: int, *, leaves: int, spines: int, rack: int, pods: int, cores: int) -> Topology:
    if not rack:
        raise TopologyError("topology.rack: expected the number of hosts at each leaf of a pod")
    return pods_of(pods or -(-needed // (leaves * rack)), leaves, spines, rack, cores)


KINDS: Final = {
    "star": Kind(star),
    "dumbbell": Kind(dumbbell),
    "leaf-spine": Kind(_leaf_spine, ("hosts", "leaves", "spines", "rack")),
    "fat-tree": Kind(lambda needed, ports: fat_tree(ports), ("ports",), sized_by="ports"),
    "pods": Kind(_pods, ("leaves", "spines", "rack", "pods", "cores"), sized_by="pods"),
}
"""The kinds, by name."""
