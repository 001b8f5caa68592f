import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_agent.codecs.halves import high_halves_to_lanes, join_halves, low_halves_to_lanes
from host_agent.codecs.raw import words_from_lanes, words_to_lanes

LANES = 8
elements = st.one_of(st.sampled_from([-(2**31), 2**31 - 1, -1, 0, 1]), st.integers(-(2**31), 2**31 - 1))


@given(st.lists(st.lists(elements, min_size=3, max_size=3), min_size=1, max_size=32))
def test_sums_by_halves_are_exact_or_counted(rows: list[list[int]]) -> None:
    low = np.zeros(LANES, np.int64)
    high = np.zeros(LANES, np.int64)
    lanes = np.empty(LANES, np.uint32)
    for row in rows:
        values = np.array(row, np.int32)
        low_halves_to_lanes(values, lanes)
        low += lanes.view(">i4")
        high_halves_to_lanes(values, lanes)
        high += lanes.view(">i4")
    for half in (low, high):
        assert np.abs(half).max() < 2**30, "the switch never saturates"
    out = low[:3].astype(np.int32)
    overflowed = join_halves(high.astype(">i4").view(np.uint32), out)
    exact = np.array(rows, np.int64).sum(axis=0)
    np.testing.assert_array_equal(out, np.clip(exact, -(2**31), 2**31 - 1))
    assert overflowed == (out != exact).sum()


@pytest.mark.parametrize("flip", [0, -1])
@given(values=st.lists(elements, min_size=1, max_size=LANES))
def test_words_come_back(flip: int, values: list[int]) -> None:
    words = np.array(values, np.int32).view(np.uint32)
    lanes = np.full(LANES, 7, np.uint32)
    words_to_lanes(words, flip, lanes)
    np.testing.assert_array_equal(lanes.view(">i4")[: words.size], words.view(np.int32) ^ flip)
    assert not lanes[words.size :].any()
    out = np.empty_like(words)
    words_from_lanes(lanes, flip, out)
    np.testing.assert_array_equal(out, words)
