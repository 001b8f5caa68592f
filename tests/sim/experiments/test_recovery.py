"""Cost of one lost packet in a hundred, in virtual time: the share of the bound, and retransmissions."""

import pytest

from netsum.simulation import programs
from sim.experiments.experiment import parse_experiment
from sim.experiments.running import run_point

KIB = 1024
STAR = 'kind = "star"\nrate = "50mbit"'
TREE = 'kind = "file"\nfile = "leaf-spine-8"\nrate = "100mbit"'


@pytest.mark.parametrize("window", ["0", "1"])
@pytest.mark.parametrize(
    ("topology", "tree", "share", "needed"), [(STAR, "false", 0.93, 0.020), (TREE, "true", 0.9, 0.031)]
)
def test_eight_workers_lose_one_packet_in_a_hundred(
    topology: str, tree: str, share: float, needed: float, window: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`needed` contributions a chunk are lost on this worker's way, or fetch a RESULT that was."""
    monkeypatch.setenv("NETSUM_CONGESTION_WINDOW", window)
    text = f"""
    [topology]
    {topology}
    latency = 0
    framing = 0
    [[job]]
    workers = 8
    tree = {tree}
    slots = 128
    size = "4MiB"
    [[fault]]
    loss = "1%"
    [run]
    seeds = 2
    """
    rows = [row for point in parse_experiment(text, "x").points for row in run_point(point, programs()).rows]
    assert min(row["share_of_bound"] for row in rows) > share
    contributions = len(rows) * 8 * (4 * KIB + 128)
    assert sum(row["resent"] for row in rows) < 2 * needed * contributions
