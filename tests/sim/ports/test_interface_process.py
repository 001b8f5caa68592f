"""A switch as a process on network interfaces: packets through a program, its status and captures, faults."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import PcapReader

from tests.sim.ports.cables import DEADLINE_S, Cables, end_of, send_all
from tests.sim.ports.conftest import Start, SwitchProcess
from topologies.namespaces import missing_for_namespaces

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(missing_for_namespaces() is not None, reason=str(missing_for_namespaces())),
]

PROGRAMS = Path(__file__).parents[2] / "programs"
ECHO = ["--program", PROGRAMS / "echo.json", "--p4info", PROGRAMS / "echo.p4info.txtpb"]
INTERFACES = ["--interface", "1@s1", "--interface", "2@s2"]
MAC, IP_ADDRESS = "02:00:00:00:00:01", "10.0.0.1"


@pytest.fixture(scope="module")
def cables() -> Iterator[Cables]:
    with Cables(2) as up:
        yield up


def await_status(switch: SwitchProcess, path: Path, done: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while not done(shown := switch.status(path)):
        assert time.monotonic() < deadline, shown
        time.sleep(0.02)
    return shown


def frame(number: int) -> bytes:
    """A datagram that the program, which exchanges addresses, returns as it is."""
    addresses = Ether(dst=MAC, src=MAC) / IP(src=IP_ADDRESS, dst=IP_ADDRESS) / UDP(sport=9, dport=9, chksum=0)
    return bytes(addresses / number.to_bytes(4, "big"))


def test_packets_counters_captures_and_links_that_come_and_go(
    cables: Cables, start: Start, tmp_path: Path
) -> None:
    status, pcaps, server = tmp_path / "s.status", tmp_path / "pcaps", f"unix:{tmp_path}/p4runtime.sock"
    options = ["--status", status, "--pcap", pcaps, "--p4runtime", server, "--device-id", "3"]
    switch = start(*INTERFACES, *options, *ECHO)
    assert switch.ready == {"p4runtime": server, "device_id": 3, "ports": {"1": "s1", "2": "s2"}}
    with end_of("h1") as one, end_of("h2") as two:
        send_all(one, map(frame, range(300)))
        assert [one.recv(200) for _ in range(300)] == [frame(number) for number in range(300)]
        shown = switch.status(status)
        assert (shown["device_id"], shown["p4runtime"]) == (3, server)
        first, second = shown["ports"]["1"], shown["ports"]["2"]
        assert (first["name"], first["up"], first["received"], first["sent"]) == ("s1", True, 300, 300)
        assert (second["name"], second["received"], second["sent"]) == ("s2", 0, 0)
        assert shown["unforwarded"] == {"no_program": 0, "no_such_port": 0}
        assert shown["program"]["dropped_looping"] == 0

        cables.ip("link", "set", "s1", "down")
        assert not switch.status(status)["ports"]["1"]["up"]
        two.send(frame(1000))
        assert two.recv(200) == frame(1000)
        cables.up("s1")
        assert switch.status(status)["ports"]["1"]["up"]
        one.send(frame(1001))
        while one.recv(200) != frame(1001):
            pass

        cables.ip("link", "delete", "s2")
        await_status(switch, status, lambda shown: not shown["ports"]["2"]["up"])
    cables.add(2)
    with end_of("h2") as two:
        # The switch looks for the new interface a few times a second.
        two.settimeout(0.2)
        deadline = time.monotonic() + DEADLINE_S
        heard = None
        while heard != frame(2000):
            assert time.monotonic() < deadline
            two.send(frame(2000))
            try:
                heard = two.recv(200)
            except TimeoutError:
                continue

    files = ["s1_in.pcap", "s1_out.pcap", "s2_in.pcap", "s2_out.pcap"]
    # A record is 16 bytes and the packet.
    deadline = time.monotonic() + DEADLINE_S
    while (pcaps / "s1_out.pcap").stat().st_size < 24 + 301 * (16 + len(frame(0))):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    switch.stop(signal.SIGKILL)
    found = {}
    for name in files:
        with PcapReader(str(pcaps / name)) as reader:
            found[name] = [(float(packet.time), bytes(packet)) for packet in reader]
    assert [content for _, content in found["s1_in.pcap"]] == [*map(frame, range(300)), frame(1001)]
    assert [content for _, content in found["s1_out.pcap"]] == [*map(frame, range(300)), frame(1001)]
    assert found["s2_in.pcap"][0][1] == frame(1000)
    times = [when for when, _ in found["s1_in.pcap"]]
    assert times == sorted(times)
    assert time.time() - 600 < times[0] < time.time()


def test_at_the_end_the_socket_goes_and_the_counts_stay(cables: Cables, start: Start, tmp_path: Path) -> None:
    status = tmp_path / "s.status"
    switch = start(*INTERFACES, "--status", status, "--statistics", tmp_path / "end.json", *ECHO)
    with end_of("h1") as one:
        for number in range(20):
            one.send(frame(number))
    await_status(switch, status, lambda shown: shown["ports"]["1"]["sent"] == 20)
    assert switch.stop()[0] == 0
    assert not status.exists()
    assert json.loads((tmp_path / "end.json").read_text())["ports"]["1"]["received"] == 20
