"""UDP ports on their own: datagrams to frames and back, losses, faults. The frames are checked with scapy."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import ARP, Ether

from netsum_common.rings import name_of
from netsum_common.switch_options import UDP_PORT
from sim.switch.ports import PortUnavailableError
from sim.switch.ports.udp import UdpPorts

DEADLINE_MS = 400_000


def host(address: str = "127.0.1.1") -> contextlib.closing[socket.socket]:
    """A host's socket."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.bind((address, 0))
    opened.settimeout(DEADLINE_MS / 1000)
    return contextlib.closing(opened)


def frames_of(ports: UdpPorts, count: int) -> list[tuple[int, bytes]]:
    return [
        (int(ports.record.ports[i]), ports.record.frames[i, : ports.record.lengths[i]].tobytes())
        for i in range(count)
    ]


def receive(ports: UdpPorts, expected: int) -> list[tuple[int, bytes]]:
    """Receive until there are as many frames as expected."""
    found: list[tuple[int, bytes]] = []
    deadline = time.monotonic() + DEADLINE_MS / 1000
    while len(found) < expected and time.monotonic() < deadline:
        found += frames_of(ports, ports.receive(100))
    return found


def transmit(ports: UdpPorts, frames: Sequence[tuple[int, bytes]]) -> int:
    lengths = np.array([len(frame) for _, frame in frames], np.int32)
    rows = np.zeros((len(frames), max(lengths, default=1)), np.uint8)
    for row, (_, frame) in zip(rows, frames, strict=True):
        row[: len(frame)] = np.frombuffer(frame, np.uint8)
    return ports.transmit(np.array([port for port, _ in frames], np.uint16), lengths, rows)


def datagram(source: tuple[str, int], destination: tuple[str, int], payload: bytes) -> bytes:
    """A frame with a datagram from (ip, port) to (ip, port)."""
    return bytes(
        Ether(dst="02:00:7f:00:01:01", src="02:00:7f:00:00:01")
        / IP(src=source[0], dst=destination[0])
        / UDP(sport=source[1], dport=destination[1], chksum=0)
        / payload
    )


def test_a_datagram_is_the_frame_it_would_be_on_a_network() -> None:
    with UdpPorts([(3, 0), (9, 0)]) as ports, host() as one:
        one.sendto(b"gradients", ports.addresses[9])
        ((port, frame),) = receive(ports, 1)
        assert port == 9
        packet = Ether(frame)
        assert (packet.src, packet.dst) == ("02:00:7f:00:01:01", "02:00:7f:00:00:01")
        assert (packet[IP].src, packet[IP].dst) == ("127.0.1.1", "127.0.0.1")
        assert (packet[UDP].sport, packet[UDP].dport) == (one.getsockname()[1], UDP_PORT)
        assert bytes(packet[UDP].payload) == b"gradients"
        assert packet[UDP].chksum == 0
        # The values that scapy computes for absent fields must be those in the frame.
        for layer, name in ((IP, "chksum"), (IP, "len"), (UDP, "len")):
            again = Ether(frame)
            given = getattr(again[layer], name)
            delattr(again[layer], name)
            assert getattr(Ether(bytes(again))[layer], name) == given
        statistics = ports.statistics()[9]
        assert (statistics["received"], statistics["received_bytes"]) == (1, len(b"gradients"))
        assert ports.statistics()[3]["received"] == 0


def test_a_frame_is_sent_as_datagram_from_the_ports_own_address() -> None:
    with UdpPorts([(0, 0), (1, 0)]) as ports, host() as one, host("127.0.1.2") as two:
        source = ("10.0.0.1", 28275)
        no_such_port = transmit(
            ports,
            [
                (1, datagram(source, one.getsockname(), b"a")),
                (0, datagram(source, two.getsockname(), b"b" * 1400)),
                (1, datagram(source, one.getsockname(), b"c") + b"padding"),
                (7, datagram(source, one.getsockname(), b"d")),
            ],
        )
        assert no_such_port == 1
        assert one.recvfrom(2000) == (b"a", ports.addresses[1])
        assert one.recvfrom(2000) == (b"c", ports.addresses[1])
        assert two.recvfrom(2000) == (b"b" * 1400, ports.addresses[0])
        assert ports.statistics()[1]["sent"] == 2
        assert ports.statistics()[0]["sent_bytes"] == 1400


