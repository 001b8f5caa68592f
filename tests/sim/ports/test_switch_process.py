"""A switch as a process: datagrams through a P4 program, losses, start, stop and faults."""

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.inet import UDP
from scapy.utils import rdpcap

from sim.switch.serve import main
from tests.sim.ports.conftest import Start

PROGRAMS = Path(__file__).parents[2] / "programs"
ECHO = ["--program", PROGRAMS / "echo.json", "--p4info", PROGRAMS / "echo.p4info.txtpb"]
DEADLINE_S = 400


def host(address: str = "127.0.1.1") -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.bind((address, 0))
    opened.settimeout(DEADLINE_S)
    return opened


def test_datagrams_go_through_the_program_and_back(start: Start) -> None:
    switch = start("--ports", "3", *ECHO)
    assert switch.ready["device_id"] == 1
    with host() as one, host("127.0.1.2") as two:
        for port, address in switch.ports.items():
            one.sendto(b"to port %d" % port, address)
            assert one.recvfrom(100) == (b"to port %d" % port, address)
        # 'P' and 9 bits of port: leave by port 2, though it came in by port 0.
        two.sendto(b"P\x00\x02over there", switch.ports[0])
        assert two.recvfrom(100) == (b"P\x00\x02over there", switch.ports[2])
        two.sendto(b"P\x01\xffdropped", switch.ports[0])
        two.sendto(b"x" * 1400, switch.ports[1])
        assert two.recvfrom(2000)[0] == b"x" * 1400


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it_cleanly(start: Start, number: signal.Signals) -> None:
    switch = start("--ports", "2")
    status, output, errors = switch.stop(number)
    assert status == 0
    assert errors == ""
    addresses = " ".join(f"{port}={host}:{udp}" for port, (host, udp) in switch.ports.items())
    assert output == f"ready: P4Runtime {switch.ready['p4runtime']} device 1, ports {addresses}\n"


def exchange(start: Start, tmp_path: Path, seed: int, count: int = 1500) -> tuple[list[int], Any]:
    """Send numbered datagrams one by one through the echo program with 10 % loss; returns what came back."""
    counts, status = tmp_path / f"counts{seed}.json", tmp_path / "status"
    options = ["--drop-ppm", "100000", "--seed", seed, "--statistics", counts, "--status", status]
    switch = start("--ports", "1", *options, *ECHO)
    back: list[int] = []

    def hear_all(sent: int) -> None:
        """Receive until the switch is done with all frames."""
        deadline = time.monotonic() + DEADLINE_S
        while (port := switch.status(status)["ports"]["0"])["received"] < sent or len(back) < port["sent"]:
            assert time.monotonic() < deadline, (port, len(back))
            hear()

    def hear() -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                back.append(int.from_bytes(one.recv(100), "big"))

    with host() as one:
        one.setblocking(False)
        for first in range(0, count, 100):
            for number in range(first, first + 100):
                one.sendto(number.to_bytes(4, "big"), switch.ports[0])
            hear_all(first + 100)
        assert switch.stop()[0] == 0
        hear()  # The status may have been written between a packet's arrival and its departure.
    return back, json.loads(counts.read_text())["ports"]["0"]


def test_losses_each_way_are_counted_and_the_same_for_a_seed(start: Start, tmp_path: Path) -> None:
    back, counts = exchange(start, tmp_path, 7)
    assert counts["received"] == 1500
    assert counts["overrun"] == counts["refused"] == counts["not_udp"] == 0
    assert 100 <= counts["dropped_in"] <= 200
    assert 85 <= counts["dropped_out"] <= 185
    assert len(back) == counts["sent"] == 1500 - counts["dropped_in"] - counts["dropped_out"]
    assert back == sorted(back)
    assert exchange(start, tmp_path, 7) == (back, counts)
    assert exchange(start, tmp_path, 8)[0] != back


