"""Topology files: their contents, and errors that name file, field and expected value."""

import json
from pathlib import Path
from typing import Any

import pytest

from topologies.generated import star
from topologies.topology import LinkEnd, LinkSpec, TopologyError
from topologies.topology_file import load_topology, shipped_topologies
from topologies.units import parse_latency_ns, parse_loss_ppm, parse_rate_bps, rate_text

SMALL: dict[str, Any] = {
    "hosts": {"h1": {"ip": "10.0.1.1/24"}, "h2": {"ip": "10.0.1.2/24"}},
    "switches": {"s1": {}},
    "links": [["h1", "s1-p1"], ["h2", "s1-p2"]],
}


def write(folder: Path, **changes: Any) -> str:
    path = folder / "net.json"
    path.write_text(json.dumps(SMALL | changes))
    return str(path)


def test_the_shipped_ones() -> None:
    assert shipped_topologies() == [
        "dumbbell",
        "leaf-spine-4",
        "leaf-spine-8",
        "star-2",
        "star-4",
        "star-8",
        "two-jobs",
    ]
    for name in shipped_topologies():
        topology = load_topology(name)
        assert topology.name == name
        assert topology.description


@pytest.mark.parametrize("hosts", [2, 4, 8])
def test_a_star_differs_from_the_shipped_one_by_its_rates(hosts: int) -> None:
    shipped = load_topology(f"star-{hosts}")
    made = star(hosts)
    assert (made.hosts, made.switches, made.jobs) == (shipped.hosts, shipped.switches, shipped.jobs)
    assert made.with_links(rate_bps=100_000_000).links == shipped.links


def test_two_jobs_share_no_host() -> None:
    left, right = load_topology("two-jobs").jobs.values()
    assert not set(left.hosts) & set(right.hosts)


def test_defaults(tmp_path: Path) -> None:
    topology = load_topology(write(tmp_path))
    assert topology.name == "net"
    assert topology.mtu == 1500
    assert topology.hosts["h1"].mac == "02:00:0a:00:01:01"
    assert str(topology.switches["s1"].ip) == "10.0.1.254"
    assert topology.switches["s1"].device_id == 1
    assert topology.links[0] == LinkSpec((LinkEnd("h1"), LinkEnd("s1", 1)))
    assert topology.jobs["all"].hosts == ("h1", "h2")


@pytest.mark.parametrize(
    ("ip", "switch"), [("10.0.0.1/8", "10.255.255.254"), ("10.0.0.0/31", "10.0.0.1"), ("10.0.0.2/30", "10.0.0.1")]
)  # fmt: skip
def test_a_switch_without_an_address_gets_the_highest_free_one(tmp_path: Path, ip: str, switch: str) -> None:
    path = write(tmp_path, hosts={"h1": {"ip": ip}}, links=[["h1", "s1-p1"]])
    assert str(load_topology(path).switches["s1"].ip) == switch


def test_both_forms_of_a_link(tmp_path: Path) -> None:
    full = {"ends": ["s1-p2", "h2"], "latency": "5ms", "bandwidth": "1.5gbit", "loss": 0.1, "queue": 64}
    one, other = load_topology(write(tmp_path, links=[["h1", "s1-p1", "0", 0.5], full])).links
    assert one == LinkSpec((LinkEnd("h1"), LinkEnd("s1", 1)), rate_bps=500_000)
    ends = (LinkEnd("h2"), LinkEnd("s1", 2))
    assert other == LinkSpec(ends, 5_000_000, 1_500_000_000, 1000, 64)


def test_a_switch_knows_the_way_to_everything_behind_other_switches() -> None:
    dumbbell = load_topology("dumbbell")
    hosts, switches = dumbbell.hosts, dumbbell.switches
    on_1 = {hosts[name].mac: number for number, name in enumerate(("h1", "h2", "x1"), start=1)}
    on_2 = {hosts[name].mac: number for number, name in enumerate(("h3", "h4", "x2"), start=1)}
    assert dumbbell.forwarding("s1") == on_1 | dict.fromkeys([switches["s2"].mac, *on_2], 4)
    assert dumbbell.forwarding("s2") == on_2 | dict.fromkeys([switches["s1"].mac, *on_1], 4)
    assert dumbbell.place("h4") == ("s2", 2)
    assert dumbbell.jobs["across"].hosts == ("h1", "h2", "h3", "h4")
    assert {flow.source for flow in dumbbell.traffic} == {"x1", "x2"}


