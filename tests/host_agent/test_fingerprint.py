"""Collectives that differ are distinguished but for one pair in 2^28, for any difference."""

from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_agent.wire.fingerprint import describe_dtype, fingerprint

BASE: dict[str, Any] = {"kind": "allreduce", "op": "sum", "dtype": "'<f4'", "count": 1000, "sequence": 5}


def test_it_is_the_same_for_workers_of_different_releases() -> None:
    assert fingerprint(**BASE) == 0x808B06


def test_the_order_of_what_is_agreed_on_does_not_matter() -> None:
    assert fingerprint(**dict(reversed(BASE.items()))) == fingerprint(**BASE)


@pytest.mark.parametrize("name", ["count", "sequence"])
@pytest.mark.parametrize("step", [1, 2, 256, 65_536, 69_665])
def test_no_difference_of_numbers_collides_by_structure(name: str, step: int) -> None:
    marks = [fingerprint(**BASE | {name: step * each}) for each in range(10_000)]
    assert not any(left == right for left, right in pairwise(marks))
    assert len(set(marks)) > 9_995  # of 10,000 drawn from 2^28: 9,999.8 on average


@given(st.integers(0, 2**40), st.integers(0, 20))
def test_counts_that_a_crc_takes_for_each_other(count: int, shift: int) -> None:
    others = [count ^ (0x11021 << each) for each in range(shift, shift + 4)]
    marks = {fingerprint(**BASE | {"count": each}) for each in others}
    assert len(marks - {fingerprint(**BASE | {"count": count})}) == 4


def test_types_differ_by_everything_but_the_byte_order_of_the_machine() -> None:
    struct = [("x", "f4")], [("x", "i4")], [("y", "f4")], [("x", "f4"), ("y", "f4")]
    types: tuple[Any, ...] = (
        "f4",
        "i4",
        "u4",
        "f8",
        "M8[s]",
        "M8[ns]",
        "m8[s]",
        "S300",
        "S44",
        "U11",
        "V4",
        "?",
        *struct,
    )
    for left, right in combinations(types, 2):
        assert describe_dtype(np.dtype(left)) != describe_dtype(np.dtype(right))
    assert describe_dtype(np.dtype(">f4")) == describe_dtype(np.dtype("<f4"))
