"""The congestion window on networks with short queues, beside what fixed slots do there."""

import pytest

from sim.experiments.experiment import parse_experiment
from sim.experiments.running import Watch, run_point
from tests.sim.experiments.congestion_rows import beside_tcp

STAR = """
[topology]
rate = "10gbit"
latency = "2us"
queue = "100kB"
[[job]]
workers = 4
size = "4MiB"
slots = 256
sparse = "never"
"""


def on_star(programs: dict[int, str], more: str = "") -> tuple[float, int]:
    """Return the share of the link's bound that a job reaches, and how many packets were lost."""
    (point,) = parse_experiment(STAR + more, "star", None).points
    (row,) = run_point(point, programs, Watch()).rows
    return row["share_of_bound"], row["lost"]


def test_more_slots_than_a_link_needs_do_not_overrun_the_hosts_own_queue(
    programs: dict[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    share, lost = on_star(programs)
    assert share < 0.5
    assert lost > 10_000
    monkeypatch.setenv("NETSUM_CONGESTION_WINDOW", "1")
    share, lost = on_star(programs)
    assert share > 0.95
    assert lost == 0


def test_losses_by_chance_do_not_keep_a_job_from_filling_its_link(
    programs: dict[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NETSUM_CONGESTION_WINDOW", "1")
    share, _ = on_star(programs, '[[fault]]\nloss = "1%"\n')
    assert share > 0.9


def test_a_job_whose_packets_queues_mark_fills_its_link_without_losses(
    programs: dict[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NETSUM_CONGESTION_WINDOW", "1")
    (point,) = parse_experiment(STAR.replace("[[job]]", 'mark = "10kB"\n[[job]]'), "star", None).points
    watch = Watch()
    (row,) = run_point(point, programs, watch).rows
    assert row["share_of_bound"] > 0.9
    assert row["lost"] == 0
    assert watch.scenario is not None
    workers = watch.scenario.network.workers
    assert any(worker.core.state["congested"][0] > 0 for worker in workers)
    assert not any(worker.core.state["malformed"][0] > 0 for worker in workers)


@pytest.mark.parametrize("queue", [60, 200, 1000])
def test_a_job_and_a_cubic_flow_get_more_than_seven_tenths_of_an_equal_share(
    queue: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NETSUM_CONGESTION_WINDOW", "1")
    ours, theirs = beside_tcp(queue, 1)
    assert ours > 0.7
    assert theirs > 0.7
