"""`netsum bench engine`: its packets are a job's, and all of them are added."""

from bench.engine import measure


def test_all_packets_of_the_measurement_are_aggregated() -> None:
    comparison = measure(64, runs=1, with_bmv2=False)  # It raises if a result is missing.

    assert len(comparison.engine) == 1
    assert comparison.ratio is None