WRONG = [
    ({"hosts": []}, "hosts: expected an object, {…}, found []"),
    ({"hosts": {"h1": {}}}, "hosts.h1.ip: missing"),
    (
        {"hosts": {"h1": {"ip": "10.0.1.1"}}},
        'hosts.h1.ip: expected an IPv4 address with the length of its prefix, as in "10.0.0.1/24", found "10.0.1.1"',
    ),
    ({"hosts": {"h1": {"ip": "10.0.1.300/24"}}}, "hosts.h1.ip: expected an IPv4 address"),
    (
        {"hosts": {"h1": {"ip": "10.0.1.1/24", "mac": "02:00"}}},
        "hosts.h1.mac: expected a MAC address such as",
    ),
    (
        {"hosts": {"h1": {"ip": "10.0.1.1/24", "mac": "01:00:00:00:00:01"}}},
        "hosts.h1.mac: expected the MAC address of one station",
    ),
    (
        {"hosts": {"h1": {"ip": "10.0.1.1/24", "gateway": "x"}}},
        "hosts.h1: unknown key gateway; expected one of ip, mac, commands",
    ),
    (
        {"hosts": SMALL["hosts"] | {"h-3": {"ip": "10.0.1.3/24"}}},
        "hosts.h-3: expected a name of at most eight letters and digits",
    ),
    (
        {"hosts": SMALL["hosts"] | {"h3": {"ip": "10.0.1.2/24"}}},
        "hosts.h3.ip: 10.0.1.2 is used by hosts.h2 already",
    ),
    (
        {"hosts": SMALL["hosts"] | {"h3": {"ip": "10.0.1.3/24"}}},
        "links: expected a link from host h3 to a switch, found none",
    ),
    ({"switches": {}, "links": []}, "switches: expected at least one switch"),
    (
        {"switches": {"s1": {"cli_input": "s1.txt"}}},
        "switches.s1: unknown key cli_input; expected one of ip, mac, device_id, cpu_port, program, p4info, runtime_json",
    ),
    (
        {"switches": {"s1": {"device_id": -1}}},
        "switches.s1.device_id: expected a P4Runtime device id from 0, found -1",
    ),
    (
        {"switches": {"s1": {"cpu_port": 511}}},
        "switches.s1.cpu_port: expected a port between 1 and 510, found 511",
    ),
    ({"switches": {"s1": {"cpu_port": 2}}}, "switches.s1.cpu_port: port 2 is on links[1] already"),
    ({"links": {}}, "links: expected a list, […], found {}"),
    ({"links": [["h1"]]}, "links[0]: expected [end, end, latency, bandwidth]"),
    (
        {"links": [["h1", "s1"]]},
        'links[0][1]: expected a host or a switch\'s port 1 to 509, as in "s1-p1", found "s1"',
    ),
    ({"links": [["h1", "s1-p510"]]}, "links[0][1]: expected a host or a switch's port 1 to 509"),
    ({"links": [["h1", "h2"]]}, "links[0]: expected a switch's port at one end at least, found two hosts"),
    ({"links": [["h1", "s1-p1"], ["h1", "s1-p2"]]}, "links[1]: host h1 is on links[0] already"),
    ({"links": [["h1", "s1-p1"], ["h2", "s1-p1"]]}, "links[1]: port 1 of switch s1 is on links[0] already"),
    (
        {"links": [["h1", "s1-p1", "fast"]]},
        'links[0].latency: expected a delay in ms (5) or with a unit ("5ms", "100us", "0ms"), found "fast"',
    ),
    (
        {"links": [["h1", "s1-p1", 0, "100mb"]]},
        "links[0].bandwidth: expected a rate above 0, in Mbit/s (100) or with a unit",
    ),
    (
        {"links": [["h1", "s1-p1", 0, 0]]},
        'links[0].bandwidth: expected a rate between "1kbit" and "1000gbit", found 0',
    ),
    (
        {"links": [{"ends": ["h1", "s1-p1"], "loss": 101}]},
        "links[0].loss: expected a loss of at most 100 %, found 101",
    ),
    ({"links": [{"ends": ["h1", "s1-p1"], "queue": 10}]}, "links[0].queue: expected a bandwidth beside it"),
    (
        {"links": [{"ends": ["h1", "s1-p1"], "delay": 10}]},
        "links[0]: unknown key delay; expected one of ends, latency, bandwidth, loss, queue",
    ),
    ({"links": [{"latency": 10}]}, "links[0].ends: missing"),
    ({"mtu": 100}, "mtu: expected an MTU between 576 and 65535 bytes, found 100"),
    ({"jobs": {"a": {"hosts": ["h1", "h9"]}}}, "jobs.a.hosts[1]: expected the name of a host, found 'h9'"),
    ({"jobs": {"a": {"hosts": ["h1", "h1"]}}}, "jobs.a.hosts: expected each host once"),
    (
        {"jobs": {"a": {"hosts": ["h1"], "switch": "s2"}}},
        "jobs.a.switch: expected the name of a switch, found 's2'",
    ),
    ({"traffic": [{"from": "h1", "to": "h2"}]}, "traffic[0].rate: missing"),
    (
        {"traffic": [{"from": "h1", "to": "x", "rate": 1}]},
        "traffic[0].to: expected the name of a host, found 'x'",
    ),
    (
        {"traffic": [{"from": "h1", "to": "h1", "rate": 1}]},
        "traffic[0].to: expected another host than h1, which sends",
    ),
    (
        {"hosts": {"h1": {"ip": "10.0.0.0/24"}}},
        "hosts.h1.ip: expected the address of a host, neither the first nor the last of 10.0.0.0/24",
    ),
    ({"hosts": {"h1": {"ip": "10.0.0.255/24"}}}, "hosts.h1.ip: expected the address of a host"),
    ({"hosts": {"h1": {"ip": "127.0.0.2/8"}}}, "hosts.h1.ip: expected the IPv4 address of a station"),
    ({"switches": {"s1": {"ip": "224.0.0.1"}}}, "switches.s1.ip: expected the IPv4 address of a station"),
    ({"links": [["h1", f"s1-p{'9' * 5000}"]]}, "links[0][1]: expected a host or a switch's port 1 to 509"),
    ({"host": {}}, "unknown key host; expected one of description"),
]


