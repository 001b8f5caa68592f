"""The Mininet testbed: links are as the topology says, both ways; two do not collide; nothing is left, crashed or not."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from netsum.programs import compiled_program
from tests.controller.switch_controller import SwitchController
from topologies import find_mininet, shaping
from topologies.children import TestbedError
from topologies.generated import star
from topologies.leftovers import processes
from topologies.mininet_testbed import MininetTestbed, missing_for_mininet
from topologies.namespaces import inside_of
from topologies.run_folder import RUNNING
from topologies.runs import runs_as
from topologies.shaping import shaping_commands
from topologies.topology import LinkEnd, LinkSpec
from topologies.units import parse_rate_bps

UDP_PORT = 28275
MTU = 1400
DEADLINE_S = 400.0
NETSUM = [sys.executable, "-P", "-c", "from netsum.cli import main; main()"]

lacking = missing_for_mininet()
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(lacking is not None, reason=str(lacking)),
]

FAR, FAR_MAC = "10.0.0.77", "08:00:00:00:01:00"
LINKS = (
    LinkSpec((LinkEnd("h1"), LinkEnd("s1", 1)), rate_bps=12_345_000, queue_pkts=77),
    LinkSpec((LinkEnd("h2"), LinkEnd("s1", 2)), rate_bps=2_000_000_000, loss_ppm=20_000),
    LinkSpec((LinkEnd("h3"), LinkEnd("s1", 3))),
)


def program(bed: MininetTestbed) -> None:
    """Give the switches their program and the places of all stations."""
    compiled = compiled_program(64)
    for switch in bed.describe()["switches"].values():
        with SwitchController.connect(
            switch["p4runtime"],
            program=compiled.json,
            p4info=compiled.p4info,
            device_id=switch["device_id"],
        ) as controller:
            controller.set_pipeline()
            controller.set_switch_address(switch["ip"], switch["mac"])
            controller.tables.set_l2(switch["forward"], list(switch["ports"].values()))


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MininetTestbed]:
    hosts = dict(star(3).hosts)
    hosts["h1"] = replace(
        hosts["h1"],
        commands=(f"ip neigh add {FAR} lladdr {FAR_MAC} dev eth0", "ip route add 10.0.0.0/24 dev eth0"),
    )
    topology = replace(star(3), hosts=hosts, links=LINKS, mtu=MTU)
    before = interfaces_of_the_machine()
    with MininetTestbed(topology, "embedded", tmp_path_factory.mktemp("bed"), udp_port=UDP_PORT) as bed:
        program(bed)
        assert interfaces_of_the_machine() == before
        yield bed
        run_id = bed.run_id
    assert not list(processes(run_id))


def interfaces_of_the_machine() -> set[str]:
    return {name for name in os.listdir("/sys/class/net") if "-eth" in name}


def ends(bed: MininetTestbed) -> Iterator[tuple[LinkSpec, str, str]]:
    """Iterate over (expected link, node, interface) of both ends of every link."""
    for link, described in zip(LINKS, bed.describe()["links"], strict=True):
        for end, interface in zip(link.ends, described["interfaces"], strict=True):
            yield link, end.node, interface


def inspect(bed: MininetTestbed, node: str, *command: str) -> Any:
    done = bed.net[node].run(" ".join(command))
    return json.loads(done)


def test_host_commands_may_call_the_interface_eth0(bed: MininetTestbed) -> None:
    # As those of p4lang's tutorials do, with ip as with arp and route.
    (neighbour,) = inspect(bed, "h1", "ip", "-json", "neigh", "show", FAR)
    assert (neighbour["dev"], neighbour["lladdr"]) == ("h1-eth0", FAR_MAC)


def test_rates_and_queues_hold_at_both_ends(bed: MininetTestbed) -> None:
    for link, node, interface in ends(bed):
        found = inspect(bed, node, "tc", "-json", "-s", "qdisc", "show", "dev", interface)
        shapers = {one["kind"]: one for one in found if one["kind"] in ("htb", "tbf", "pfifo", "netem")}
        if link.rate_bps is None:
            assert not shapers
            continue
        assert set(shapers) == {"htb", "pfifo"}
        assert shapers["pfifo"]["options"]["limit"] == (link.queue_pkts or shaping.DEFAULT_QUEUE_PKTS)
        # All that leaves goes through the one class.
        assert int(shapers["htb"]["options"]["default"], 16) == 1
        shaped = bed.net[node].run(f"tc -s class show dev {interface}")
        rate, ceiling = re.findall(r"(?:rate|ceil) (\d+[KMG]?bit)", shaped)
        assert rate == ceiling
        assert parse_rate_bps(rate) == link.rate_bps
        assert "burst" in shaped


SEND = """
import socket, sys, time
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
    wire.bind((sys.argv[1], 0))
    for number in range(int(sys.argv[2])):
        wire.send(bytes.fromhex("02000000000102000000000288b5") + bytes(46))
        if number % 100 == 99:
            time.sleep(0.001)  # the kernel holds 1,000 packets for a busy processor, and drops the rest