def test_order_on_a_port_is_kept_over_several_batches() -> None:
    with UdpPorts([(0, 0), (1, 0)], batch=16) as ports, host() as one:
        frames = [
            (i % 2, datagram(("10.0.0.1", 1), one.getsockname(), i.to_bytes(2, "big"))) for i in range(100)
        ]
        transmit(ports, frames)
        heard: dict[tuple[str, int], list[int]] = {address: [] for address in ports.addresses.values()}
        for _ in frames:
            payload, address = one.recvfrom(100)
            heard[address].append(int.from_bytes(payload, "big"))
        assert heard[ports.addresses[0]] == list(range(0, 100, 2))
        assert heard[ports.addresses[1]] == list(range(1, 100, 2))


def test_frames_without_a_datagram_are_counted_not_sent() -> None:
    ether = Ether(dst="02:00:7f:00:01:01")
    bad = [
        bytes(ether / ARP()),
        bytes(ether / IP(dst="127.0.1.1") / TCP()),
        bytes(ether / IP(dst="127.0.1.1", flags="MF") / UDP(dport=9) / b"first"),
        bytes(ether / IP(dst="127.0.1.1", frag=10) / (b"x" * 30)),
        bytes(ether / IP(dst="127.0.1.1") / UDP(dport=9, len=7) / (b"x" * 30)),
        bytes(ether / IP(dst="127.0.1.1") / UDP(dport=9, len=99) / b"x"),
        bytes(ether / IP(dst="127.0.1.1", ihl=15) / UDP(dport=9)),
        b"",
        b"\x00" * 41,
    ]
    with UdpPorts([(0, 0)]) as ports, host() as one:
        assert transmit(ports, [(0, frame) for frame in bad]) == 0
        transmit(ports, [(0, datagram(("10.0.0.1", 1), one.getsockname(), b"good"))])
        assert one.recvfrom(100)[0] == b"good"
        assert ports.statistics()[0]["not_udp"] == len(bad)
        assert ports.statistics()[0]["sent"] == 1


def test_what_the_system_will_not_send_is_counted_and_the_rest_goes_on() -> None:
    with UdpPorts([(0, 0)]) as ports, host() as one:
        unreachable = datagram(("127.0.0.1", 1), ("192.0.2.1", 9), b"nowhere")
        good = datagram(("127.0.0.1", 1), one.getsockname(), b"good")
        transmit(ports, [(0, unreachable), (0, good), (0, unreachable)])
        assert one.recvfrom(100)[0] == b"good"
        assert ports.statistics()[0]["refused"] == 2


def test_datagrams_that_are_too_long_are_counted_and_do_not_hurt_the_others() -> None:
    with UdpPorts([(0, 0)], capacity_bytes=256) as ports, host() as one:
        for payload in (b"a", b"x" * 215, b"b", b"y" * 214, b"c"):
            one.sendto(payload, ports.addresses[0])
        frames = [frame[42:] for _, frame in receive(ports, 4)]
        assert frames == [b"a", b"b", b"y" * 214, b"c"]
        assert ports.statistics()[0]["oversized"] == 1


def test_one_busy_port_does_not_starve_the_others() -> None:
    with UdpPorts([(i, 0) for i in range(4)], batch=16) as ports, host() as one:
        for _ in range(100):
            one.sendto(b"busy", ports.addresses[0])
        for port in (1, 2, 3):
            one.sendto(b"quiet", ports.addresses[port])
        first = frames_of(ports, ports.receive(DEADLINE_MS))
        assert {port for port, _ in first} == {0, 1, 2, 3}


def test_losses_are_as_asked_counted_and_repeat_with_the_seed() -> None:
    def run(seed: int) -> tuple[list[int], list[int]]:
        payloads = 2000
        kept: list[int] = []
        with UdpPorts([(0, 0), (1, 0)], drop_ppm=100_000, seed=seed) as ports, host() as one:
            for number in range(payloads):
                one.sendto(number.to_bytes(2, "big"), ports.addresses[number % 2])
                for _, frame in frames_of(ports, ports.receive(0)):
                    kept.append(int.from_bytes(frame[42:], "big"))
            deadline = time.monotonic() + DEADLINE_MS / 1000
            while sum(row["received"] for row in ports.statistics().values()) < payloads:
                assert time.monotonic() < deadline
                for _, frame in frames_of(ports, ports.receive(10)):
                    kept.append(int.from_bytes(frame[42:], "big"))
            heard: list[int] = []
            headers = datagram(("10.0.0.1", 1), one.getsockname(), bytes(2))[:-2]
            for number in range(payloads):
                before = ports.statistics()[number % 2]["sent"]
                transmit(ports, [(number % 2, headers + number.to_bytes(2, "big"))])
                if ports.statistics()[number % 2]["sent"] > before:
                    heard.append(int.from_bytes(one.recvfrom(10)[0], "big"))
            table = ports.statistics()
        for row in table.values():
            assert row["received"] == row["sent"] + row["dropped_out"] == payloads // 2
            assert 60 <= row["dropped_in"] <= 140
            assert 60 <= row["dropped_out"] <= 140
        assert len(kept) == payloads - sum(row["dropped_in"] for row in table.values())
        return sorted(kept), sorted(heard)

    first = run(7)
    assert run(7) == first
    other = run(8)
    assert other[0] != first[0]
    assert other[1] != first[1]