@pytest.mark.parametrize(("changes", "said"), WRONG)
def test_what_is_wrong_is_reported(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = write(tmp_path, **changes)
    with pytest.raises(TopologyError) as caught:
        load_topology(path)
    assert str(caught.value).startswith(f"{path}: {said}")


def test_an_island_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=r"links: expected a path from every switch .* found none to s2"):
        load_topology(write(tmp_path, switches={"s1": {}, "s2": {}}))


def test_a_loop_has_links_by_which_nothing_is_forwarded(tmp_path: Path) -> None:
    """Between s1, s2 and s3 there are four links, of which a tree has two."""
    switches: dict[str, Any] = {"s1": {}, "s2": {}, "s3": {}}
    loop = [["s1-p3", "s2-p1"], ["s1-p4", "s2-p2"], ["s2-p3", "s3-p1"], ["s3-p2", "s1-p5"]]
    ring = load_topology(write(tmp_path, switches=switches, links=[*SMALL["links"], *loop]))
    assert {name: ring.spare_ports(name) for name in ring.switches} == {"s1": [4], "s2": [2, 3], "s3": [1]}
    s1, s2, s3 = (switch.mac for switch in ring.switches.values())
    on_s1 = {host.mac: number for number, host in enumerate(ring.hosts.values(), start=1)}
    assert ring.forwarding("s1") == on_s1 | {s2: 3, s3: 5}
    assert ring.forwarding("s2") == dict.fromkeys([s1, s3, *on_s1], 1)
    assert ring.forwarding("s3") == dict.fromkeys([s1, s2, *on_s1], 2)
    assert list(ring.ports("s1")) == [1, 2, 3, 4, 5]


def test_what_a_switch_of_the_tutorials_has(tmp_path: Path) -> None:
    fields = {"program": "build/x.json", "runtime_json": "s1-runtime.json", "cpu_port": "510"}
    switch = load_topology(write(tmp_path, switches={"s1": fields})).switches["s1"]
    assert (switch.program, switch.p4info, switch.runtime_json) == ("build/x.json", "", "s1-runtime.json")
    assert switch.cpu_port == 510


def test_what_is_not_json_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "net.json"
    path.write_text('{\n  "hosts": {},\n  "links": [1 2]\n}\n')
    with pytest.raises(TopologyError, match=r"net\.json, line 3, column 15: Expecting ',' delimiter"):
        load_topology(str(path))
    path.write_text('{"hosts": {"h1": {}, "h1": {}}}')
    with pytest.raises(TopologyError, match=r"net\.json: h1: expected once, found twice in one object"):
        load_topology(str(path))
    path.write_bytes(b"{\xff}")
    with pytest.raises(
        TopologyError, match=r"net\.json: the text: expected UTF-8, found byte 0xff at offset 1"
    ):
        load_topology(str(path))


def test_a_topology_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(
        TopologyError, match=r"no topology 'ring': expected dumbbell, leaf-spine-4, .* or a file's path"
    ):
        load_topology("ring")
    with pytest.raises(TopologyError, match=r"cannot read the topology .*none\.json: No such file"):
        load_topology(str(tmp_path / "none.json"))


def test_quantities() -> None:
    assert [parse_rate_bps(written) for written in (100, 0.5, "2gbit", "500kbit", "7", "1500bit")] == [
        100_000_000,
        500_000,
        2_000_000_000,
        500_000,
        7_000_000,
        1500,
    ]
    assert [parse_latency_ns(written) for written in (5, "100us", "0", "1.5ms", "7ns")] == [
        5_000_000,
        100_000,
        0,
        1_500_000,
        7,
    ]
    assert [parse_loss_ppm(written) for written in (1, "0.1%", "50ppm", 100)] == [10_000, 1000, 50, 1_000_000]
    assert [rate_text(rate) for rate in (10**9, 15 * 10**8, 1500)] == ["1gbit", "1500mbit", "1500bit"]
    for read in (parse_rate_bps, parse_latency_ns, parse_loss_ppm):
        wrong: Any
        for wrong in (None, True, "", "-1", -1, "many", [], float("nan"), float("inf")):
            with pytest.raises(ValueError, match="with a unit"):
                read(wrong)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 100_000, "the text: expected objects and lists that are nested less deeply"),
        ('{"mtu": ' + "1" * 5000 + "}", "the text: expected numbers of at most 4,300 digits"),
    ],
)
def test_a_text_that_python_cannot_read_is_no_traceback(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "odd.json"
    path.write_text(text)
    with pytest.raises(TopologyError, match=said):
        load_topology(str(path))
