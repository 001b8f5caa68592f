"""Pauses in which a worker leaves its socket alone."""

import numpy as np
import pytest

from host_agent.protocol.records import CORE
from host_agent.transport.messages import LONGEST_PAUSE_NS, pace_ns

MS = 1_000_000


def pause_ns(*, in_flight: int, received: int, result_ns: int) -> int:
    state = np.zeros(1, CORE)
    state["in_flight"], state["result_ns"] = in_flight, result_ns
    return int(pace_ns(state[0], received))


def test_an_eighth_of_the_way_after_few_of_many() -> None:
    assert pause_ns(in_flight=64, received=2, result_ns=4 * MS) == MS // 2


def test_never_long() -> None:
    assert pause_ns(in_flight=64, received=2, result_ns=400 * MS) == LONGEST_PAUSE_NS


@pytest.mark.parametrize(
    ("in_flight", "received", "result_ns"),
    [
        (64, 8, 4 * MS),  # a good batch
        (15, 1, 4 * MS),  # the end of a collective, or a small one: its last RESULTs are waited for
        (64, 2, MS // 2),  # a short way
    ],
)
def test_not_at_all(in_flight: int, received: int, result_ns: int) -> None:
    assert pause_ns(in_flight=in_flight, received=received, result_ns=result_ns) == 0
