"""The peers' transport against textbook formulas, and peers against their bounds."""

import math

import pytest

from sim.network.graph import Node
from sim.network.messages import Messages, TransportParameters
from sim.network.network import Network
from sim.network.parameters import Faults, LinkParameters
from sim.peers.group import PeerGroup
from sim.peers.table import PEERS
from topologies import generated

SEGMENT, HEADERS = 1448, 66
RATE_BPS = 10**10


def star(hosts: int, link: LinkParameters, seed: int = 1) -> tuple[Network, list[Node]]:
    network = Network(seed, lanes=64)
    network.add_topology(generated.star(hosts), link)
    return network, network.hosts


def transfer(
    size: int, link: LinkParameters, window: int = 256, initial: int = 256, seed: int = 1
) -> tuple[float, Network]:
    """Send bytes from one host to another; returns the seconds until they are there."""
    network, (source, target) = star(2, link, seed)
    messages = Messages(network, TransportParameters(window=window, initial_window=initial))
    number = messages.send(source, target, size)
    messages.install()
    network.run(limit_ns=10**12)
    return float(messages.done_ps([number])[0]) / 1e12, network


def test_a_long_transfer_takes_the_time_of_its_bits() -> None:
    link = LinkParameters(rate_bps=RATE_BPS, latency_ns=1000, framing_bytes=0)
    packets = 1000
    seconds, _ = transfer(packets * SEGMENT, link)
    one_s = (SEGMENT + HEADERS) * 8 / RATE_BPS
    assert seconds == pytest.approx(packets * one_s + one_s + 2e-6, rel=1e-9)


def test_a_window_per_round_trip() -> None:
    link = LinkParameters(rate_bps=10**11, latency_ns=100_000, framing_bytes=0)
    window, rounds = 16, 50
    seconds, _ = transfer(window * rounds * SEGMENT, link, window=window, initial=window)
    rtt_s = 4 * 100e-6 + 2 * (SEGMENT + 2 * HEADERS) * 8 / 10**11
    assert seconds == pytest.approx((rounds - 1) * rtt_s + rtt_s / 2, rel=0.01)


@pytest.mark.parametrize(("missing", "lost"), [(0, 0), (1, 1)])
def test_a_queue_takes_what_just_fits(missing: int, lost: int) -> None:
    window = 8
    room = (window - 1) * (SEGMENT + HEADERS) - missing  # The first packet does not wait.
    link = LinkParameters(rate_bps=RATE_BPS, latency_ns=100_000, framing_bytes=0, queue_bytes=room)
    _, network = transfer(window * SEGMENT, link, window=window, initial=window)
    assert network.link_records[0]["lost_in_queue"] == lost


def test_every_other_packet_is_acknowledged() -> None:
    link = LinkParameters(rate_bps=RATE_BPS, latency_ns=1000, framing_bytes=0)
    seconds, network = transfer(1000 * SEGMENT, link)
    there, back = (network.link_records[number]["packets"] for number in (0, 1))
    assert there == 1000
    assert 498 <= back <= 502
    assert seconds == pytest.approx(transfer(1000 * SEGMENT, link, window=255)[0], rel=1e-3)


def test_acknowledgements_do_not_wait_behind_their_hosts_window() -> None:
    """Two hosts send to each other: each direction carries data, and an acknowledgement for every other packet."""
    network, (one, other) = star(2, LinkParameters(rate_bps=RATE_BPS, latency_ns=1000, framing_bytes=0))
    messages = Messages(network, TransportParameters())
    packets = 4000
    numbers = [messages.send(*pair, packets * SEGMENT) for pair in ((one, other), (other, one))]
    messages.install()
    network.run(limit_ns=10**12)
    seconds = float(messages.done_ps(numbers).max()) / 1e12
    assert seconds == pytest.approx(packets * (SEGMENT + HEADERS * 1.5) * 8 / RATE_BPS, rel=0.02)
    # In a window that grows to 256 packets no flow waits as long.
    assert int(network.flows.rows["srtt_ps"].max()) < 256 * (SEGMENT + HEADERS) * 8 * 100 * 1.1


def test_slow_start_doubles_every_round_trip() -> None:
    link = LinkParameters(rate_bps=10**12, latency_ns=1_000_000, framing_bytes=0)
    # 1 + 2 + 4 + … + 128 packets in eight rounds, the last of which takes half a round trip.
    seconds, _ = transfer(255 * SEGMENT, link, initial=1)
    assert seconds == pytest.approx(7 * 4e-3 + 2e-3, rel=0.001)


