"""The description of switches and hosts: from a testbed's folder, from a file, and errors in either."""

import json
from pathlib import Path
from typing import Any

import pytest

from controller.errors import ConfigError
from controller.service.network import (
    ControlledNetwork,
    HostSite,
    PortSite,
    lanes_of_testbed,
    network_of_testbed,
)
from controller.service.network_file import network_of_file
from tests.controller.front_panel import PM_SHOW

TWO_SWITCHES = """
[[switch]]
name = "s1"
p4runtime = "127.0.0.1:9559"
device_id = 3
ip = "10.0.0.254"
mac = "02:00:00:00:FF:01"
tls = { ca = "ca.pem" }

[[switch]]
name = "s2"
p4runtime = "unix:/run/s2.sock"
ip = "10.0.0.253"
mac = "02:00:00:00:ff:02"

[[host]]
name = "h1"
ip = "10.0.0.1"
mac = "02:00:00:00:00:01"
switch = "s1"
port = 1

[[host]]
name = "h2"
ip = "10.0.0.2"
mac = "02:00:00:00:00:02"
switch = "s2"
port = 1
send_to = "10.0.0.253:28275"

[[link]]
switches = ["s1", "s2"]
ports = [7, 8]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "network.toml"
    path.write_text(text)
    return path


def test_a_file_with_two_switches(tmp_path: Path) -> None:
    network = network_of_file(written(tmp_path, TWO_SWITCHES))
    first, second = network.switches.values()
    assert (first.device_id, second.device_id) == (3, 1)
    assert first.tls.ca == tmp_path / "ca.pem"
    assert first.mac == "02:00:00:00:ff:01"
    assert first.stations == {"02:00:00:00:00:01": 1, "02:00:00:00:00:02": 7}
    assert second.stations == {"02:00:00:00:00:01": 8, "02:00:00:00:00:02": 1}
    assert first.ports == {1: PortSite("", "h1"), 7: PortSite("", "s2")}
    assert network.host_of(["192.0.2.1", "10.0.0.2"]) == HostSite(
        "h2", "10.0.0.2", "02:00:00:00:00:02", "s2", ("10.0.0.253", 28275)
    )
    assert network.port_to("s1", network.hosts["h2"]) == 7
    assert network.host_of(["192.0.2.1"]) is None


def test_a_second_link_between_two_switches_is_spare(tmp_path: Path) -> None:
    second = '[[link]]\nswitches = ["s2", "s1"]\nports = [20, 21]\n'
    first, other = network_of_file(written(tmp_path, TWO_SWITCHES + second)).switches.values()
    assert (first.spare_ports, other.spare_ports) == (frozenset({21}), frozenset({20}))
    assert set(first.ports) == {1, 7, 21}
    assert first.stations["02:00:00:00:00:02"] == 7


def test_trees_use_the_same_of_two_crossed_cables_at_both_ends(tmp_path: Path) -> None:
    crossed = TWO_SWITCHES.replace("ports = [7, 8]", "ports = [7, 20]")
    crossed += '[[link]]\nswitches = ["s1", "s2"]\nports = [21, 8]\n'
    first, other = network_of_file(written(tmp_path, crossed)).switches.values()
    assert (first.neighbours, other.neighbours) == ({"s2": 7}, {"s1": 20})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('mac = "02:00:00:00:FF:01"', 'mac = "2:0"', "switch.. s1: mac: expected a MAC address such as"),
        ('ip = "10.0.0.1"', 'ip = "10.0.0.300"', "host.. h1: ip: expected an IPv4 address such as"),
        ("port = 1\n\n[[host]]", "port = 600\n\n[[host]]", "host.. h1: expected a port such as 3, 0 to 509, .* not 600"),
        ("port = 1\n\n[[host]]", 'port = "1"\n\n[[host]]', r"port '1' is .* pm_show = \"FILE\" for switch s1"),
        ("port = 1\n\n[[host]]", "prot = 1\n\n[[host]]", "host.. h1: unknown key prot; expected one of name, ip"),
        ('switch = "s1"', 'switch = "s1"\nspeed = 3', r"host.. h1: unknown key speed; expected one of name, ip"),
        ('switch = "s1"', 'switch = "s9"', "host.. h1: there is no switch s9: the switches are s1, s2"),
        ('name = "h2"', 'name = "h1"', "host.. h1: this name is used twice"),
        ('ip = "10.0.0.2"', 'ip = "10.0.0.1"', "host.. h2: ip: another host also has 10.0.0.1"),
        ("ports = [7, 8]", 'ports = [7, "eth8"]', "link.. 1: port 'eth8' is a name on the front panel"),
        ('switches = ["s1", "s2"]', 'switches = ["s1", ["s2"]]', "which the file has"),
        ('switches = ["s1", "s2"]', 'switches = ["s1", "s1"]', "link.. 1: a link joins two switches, not s1 with itself"),
        ("ports = [7, 8]", "ports = [1, 8]", "link.. 1: port 1 of switch s1 leads to h1 already"),
        ('"127.0.0.1:9559"', '"nowhere"', "switch.. s1: p4runtime: expected an address such as"),
        ("[[switch]]", "[[router]]", "unknown key router; expected one of switch, host, link"),
        ('switches = ["s1", "s2"]', 'switches = ["s1"]', r"link.. 1: expected switches = \[\"s1\", \"s2\"\]"),
        ('send_to = "10.0.0.253', 'send_to = "10.0.0.254', "h2 sends to 10.0.0.254, but switch s2 takes .* 10.0.0.253"),
        ('send_to = "10.0.0.253:28275"', 'send_to = "here"', "host.. h2: send_to: expected .* such as \"127.0.0.1:28275\""),
        ("ca = ", "cert_authority = ", "s1.tls: unknown key cert_authority; expected one of ca, cert, key"),
        ("ca = ", "key = 3, ca = ", r"s1.tls: expected files such as ca = \"ca.pem\""),
        (":28275", ":99999", "host.. h2: send_to: expected .* such as \"127.0.0.1:28275\""),
        ("[[switch]]", "[[switch]", "is not TOML"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        network_of_file(written(tmp_path, TWO_SWITCHES.replace(old, new, 1)))


def test_ports_by_their_names_on_the_front_panel(tmp_path: Path) -> None:
    (tmp_path / "s1.txt").write_text(PM_SHOW)
    named = TWO_SWITCHES.replace('name = "s1"', 'name = "s1"\npm_show = "s1.txt"', 1)
    named = named.replace("port = 1\n", 'port = "1/0"\n', 1).replace("ports = [7, 8]", 'ports = ["5/3", 8]')
    network = network_of_file(written(tmp_path, named))
    assert network.switches["s1"].stations == {"02:00:00:00:00:01": 132, "02:00:00:00:00:02": 167}
    assert network.switches["s1"].ports == {132: PortSite("1/0", "h1"), 167: PortSite("5/3", "s2")}
    with pytest.raises(ConfigError, match="host.. h1: switch s1 has no port '9/0', s1.txt has 1/0, 5/3"):
        network_of_file(written(tmp_path, named.replace('"1/0"', '"9/0"')))
    (tmp_path / "s1.txt").write_text("bfshell> ")
    with pytest.raises(
        ConfigError, match=r"switch.. s1: pm_show: .*s1.txt: expected the table that `pm show`"
    ):
        network_of_file(written(tmp_path, named))
    with pytest.raises(ConfigError, match=r"pm_show: cannot read .*none.txt: No such file"):
        network_of_file(written(tmp_path, named.replace("s1.txt", "none.txt")))


def test_a_file_that_is_not_there_and_one_without_switches(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read .*none.toml: No such file"):
        network_of_file(tmp_path / "none.toml")
    assert network_of_file(written(tmp_path, "")) == ControlledNetwork(
        {}, {}
    )  # Aggregators on hosts add for all jobs.


def test_a_testbeds_folder(tmp_path: Path) -> None:
    described: dict[str, Any] = {
        "lanes": 64,
        "switches": {"s1": {"p4runtime": "unix:s1.sock", "device_id": 1, "ip": "10.0.0.254", "mac": "02:00:0a:00:00:fe",
                            "ports": {"s1-eth1": 1, "s1-eth2": 2}, "forward": {"02:00:0a:00:00:01": 1},
                            "spare_ports": [2]}},
        "hosts": {"h1": {"ip": "10.0.0.1", "mac": "02:00:0a:00:00:01", "switch": "s1", "port": 1}},
        "links": [{"ends": ["h1", "s1-p1"], "interfaces": ["h1-eth0", "s1-eth1"]}],
    }  # fmt: skip
    (tmp_path / "testbed.json").write_text(json.dumps(described))
    network = network_of_testbed(tmp_path)
    assert network.switches["s1"].ports == {1: PortSite("s1-eth1", "h1"), 2: PortSite("s1-eth2", "")}
    assert network.switches["s1"].spare_ports == {2}
    assert network.port_to("s1", network.hosts["h1"]) == 1
    assert lanes_of_testbed(tmp_path) == 64

    del described["hosts"]["h1"]["mac"]
    (tmp_path / "testbed.json").write_text(json.dumps(described))
    with pytest.raises(
        ConfigError, match=r"testbed.json: expected the description of a testbed \(KeyError\('mac'\)\)"
    ):
        network_of_testbed(tmp_path)
    with pytest.raises(ConfigError, match="is no testbed's run folder: testbed.json: No such file"):
        network_of_testbed(tmp_path / "none")
