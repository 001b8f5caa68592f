"""The error of a run that ends too early."""

import pytest

from sim.network.graph import NAMED_WORKERS, UnfinishedError


@pytest.mark.parametrize(("more", "ending"), [(0, ""), (1, ", 1 other worker"), (2, ", 2 other workers")])
def test_the_first_workers_are_named_and_the_others_counted(more: int, ending: str) -> None:
    error = UnfinishedError([("train", rank) for rank in range(NAMED_WORKERS + more)], 0, None)
    named = ", ".join(f"worker {rank} of job train" for rank in range(NAMED_WORKERS))
    assert str(error) == f"nothing is left to happen, and the run waits for {named}{ending}"