@pytest.mark.parametrize("loss", [0.002, 0.005, 0.01])
def test_under_loss_the_rate_is_that_of_mathis(loss: float) -> None:
    """Mathis, Semke, Mahdavi, Ott (1997): MSS / RTT · C / sqrt(p), where C is 1.31 for independent losses and no delayed ACKs."""
    # Lost on the way there only: acknowledgements are on a link of their own.
    network, (source, target) = star(2, LinkParameters(rate_bps=10**12, latency_ns=250_000, framing_bytes=0))
    network.set_link(0, LinkParameters(rate_bps=10**12, latency_ns=250_000, faults=Faults(loss=loss)))
    messages = Messages(network, TransportParameters(window=1024, initial_window=10))
    size = 30_000 * SEGMENT
    number = messages.send(source, target, size)
    messages.install()
    network.run(limit_ns=10**12)
    seconds = float(messages.done_ps([number])[0]) / 1e12
    expected = SEGMENT / 1e-3 * 1.31 / math.sqrt(loss)
    assert size / seconds == pytest.approx(expected, rel=0.2)


def test_what_is_lost_is_sent_again_until_it_is_there() -> None:
    link = LinkParameters(
        rate_bps=RATE_BPS, latency_ns=10_000, faults=Faults(loss=0.2, duplicate=0.1, jitter_ns=30_000)
    )
    for seed in range(5):
        _, network = transfer(500 * SEGMENT, link, seed=seed)
        flow = network.flows.rows[0]
        assert flow["expected"] == flow["end_number"] == 500
        assert flow["resends"] >= 80


def reduce(name: str, workers: int, size: int, pieces: int = 32) -> float:
    """All-reduce bytes; returns the seconds until all are done."""
    servers = 1 if name in ("ps", "omnireduce") else 0
    network, nodes = star(
        workers + servers, LinkParameters(rate_bps=RATE_BPS, latency_ns=1000, framing_bytes=0)
    )
    messages = Messages(network, TransportParameters(initial_window=32, window=32))
    members = nodes[:workers]
    group = PeerGroup(messages, members, nodes[workers:] or members, pieces)
    done = PEERS[name](group, size, [[] for _ in members])
    messages.install()
    network.run(limit_ns=10**12)
    return float(max(messages.done_ps(each).max(initial=0) for each in done)) / 1e12


WIRE = (SEGMENT + HEADERS) / SEGMENT
"""Bytes on a link for a byte of a message."""


@pytest.mark.parametrize(
    ("name", "workers", "volume", "slack"),
    [
        # How often the array passes the busiest link; and by how much the steps' latencies may exceed it.
        ("ring", 2, 1.0, 0.1),
        ("ring", 8, 2 * 7 / 8, 0.15),
        ("halving-doubling", 8, 2 * 7 / 8, 0.15),
        ("ps", 4, 4.0, 0.1),
        ("ps", 16, 16.0, 0.1),
        ("ps-colocated", 8, 2 * 7 / 8, 0.35),
        ("tree", 7, 3.0, 0.25),
        ("omnireduce", 4, 4.0 * 1040 / 1024, 0.15),
    ],
)
def test_a_peer_takes_hardly_longer_than_its_busiest_link(
    name: str, workers: int, volume: float, slack: float
) -> None:
    size = 8 << 20
    bound = volume * size * WIRE * 8 / RATE_BPS
    seconds = reduce(name, workers, size)
    assert bound * 0.999 <= seconds <= bound * (1 + slack)


def test_halving_doubling_of_any_number_of_workers_ends() -> None:
    times = {workers: reduce("halving-doubling", workers, 1 << 20) for workers in (1, 2, 3, 5, 6, 7, 12)}
    assert times[1] == 0.0
    assert times[3] > times[2]


def test_omnireduce_sends_only_blocks_that_are_not_zero() -> None:
    network, nodes = star(5, LinkParameters(rate_bps=RATE_BPS, latency_ns=1000, framing_bytes=0))
    messages = Messages(network, TransportParameters(initial_window=256))
    group = PeerGroup(messages, nodes[:4], nodes[4:], density=0.05)
    done = PEERS["omnireduce"](group, 8 << 20, [[] for _ in nodes[:4]])
    messages.install()
    network.run(limit_ns=10**12)
    sent = int(network.link_records["bytes"][0])
    assert 0.04 * (8 << 20) < sent < 0.2 * (8 << 20)
    # A worker receives the blocks that are not zero at some worker, beside acknowledgements.
    received = int(network.link_records["bytes"][1])
    assert (1 - 0.95**4) * (8 << 20) < received < 0.3 * (8 << 20)
    assert all(done)
