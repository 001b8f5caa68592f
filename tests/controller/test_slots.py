"""Slot ranges: disjoint, aligned, freed, and refused exactly when there is no room."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from controller.errors import JobRefusedError
from controller.slots import SlotAllocator, SlotRange

POWERS = st.integers(0, 7).map(lambda exponent: 1 << exponent)


def has_room(capacity: int, taken: tuple[SlotRange, ...], count: int) -> bool:
    """The definition, slot by slot."""
    used = {slot for one in taken for slot in range(one.base, one.end)}
    return any(used.isdisjoint(range(base, base + count)) for base in range(0, capacity - count + 1, count))


class Allocations(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.allocator = SlotAllocator(96)
        self.held: list[SlotRange] = []

    @rule(count=POWERS)
    def allocate(self, count: int) -> None:
        room = has_room(96, self.allocator.taken, count)
        try:
            self.held.append(self.allocator.allocate(count))
        except JobRefusedError:
            assert not room
        else:
            assert room
            assert self.held[-1].count == count

    @precondition(lambda self: self.held)
    @rule(choice=st.randoms(use_true_random=False))
    def free(self, choice) -> None:  # type: ignore[no-untyped-def]
        self.allocator.free(self.held.pop(choice.randrange(len(self.held))))

    @invariant()
    def ranges_are_disjoint_aligned_and_inside(self) -> None:
        slots = [slot for one in self.held for slot in range(one.base, one.end)]
        assert len(slots) == len(set(slots)) == 96 - self.allocator.free_slots
        assert all(one.base % one.count == 0 and one.end <= 96 for one in self.held)
        assert self.allocator.taken == tuple(sorted(self.held))

    @invariant()
    def largest_free_is_the_largest_that_has_room(self) -> None:
        fitting = [1 << e for e in range(7) if has_room(96, self.allocator.taken, 1 << e)]
        assert self.allocator.largest_free() == max(fitting, default=0)


TestAllocations = Allocations.TestCase


@given(count=st.integers(-5, 5000).filter(lambda n: n < 1 or n & (n - 1)))
def test_only_powers_of_two(count: int) -> None:
    with pytest.raises(JobRefusedError, match=rf"power of two .*not {count}$"):
        SlotAllocator(1024).allocate(count)


def test_refusals_say_what_is_free() -> None:
    allocator = SlotAllocator(16)
    with pytest.raises(JobRefusedError, match=r"^32 slots requested, but the switch has 16$"):
        allocator.allocate(32)
    small = [allocator.allocate(4) for _ in range(4)]
    with pytest.raises(JobRefusedError, match="0 of the switch's 16 are free: wait or end a job$"):
        allocator.allocate(1)
    allocator.free(small[0])
    allocator.free(small[2])
    with pytest.raises(
        JobRefusedError, match="8 of the switch's 16 are free and the longest free range has 4"
    ):
        allocator.allocate(8)
    allocator.free(small[1])
    assert allocator.allocate(8) == SlotRange(0, 8)


def test_a_small_range_does_not_break_a_large_gap() -> None:
    allocator = SlotAllocator(32)
    first, _ = allocator.allocate(4), allocator.allocate(4)
    allocator.free(first)
    assert allocator.allocate(2) == SlotRange(0, 2)


def test_a_range_is_freed_once() -> None:
    allocator = SlotAllocator(8)
    slots = allocator.allocate(8)
    allocator.free(slots)
    with pytest.raises(KeyError):
        allocator.free(slots)


def test_a_switch_without_slots_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one slot"):
        SlotAllocator(0)
