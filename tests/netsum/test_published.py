"""Simulated rates beside published ones."""

import pytest

from netsum.bench.published import SWITCHML, _million_elements_per_s


@pytest.mark.parametrize(
    ("name", "most_apart"),
    [
        ("256 elements, 10 Gbit/s (netsum)", 0.02),
        ("64 elements, 10 Gbit/s (netsum)", 0.05),
        ("ring (NCCL)", 0.03),
        ("the same, 256 bytes of data in a packet", 0.03),
    ],
)
def test_rates_are_the_published_ones(name: str, most_apart: float) -> None:
    settings, published = next((row[1], row[2]) for row in SWITCHML if row[0] == name)
    assert published is not None
    assert _million_elements_per_s(settings, 4) == pytest.approx(published[0], rel=most_apart)
