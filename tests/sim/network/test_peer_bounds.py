"""Bounds of peers by the bytes of their busiest link, against runs of all packets."""

import pytest

from sim.errors import SettingError
from sim.experiments.experiment import load_experiment
from sim.experiments.running import run_point
from tests.sim.network.peer_bounds import bounded_peers, least_ns

SIZE = 10_000_000


@pytest.mark.parametrize("workers", [8, 64])
@pytest.mark.parametrize("peer", bounded_peers())
def test_a_run_takes_a_little_longer_than_the_bound(peer: str, workers: int) -> None:
    size = SIZE // 10 if peer == "ps" else SIZE
    settings: dict[str, object] = {"job.contender": [peer], "job.workers": [workers], "job.size": f"{size}B"}
    if peer == "ps":
        settings["transport.pieces"] = 256
    (point,) = load_experiment("racks", settings).points
    (row,) = run_point(point, {}).rows
    share = least_ns(peer, workers, size) / row["duration_ns"]
    assert 0.93 < share <= 1.0


def test_a_ring_of_two_sends_each_array_once() -> None:
    assert least_ns("ring", 2, 1448 * 1000) == pytest.approx((1448 + 1.5 * 90) * 8000 / 10)


def test_an_unknown_peer_gets_a_sentence() -> None:
    with pytest.raises(SettingError, match="expected one of ring"):
        least_ns("tree", 2, 1000)