@pytest.fixture
def complaint(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a switch that must not start; returns its message."""

    def run_with(*arguments: object) -> str:
        assert main(["--p4runtime", "127.0.0.1:0", *map(str, arguments)]) in (1, 2)
        output, errors = capsys.readouterr()
        assert output == ""
        (line,) = errors.splitlines()
        return line

    return run_with


def test_a_process_that_cannot_start_ends_with_a_sentence() -> None:
    command = [sys.executable, "-m", "sim.switch.serve", "--p4runtime", "127.0.0.1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stdout) == (2, "")
    assert "expected P4Runtime's address as HOST:PORT" in done.stderr
    assert "Traceback" not in done.stderr


def test_foreseeable_faults_are_one_sentence(
    complaint: Callable[..., str], start: Start, tmp_path: Path
) -> None:
    with host("127.0.0.1") as taken:
        port = taken.getsockname()[1]
        assert f"UDP 127.0.0.1:{port}: it is in use" in complaint("--udp-ports", port)
    running = start("--ports", "0")
    assert "it is in use" in complaint("--ports", "0", "--p4runtime", running.ready["p4runtime"])
    for address in ("127.0.0.1:99999", "127.0.0.1", "127.0.0.1:http", ":9559"):
        assert "expected P4Runtime's address as HOST:PORT" in complaint(
            "--ports", "0", "--p4runtime", address
        )
    assert "no authentication" in complaint("--ports", "0", "--p4runtime", "0.0.0.0:0")
    assert "give both" in complaint("--ports", "0", "--program", PROGRAMS / "echo.json")
    missing = tmp_path / "missing"
    assert f"cannot read {missing}" in complaint("--program", missing, "--p4info", missing)
    wrong = complaint("--ports", "0", "--program", PROGRAMS / "echo.json", "--p4info", PROGRAMS / "echo.p4")
    assert re.search("echo.p4 is no P4Info in text form", wrong)
    mixed = complaint(
        "--ports", "0", "--program", PROGRAMS / "echo.json", "--p4info", PROGRAMS / "entities.p4info.txtpb"
    )
    assert "not of the same program" in mixed
    assert "between 0 and 1,000,000" in complaint("--udp-base", "0", "--drop-ppm", "2000000")
    assert "between 0 and 65535" in complaint("--udp-base", "65535")
    assert "expected an IPv4 address for UDP ports, not 'h1'" in complaint("--udp-host", "h1")
    assert "UDP 203.0.113.1:28275: Cannot assign requested address" in complaint("--udp-host", "203.0.113.1")
    assert "cannot write packets to /dev/null/x" in complaint("--ports", "0", "--pcap", "/dev/null/x")
    assert "cannot write counts to /nonesuch/counts: No such file" in complaint(
        "--ports", "0", "--statistics", "/nonesuch/counts"
    )
    assert "cannot make the status socket" in complaint("--ports", "0", "--status", "/dev/null/x")


def test_every_ports_packets_are_written_down_up_to_a_limit(start: Start, tmp_path: Path) -> None:
    switch = start("--ports", "2", "--pcap", tmp_path / "pcaps", "--pcap-limit", "1000", *ECHO)
    with host() as one:
        for number in range(12):
            one.sendto(bytes([number]) * 100, switch.ports[1])
            assert one.recvfrom(200)[0] == bytes([number]) * 100
    status, _, errors = switch.stop()
    assert status == 0
    assert "port1_in.pcap has reached its limit: 6 packets are not in it" in errors
    files = {path.name: rdpcap(str(path)) for path in (tmp_path / "pcaps").iterdir()}
    assert {name: len(packets) for name, packets in files.items()} == {
        "port0_in.pcap": 0,
        "port0_out.pcap": 0,
        "port1_in.pcap": 6,
        "port1_out.pcap": 6,
    }
    for name in ("port1_in.pcap", "port1_out.pcap"):
        assert [bytes(packet[UDP].payload)[0] for packet in files[name]] == list(range(6))