def test_all_or_nothing_can_be_lost() -> None:
    with UdpPorts([(0, 0)], drop_ppm=1_000_000) as ports, host() as one:
        for _ in range(10):
            one.sendto(b"x", ports.addresses[0])
        assert ports.receive(50) == 0
        assert ports.receive(50) == 0
        assert ports.statistics()[0]["dropped_in"] == 10
    with pytest.raises(ValueError, match="between 0 and 1,000,000"):
        UdpPorts([(0, 0)], drop_ppm=1_000_001)


def test_waiting_ends_at_the_deadline_and_when_woken() -> None:
    with UdpPorts([(0, 0)]) as ports:
        ports.receive(0)
        begin = time.monotonic()
        assert ports.receive(50) == 0
        assert time.monotonic() - begin >= 0.04
        timer = threading.Timer(0.05, ports.wake)
        timer.start()
        begin = time.monotonic()
        assert ports.receive(DEADLINE_MS) == 0
        assert time.monotonic() - begin < DEADLINE_MS / 2000
        timer.join()


def test_a_port_in_use_is_one_sentence_and_leaves_nothing_open() -> None:
    with host("127.0.0.1") as taken, host("127.0.0.1") as free:
        address = free.getsockname()
        free.close()
        with pytest.raises(PortUnavailableError, match=r"switch port 1 .* in use.*choose other UDP ports"):
            UdpPorts([(0, address[1]), (1, taken.getsockname()[1])])
        with UdpPorts([(0, address[1])]) as ports:
            assert ports.addresses == {0: address}


@pytest.mark.parametrize("numbers", [[0, 0], [512], [-1]])
def test_impossible_port_numbers_are_refused(numbers: list[int]) -> None:
    with pytest.raises(ValueError, match="expected different switch ports between 0 and 511"):
        UdpPorts([(number, 0) for number in numbers])


def test_an_address_that_is_not_ours_is_one_sentence() -> None:
    with pytest.raises(PortUnavailableError, match="choose another address"):
        UdpPorts([(0, 0)], host="192.0.2.1")


def test_datagrams_beyond_the_receive_buffer_are_counted_as_overrun() -> None:
    with UdpPorts([(0, 0)]) as ports, host() as one:
        sent = 40_000
        for number in range(sent):
            one.sendto(b"x" * 1000, ports.addresses[0])
            if number % 500 == 0:
                time.sleep(0.001)  # a busy processor holds 1,000 for its sockets, and drops the rest
        got = 0
        while count := ports.receive(20):
            got += count
        assert got + ports.statistics()[0]["overrun"] == sent
        assert got > 200


def test_who_holds_the_name_of_a_switch_with_shared_memory_is_named() -> None:
    """Names in the abstract namespace belong to no user: another one can take them."""
    user = 65534 if os.geteuid() == 0 else os.geteuid()
    held = (
        f"import os, socket, sys; os.setuid({user}); one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); "
        "one.bind(chr(0) + sys.argv[1])"
    )
    with UdpPorts([(0, 0)]) as ports:
        name = name_of(ports.addresses[0])
        for listens in (True, False):
            script = f"{held}; {'one.listen();' * listens} print(flush=True); input()"
            with subprocess.Popen(
                [sys.executable, "-c", script, name[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            ) as other:
                assert other.stdout is not None
                other.stdout.readline()
                who = f"process {other.pid} of user {user}" if listens else "another process"
                with pytest.raises(
                    PortUnavailableError,
                    match=f"cannot share memory with workers: {who} holds the abstract Unix socket {name[1:]}; end it, "
                    "choose another address or UDP port, or serve without shared memory",
                ):
                    ports.share_memory(ports.addresses, UDP_PORT)
                other.terminate()
        ports.share_memory(ports.addresses, UDP_PORT)
