"""The congestion controls of background flows against their specifications."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from host_agent.protocol.congestion import cubic_growth, cubic_inflection_ms
from sim.network.engine.engine_records import FLOW, WORLD
from sim.network.engine.tcp import CUBIC, PER_PACKET, grow
from sim.network.messages import Messages, TransportParameters, add_flow
from sim.network.network import Network
from sim.network.parameters import LinkParameters
from topologies import generated

FRAME = 1514
MS = 1_000_000
C, BETA = 0.4, 0.7


def shared(
    flows: int,
    control: str,
    link: LinkParameters,
    until_ms: int,
    look: Callable[[Network], Any],
    every_ms: int,
) -> list[Any]:
    """Let flows meet on the link to a host; returns what `look` has seen of them at each time."""
    network = Network(1, lanes=64)
    network.add_topology(generated.star(flows + 1), link)
    *sources, target = network.hosts
    for at, source in enumerate(sources):
        add_flow(network, source, target, control, start_ns=at * MS)
    seen: list[Any] = []
    for time in range(every_ms, until_ms, every_ms):
        network.at(time * MS, lambda: seen.append(look(network)))
    clock = Messages(network, TransportParameters())
    clock.wait(target, delay_ns=until_ms * MS)
    clock.install()
    network.run(limit_ns=(until_ms + 1) * MS)
    return seen


@pytest.mark.parametrize("segment", [1000, 1514])
@pytest.mark.parametrize("packets", [3, 60, 1000, 50_000])
def test_the_curve_has_the_constants_of_rfc_9438(packets: int, segment: int) -> None:
    inflection_s = (packets * (1 - BETA) / C) ** (1 / 3)
    fall = packets * segment * 3 // 10
    assert cubic_inflection_ms(fall, segment) == pytest.approx(1000 * inflection_s, abs=2)
    assert cubic_growth(-round(1000 * inflection_s), segment) == pytest.approx(-fall, rel=0.01, abs=segment)
    assert cubic_growth(3000, segment) == pytest.approx(C * 27 * segment, rel=0.001)


def test_a_cubic_flow_follows_its_curve_from_one_loss_to_the_next() -> None:
    """With round trips of 80 ms and one flow, windows are far above Reno's."""
    link = LinkParameters(rate_bps=10**8, latency_ns=20 * MS, queue_bytes=200 * FRAME, framing_bytes=0)

    def look(network: Network) -> Any:
        return network.now_ps / 1e12, network.flows.rows[0].copy()

    seen = shared(2, "cubic", link, 60_000, look, 100)
    starts: dict[int, float] = {}
    compared = 0
    for now_s, flow in seen:
        window, congested, estimate = (flow[each] / 1000 for each in ("window", "congested", "estimate"))
        start = starts.setdefault(int(flow["epoch_ps"]), window)
        since_s = now_s - flow["epoch_ps"] / 1e12
        expected = C * (since_s - max((congested - start) / C, 0) ** (1 / 3)) ** 3 + congested
        if flow["epoch_ps"] > 0 and since_s > 1 and expected > max(start, estimate):
            assert window == pytest.approx(expected, rel=0.05)
            compared += 1
    assert len(starts) > 3
    assert compared > 100


def test_a_flow_queues_no_more_than_a_millisecond_in_its_own_host() -> None:
    """TCP small queues of Linux; the flow's path may begin with any link of the network, the first one too."""
    link = LinkParameters(rate_bps=10**8, latency_ns=MS, queue_bytes=1000 * FRAME, framing_bytes=0)

    def look(network: Network) -> Any:
        links = network.link_records
        (number,) = np.flatnonzero(links["from_node"] == network.hosts[0].number)
        return number, int(links["busy_ps"][number]) - network.now_ps

    seen = shared(1, "cubic", link, 300, look, 1)
    assert {number for number, _ in seen} == {0}
    assert 0.5e9 < max(waiting for _, waiting in seen) < 1.0e9 + 2 * FRAME * 8 * 10_000


@pytest.mark.parametrize(("flows", "queue"), [(1, 60), (2, 60), (2, 200), (2, 1000)])
def test_cubic_flows_fill_a_link_and_share_it(flows: int, queue: int) -> None:
    link = LinkParameters(rate_bps=10**8, latency_ns=100_000, queue_bytes=queue * FRAME, framing_bytes=0)
    seen = shared(flows, "cubic", link, 20_000, lambda network: network.flows.rows["expected"].copy(), 5_000)
    packets = seen[-1] - seen[0]
    whole = 1e8 * 10 / 8 / FRAME
    assert packets.sum() > 0.98 * whole
    assert packets.min() > 0.5 * whole / flows


def test_dctcp_fills_a_link_with_a_queue_of_about_what_is_not_marked() -> None:
    """RFC 8257, and Alizadeh et al., SIGCOMM 2010: the queue varies by less than its threshold."""
    link = LinkParameters(
        rate_bps=10**10, latency_ns=5_000, queue_bytes=1000 * FRAME, mark_bytes=65 * FRAME, framing_bytes=0
    )
    found: list[int] = []

    def look(network: Network) -> Any:
        links = network.link_records
        found[:] = [int(links["lost_in_queue"].sum()), int(links["marked"].sum())]
        busy_ps = links["busy_ps"][links["to_node"] == network.hosts[-1].number]
        return network.flows.rows["expected"].copy(), (busy_ps[0] - network.now_ps) / 1e12 * 1e10 / 8 / FRAME

    seen = shared(4, "dctcp", link, 60, look, 1)
    packets = seen[-1][0] - seen[20][0]
    assert packets.sum() > 0.98 * 1e10 * 0.038 / 8 / FRAME
    assert packets.min() > 0.8 * packets.max()
    lost, marked = found
    assert lost == 0
    assert marked > 0
    assert 30 < np.mean([queue for _, queue in seen[20:]]) < 100


@pytest.mark.parametrize(
    ("window", "delay_ms", "threshold"),
    [(15, 9, 1000), (16, 4, 1000), (16, 9, 16)],
    ids=["small", "soon", "late"],
)
def test_slow_start_ends_once_a_large_window_makes_round_trips_longer(
    window: int, delay_ms: int, threshold: int
) -> None:
    """HyStart++ (RFC 9406): from 16 packets on, when round trips have grown by an eighth of the least one."""
    flow = np.zeros(1, FLOW)[0]
    flow["control"], flow["outstanding"], flow["window"] = CUBIC, window, window * PER_PACKET
    flow["threshold"] = 1000 * PER_PACKET
    flow["least_rtt_ps"], flow["srtt_ps"] = 40 * MS * 1000, (40 + delay_ms) * MS * 1000
    grow(np.zeros(1, WORLD)[0], flow, np.int64(1))
    assert flow["threshold"] == threshold * PER_PACKET
