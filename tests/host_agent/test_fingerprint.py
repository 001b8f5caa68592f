from itertools import combinations
from typing import Any

import pytest

from host_agent.wire import fingerprint

BASE: dict[str, Any] = {
    "kind": 1,
    "op": 1,
    "dtype_kind": ord("f"),
    "item_bytes": 4,
    "count": 1000,
    "sequence": 5,
    "root": 0,
    "phase": 0,
}


def test_it_is_the_same_for_workers_of_different_releases() -> None:
    assert fingerprint(**BASE) == 0x9329


@pytest.mark.parametrize("name", [name for name in BASE if name not in ("count", "sequence")])
def test_collectives_that_differ_in_one_small_field_never_collide(name: str) -> None:
    marks = {fingerprint(**BASE | {name: value}) for value in range(256)}
    assert len(marks) == 256


@pytest.mark.parametrize("name", ["count", "sequence"])
def test_near_counts_and_sequence_numbers_never_collide(name: str) -> None:
    marks = {fingerprint(**BASE | {name: value}) for value in range(65_536)}
    assert len(marks) == 65_536


def test_unrelated_collectives_rarely_collide() -> None:
    marks = [
        fingerprint(**BASE | {"op": op, "item_bytes": size, "count": count, "sequence": sequence})
        for op in (1, 2, 5)
        for size in (2, 4, 8)
        for count in (1, 100, 10**6, 10**9)
        for sequence in (0, 1, 70_000)
    ]
    collisions = sum(left == right for left, right in combinations(marks, 2))
    assert collisions <= 3


def test_the_sequence_number_wraps() -> None:
    assert fingerprint(**BASE | {"sequence": 2**32 + 5}) == fingerprint(**BASE)