"""


@pytest.mark.parametrize(
    ("near", "far"), [(("h2", "h2-eth0"), ("s1", "s1-eth2")), (("s1", "s1-eth2"), ("h2", "h2-eth0"))]
)
def test_a_link_loses_its_share_each_way(
    bed: MininetTestbed, near: tuple[str, str], far: tuple[str, str]
) -> None:
    count = 5000
    counter = f"cat /sys/class/net/{far[1]}/statistics/rx_packets"
    before = int(bed.net[far[0]].run(counter))
    send = [*inside_of(bed.net[near[0]].pid), sys.executable, "-c", SEND, near[1], str(count)]
    subprocess.run(send, check=True, timeout=DEADLINE_S)
    came = int(bed.net[far[0]].run(counter)) - before
    # 2 % of 5,000 are 100; eight standard deviations, and what the hosts may say unasked.
    assert count - 180 < came < count - 20


def test_interfaces_carry_packets_as_they_are_on_a_wire(bed: MininetTestbed) -> None:
    for _, node, interface in ends(bed):
        (found,) = inspect(bed, node, "ip", "-json", "link", "show", interface)
        assert (found["mtu"], found["operstate"]) == (MTU, "UP")
        said = bed.net[node].run(f"ethtool -k {interface}")
        for feature in (
            "rx-checksumming",
            "tx-checksumming",
            "generic-segmentation-offload",
            "tcp-segmentation-offload",
        ):
            assert f"{feature}: off" in said
        assert "generic-receive-offload: off" in said


def ping(bed: MininetTestbed, target: str) -> bool:
    """Ask until an answer comes; nothing is lost for ever on a link that works."""
    command = bed.hosts[0].command(["ping", "-q", "-c", "1", "-w", "60", target])
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_hosts_and_the_switch_answer(bed: MininetTestbed) -> None:
    assert ping(bed, "10.0.0.2")
    assert ping(bed, "10.0.0.3")
    assert ping(bed, bed.spec.ip)


def test_a_switch_comes_back_at_its_address_and_empty(bed: MininetTestbed) -> None:
    before = bed.describe()["switches"]["s1"]
    bed.switch.kill()
    bed.restart_switch()
    after = bed.describe()["switches"]["s1"]
    assert after["pid"] != before["pid"]
    assert {**after, "pid": None} == {**before, "pid": None}
    program(bed)
    assert ping(bed, bed.spec.ip)


def test_a_switch_that_does_not_start_says_why_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "simple_switch_grpc"
    broken.write_text("#!/bin/sh\necho no ports today; exit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    bed = MininetTestbed(star(1), "bmv2", tmp_path, udp_port=UDP_PORT)
    with pytest.raises(TestbedError, match=r"BMv2 s1 ended with status 3 \(no ports today\)"), bed:
        pass
    assert not list(processes(bed.run_id))


def test_without_mininet_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_mininet, "find_mininet", lambda: None)
    with pytest.raises(TestbedError, match="Mininet is not installed: `apt-get install"):
        MininetTestbed(star(1), "embedded", tmp_path, udp_port=UDP_PORT)


def test_a_latency_needs_netem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shaping, "_kernel_has", lambda qdisc: False)
    link = replace(LINKS[0], latency_ns=5_000_000)
    topology = replace(star(3), links=(link, *LINKS[1:]))
    said = "the link h1 to s1-p1 has a latency of 5 ms, for which this kernel lacks .* netem"
    with (
        pytest.raises(TestbedError, match=said),
        MininetTestbed(topology, "embedded", tmp_path, udp_port=UDP_PORT),
    ):
        pass


def test_with_netem_a_delay_is_behind_the_rate() -> None:
    commands = shaping_commands(replace(LINKS[0], latency_ns=5_000_000), "h1-eth0", MTU)
    (delay,) = [command for command in commands if "netem" in command]
    # 77 packets that wait, and what is under way in 5 ms at 12.3 Mbit/s in the smallest packets.
    assert delay == "tc qdisc add dev h1-eth0 parent 1:1 netem delay 5000000ns limit 197"


def netsum(*arguments: str, folder: Path, status: int = 0) -> str:
    done = subprocess.run(
        [*NETSUM, "testbed", *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=800
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def name(tmp_path: Path) -> Iterator[str]:
    """Provide a unique name for a testbed; a testbed of that name is taken down at the end."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    yield name
    if (RUNNING / name).is_symlink():
        netsum("down", "--testbed", name, folder=tmp_path)


