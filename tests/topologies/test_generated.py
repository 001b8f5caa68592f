"""Networks made from a few numbers: their addresses, ports and paths."""

from collections import Counter

import pytest

from topologies.addresses import ipv4_int, mac_int, mac_of
from topologies.generated import KINDS, dumbbell, fat_tree, leaf_spine, network, pods_of, star
from topologies.paths import shortest_paths
from topologies.topology import HostSpec, LinkEnd, SwitchSpec, Topology, TopologyError


def test_hosts_have_the_lowest_addresses_and_switches_the_highest() -> None:
    small, large = leaf_spine(4, 2, 1), leaf_spine(400, 2, 1)
    assert [host.ip for host in small.hosts.values()] == [f"10.0.0.{n}" for n in (1, 2, 3, 4)]
    assert [switch.ip for switch in small.switches.values()] == [f"10.0.0.{n}" for n in (254, 253, 252)]
    assert large.hosts["h400"].ip == "10.0.1.144"
    assert large.switches["leaf1"].ip == "10.255.255.254"
    for made in (small, large):
        stations: list[HostSpec | SwitchSpec] = [*made.hosts.values(), *made.switches.values()]
        assert all(each.mac == mac_of(each.ip) for each in stations)
        assert len({each.ip for each in stations}) == len(stations)
        assert {host.prefix_length for host in made.hosts.values()} == {24 if made is small else 8}


def test_an_address_is_in_its_mac_address() -> None:
    assert mac_of("10.0.1.144") == "02:00:0a:00:01:90"
    assert mac_int(mac_of("10.0.1.144")) == 0x0200 << 32 | ipv4_int("10.0.1.144")


@pytest.mark.parametrize(
    ("made", "hosts", "switches", "links"),
    [
        (star(5), 5, 1, 5),
        (dumbbell(5), 5, 2, 6),
        (leaf_spine(6, 3, 2), 6, 3 + 2, 6 + 3 * 2),
        (fat_tree(4), 16, 4 + 8 + 8, 16 + 16 + 16),
        (pods_of(3, 2, 1, 4, 2), 24, 2 + 3 * 3, 24 + 3 * (2 + 2)),
    ],
    ids=lambda value: value.name if isinstance(value, Topology) else "",
)
def test_every_port_is_on_one_link_and_every_switch_is_reached(
    made: Topology, hosts: int, switches: int, links: int
) -> None:
    assert (len(made.hosts), len(made.switches), len(made.links)) == (hosts, switches, links)
    ends = Counter(end for link in made.links for end in link.ends)
    assert set(ends.values()) == {1}
    for switch in made.switches:
        assert list(made.ports(switch)) == list(range(1, len(made.ports(switch)) + 1))
        assert len(made.shortest(switch)) == hosts
        assert len(made.forwarding(switch)) == hosts + switches - 1
    assert made.aggregator in made.switches
    assert made.jobs["all"].hosts == tuple(made.hosts)


def test_hosts_follow_each_other_on_leaves() -> None:
    made = leaf_spine(6, 3, 2)
    assert [made.place(host) for host in made.hosts] == [
        (f"leaf{leaf}", port) for leaf in (1, 2, 3) for port in (1, 2)
    ]
    assert made.neighbours("spine2") == {"leaf1": 1, "leaf2": 2, "leaf3": 3}
    assert made.ports("leaf2")[4] == LinkEnd("spine2", 2)


def test_shortest_paths_use_links_beside_the_spanning_tree() -> None:
    around = [("s1", "s2"), ("s2", "s3"), ("s3", "s1")]
    pairs = [("h1", "s1"), ("h2", "s2"), ("h3", "s3"), *around]
    ring = network("ring", 3, ["s1", "s2", "s3"], pairs)
    macs = [host.mac for host in ring.hosts.values()]
    assert ring.shortest("s2") == dict(zip(macs, (2, 1, 3), strict=True))
    assert {mac: ring.forwarding("s2")[mac] for mac in macs} == dict(zip(macs, (2, 1, 2), strict=True))
    assert [ring.spare_ports(switch) for switch in ring.switches] == [[], [3], [2]]


def test_a_path_is_found_from_the_nearest_root() -> None:
    line = {"a": [("b", 1)], "b": [("a", 1), ("c", 2)], "c": [("b", 2), ("d", 3)], "d": [("c", 3)]}
    found = shortest_paths(["a", "d"], line.__getitem__)
    assert found == {"a": None, "d": None, "b": ("a", 1), "c": ("d", 3)}


@pytest.mark.parametrize(
    ("kind", "needed", "settings", "said"),
    [
        ("star", 600, {}, "hosts: expected at most 509 links at a switch, found 600"),
        ("star", 0, {}, "hosts: expected 1 to 131072, found 0"),
        ("leaf-spine", 5, {"hosts": 5, "leaves": 2, "spines": 1, "rack": 0}, "a multiple of the 2 leaves"),
        ("fat-tree", 1, {"ports": 3}, "ports: expected an even number from 2 to 80, found 3"),
        ("pods", 1, {"leaves": 1, "spines": 1, "rack": 0, "pods": 0, "cores": 1}, "topology.rack: expected"),
        ("pods", 1, {"leaves": 256, "spines": 1, "rack": 256, "pods": 300, "cores": 1}, "pods: expected at most 65,535"),
        ("pods", 1, {"leaves": 256, "spines": 1, "rack": 256, "pods": 200, "cores": 1}, "hosts: expected 1 to 131072"),
    ],
)  # fmt: skip
def test_a_network_that_cannot_be_is_refused(
    kind: str, needed: int, settings: dict[str, int], said: str
) -> None:
    with pytest.raises(TopologyError, match=said):
        KINDS[kind].make(needed, **settings)
