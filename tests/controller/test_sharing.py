"""How jobs share slots, as numbers."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.sharing import Claim, jain, share_out
from controller.slots import SlotAllocator, SlotRange


def counts(*claims: Claim, capacity: int = 1024, least: int = 1) -> list[int]:
    switches = {switch for claim in claims for switch in claim.switches}
    found = share_out(claims, dict.fromkeys(switches, capacity), least)
    return [found[claim.name] for claim in claims]


def claim(name: str, most: int = 1024, weight: float = 1.0, on: str = "s", fixed: int | None = None) -> Claim:
    return Claim(name, tuple(on), most, weight, fixed)


def test_equal_jobs_get_equal_slots() -> None:
    assert counts(claim("a")) == [1024]
    assert counts(claim("a"), claim("b")) == [512, 512]
    assert counts(claim("a"), claim("b"), claim("c")) == [256, 256, 256]


def test_what_a_job_cannot_use_goes_to_the_others() -> None:
    assert counts(claim("a", most=16), claim("b"), claim("c")) == [16, 256, 256]
    assert counts(claim("a", most=16), claim("b")) == [16, 512]
    assert counts(claim("a", fixed=512), claim("b"), claim("c")) == [512, 256, 256]


def test_weights() -> None:
    assert counts(claim("a", weight=2), claim("b"), claim("c")) == [512, 256, 256]
    assert counts(claim("a", weight=4), claim("b"), capacity=320) == [256, 64]


def test_jobs_beyond_the_least_get_nothing() -> None:
    assert counts(*(claim(str(n)) for n in range(5)), capacity=32, least=8) == [8, 8, 8, 8, 0]
    assert counts(claim("a", most=2), claim("b"), capacity=8, least=4) == [2, 4]


def test_a_job_on_several_switches_is_bound_by_the_fullest() -> None:
    found = counts(claim("a", on="lr"), claim("b", on="l"), claim("c", on="l"), claim("d", on="r"))
    assert found == [256, 256, 256, 512]


names = st.sampled_from("xyz")
claims = st.lists(
    st.tuples(
        st.frozensets(names, min_size=1),
        st.integers(0, 10).map(lambda n: 1 << n),
        st.sampled_from([1, 2, 3.5]),
    ),
    min_size=1,
    max_size=12,
)


@given(claims, st.integers(1, 1024), st.integers(0, 4).map(lambda n: 1 << n))
def test_shares_fit_and_no_job_envies_an_equal(
    asked: list[tuple[frozenset[str], int, float]], capacity: int, least: int
) -> None:
    asking = [Claim(str(n), on, most, weight) for n, (on, most, weight) in enumerate(asked)]
    found = share_out(asking, dict.fromkeys("xyz", capacity), least)
    for switch in "xyz":
        assert sum(found[one.name] for one in asking if switch in one.switches) <= capacity
    for one in asking:
        count = found[one.name]
        assert count & (count - 1) == 0
        assert count <= one.most
        assert count == 0 or count >= min(least, one.most)
    alike = [one for one in asking if found[one.name]]
    for one in alike:
        for other in alike:
            same = one.switches == other.switches and one.weight == other.weight
            if same and found[one.name] < found[other.name]:
                assert found[one.name] == one.most


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 6)), max_size=60))
def test_ranges_stay_disjoint_and_aligned_over_resizes(steps: list[tuple[int, int]]) -> None:
    allocator = SlotAllocator(64)
    held: list[SlotRange] = [allocator.allocate(8) for _ in range(8)]
    for which, power in steps:
        expected = allocator.would_have(held[which], 1 << power)
        before = held[which].count
        held[which] = allocator.resize(held[which], 1 << power)
        assert held[which].count == expected
        assert expected == 1 << power or before <= expected < 1 << power
        assert held[which].base % held[which].count == 0
        assert allocator.taken == tuple(sorted(held))
        assert all(one.end <= other.base for one, other in pairwise(allocator.taken))


def test_jain() -> None:
    assert jain([]) == jain([3]) == jain([5, 5, 5]) == 1
    assert jain([1, 0, 0, 0]) == 0.25
    assert jain([2, 1]) == pytest.approx(0.9)