def test_up_beside_another_crash_up_again_down(bed: MininetTestbed, name: str, tmp_path: Path) -> None:
    arguments = ("up", "star-2", "--testbed", name, "--rate", "50mbit", "--no-controller", "--json")
    first = json.loads(netsum(*arguments, folder=tmp_path))
    assert [link["rate_bps"] for link in first["links"]] == [50_000_000] * 2
    assert Path(first["folder"]).parent == tmp_path / "runs"
    assert "is up already" in netsum(*arguments, folder=tmp_path, status=1)

    # Programs on its hosts find the controller, and are in the testbed.
    script = "import os; print(os.environ['NETSUM_TESTBED'], os.listdir('/sys/class/net'))"
    said = netsum("exec", "--testbed", name, "h2", sys.executable, "-c", script, folder=tmp_path)
    assert name in said
    assert "h2-eth0" in said
    assert "no node 'h3': expected h1, h2, s1" in netsum(
        "exec", "--testbed", name, "h3", "true", folder=tmp_path, status=1
    )
    with subprocess.Popen(
        [*NETSUM, "testbed", "exec", "--testbed", name, "h1", "sleep", "1000"], cwd=tmp_path
    ) as sleeper:
        run_id = first["keeper"]["run_id"]
        wait_until(lambda: sleeper.pid in processes(run_id) or sleeper.poll() is not None)
        assert sleeper.poll() is None

        # A crash: what the keeper started dies with it; the rest is ended by the next `up` of that name.
        os.kill(first["keeper"]["pid"], signal.SIGKILL)
        wait_until(lambda: list(processes(run_id)) == [sleeper.pid])
        assert "crashed: `netsum testbed down" in netsum(
            "status", "--testbed", name, folder=tmp_path, status=1
        )
        second = json.loads(netsum(*arguments, folder=tmp_path))
        assert sleeper.wait(DEADLINE_S) == -signal.SIGKILL

    assert second["keeper"] != first["keeper"]
    assert not [path for path in Path(first["folder"]).iterdir() if path.is_socket()]
    assert ": up" in netsum("status", "--testbed", name, folder=tmp_path)
    assert f"{name} is down" in netsum("down", "--testbed", name, folder=tmp_path)
    assert f"no testbed {name} is up" in netsum("down", "--testbed", name, folder=tmp_path, status=1)
    assert not list(processes(second["keeper"]["run_id"]))
    assert not (RUNNING / name).is_symlink()
    assert not list(Path(second["folder"]).glob("*.sock"))
    # The other one did not notice.
    assert bed.switch.running
    assert ping(bed, bed.spec.ip)


def test_in_the_foreground_ctrl_c_takes_it_down(name: str, tmp_path: Path) -> None:
    arguments = ("up", "star-2", "--testbed", name, "--no-controller", "--foreground", "--pcap")
    command = [*NETSUM, "testbed", *arguments]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as up:
        assert up.stdout is not None
        assert any(line.startswith("try: netsum testbed exec h1 ping") for line in up.stdout)
        state = json.loads((RUNNING / name / "testbed.json").read_text())
        up.send_signal(signal.SIGINT)
        assert up.wait(DEADLINE_S) == 128 + signal.SIGINT
    assert not list(processes(state["keeper"]["run_id"]))
    assert not (RUNNING / name).is_symlink()
    assert sorted(path.name for path in Path(state["folder"]).iterdir()) == [
        "logs",
        "pcaps",
        "testbed.json",
    ]


def test_a_testbed_whose_run_folder_was_deleted_is_seen_and_ended(name: str, tmp_path: Path) -> None:
    arguments = ("up", "star-2", "--testbed", name, "--no-controller", "--json")
    first = json.loads(netsum(*arguments, folder=tmp_path))
    shutil.rmtree(first["folder"])
    gone = f"its run folder was deleted: `netsum testbed down --testbed {name}` ends it"
    assert gone in netsum("status", "--testbed", name, folder=tmp_path, status=1)
    assert f"{name} is up already" in netsum(*arguments, folder=tmp_path, status=1)
    assert f"{name} is down" in netsum("down", "--testbed", name, folder=tmp_path)
    assert not list(processes(first["keeper"]["run_id"]))
    assert not (RUNNING / name).is_symlink()


FORK_INTERRUPTED = """
import os, signal, sys
fork = os.fork
def interrupted():
    pid = fork()
    if pid and "keeper" in sys._getframe(1).f_code.co_filename:
        print(pid, flush=True)
        os.kill(os.getpid(), signal.SIGINT)
    return pid
os.fork = interrupted
from netsum.cli import main
main()
"""


def test_ctrl_c_just_after_the_fork_leaves_none_coming_up(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORK_INTERRUPTED, "testbed", "up", "star-2", "--testbed", name]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=DEADLINE_S
    )
    assert done.returncode == 128 + signal.SIGINT
    assert not runs_as(int(done.stdout))
    assert not (RUNNING / name).is_symlink()
