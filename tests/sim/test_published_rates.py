"""Simulated rates beside those of SwitchML's figure 3 (Sapio et al. 2021), million elements/s at each of four workers.

docs/simulator.md has the other rows of the figure, and more workers.
"""

from typing import Any

import pytest

from netsum.simulation import programs
from sim.experiments.experiment import parse_experiment
from sim.experiments.running import run_point

STAR = """
[topology]
latency = "1us"
[switch]
latency = "500ns"
[[job]]
size = "16MiB"
slots = 128
workers = 4
"""


@pytest.mark.parametrize(
    ("settings", "published", "most_apart"),
    [
        ({}, 285, 0.02),
        ({"job.lanes": 64}, 242, 0.05),
        ({"job.contender": "ring"}, 187, 0.03),
        ({"job.contender": "ps", "job.servers": 4, "transport.segment": 256}, 203, 0.03),
    ],
    ids=["256 elements", "64 elements", "ring (NCCL)", "parameter servers, 256 bytes of data in a packet"],
)
def test_rates_are_the_published_ones(settings: dict[str, Any], published: int, most_apart: float) -> None:
    (point,) = parse_experiment(STAR, "published", settings).points
    goodput_bps = run_point(point, programs()).rows[0]["goodput_bps"]
    assert goodput_bps / 32e6 == pytest.approx(published, rel=most_apart)
