"""Slot ranges of the jobs on one switch: a power of two long, aligned to their length, disjoint.

Chunk numbers count modulo 2^32 and chunk ``c`` uses slot ``c mod S``. With an S that is no power of two, the slot would jump
when the count wraps. Ranges are aligned so that freed ranges always merge into whole larger ones.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from controller.errors import JobRefusedError
from host_agent.words import plural


@dataclass(frozen=True, order=True)
class SlotRange:
    """Slots ``base`` to ``base + count - 1`` of a switch."""

    base: int  # First slot of the range; a multiple of `count`.
    count: int  # Number of slots; a power of two.

    @property
    def end(self) -> int:
        """The first slot after the range."""
        return self.base + self.count

    def overlaps(self, other: "SlotRange") -> bool:
        """Whether the two ranges share a slot."""
        return self.base < other.end and other.base < self.end


class SlotAllocator:
    """Hands out disjoint slot ranges of one switch."""

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"a switch has at least one slot, not {capacity}")
        self.capacity = capacity
        self._taken: set[SlotRange] = set()

    @property
    def taken(self) -> tuple[SlotRange, ...]:
        """The ranges in use, in order."""
        return tuple(sorted(self._taken))

    @property
    def free_slots(self) -> int:
        """The number of slots that no range holds."""
        return self.capacity - sum(taken.count for taken in self._taken)

    def allocate(self, count: int) -> SlotRange:
        """Take a free range of `count` slots, from the smallest gap that has one.

        Raises JobRefusedError if `count` is not a power of two, or no aligned range of that length is free; the message gives
        the number of free slots.
        """
        self._check(count)
        candidates = [(gap.count, base) for gap in self._gaps() for base in _aligned_bases(gap, count)]
        if not candidates:
            raise JobRefusedError(self._refusal(count))
        chosen = SlotRange(min(candidates)[1], count)
        self._taken.add(chosen)
        return chosen

    def reserve(self, slots: SlotRange) -> None:
        """Reserve a given range, such as one that an earlier allocator had allocated.

        Raises JobRefusedError if the range is not entirely free.
        """
        if slots.end > self.capacity or any(slots.overlaps(taken) for taken in self._taken):
            raise JobRefusedError(
                f"slots {slots.base} to {slots.end - 1} are not free on a switch of {self.capacity} slots"
            )
        self._taken.add(slots)

    def free(self, slots: SlotRange) -> None:
        """Give a range back; `KeyError` if the range is not in use."""
        self._taken.remove(slots)

    def resize(self, slots: SlotRange, count: int) -> SlotRange:
        """Exchange a range in use for a range of `count` slots, or of the largest smaller power of two that is possible.

        A smaller range is the first part of the old one. A larger one may contain it.

        Raises KeyError if the range is not in use. Raises JobRefusedError if `count` is not a power of two.
        """
        self.free(slots)
        if count <= slots.count:
            self._check(count)
            chosen = SlotRange(slots.base, count)
            self._taken.add(chosen)
            return chosen
        while count > slots.count:
            try:
                return self.allocate(count)
            except JobRefusedError:
                count //= 2
        self._taken.add(slots)
        return slots

    def would_have(self, slots: SlotRange, count: int) -> int:
        """Return the length of the range that `resize` would give; nothing changes."""
        tried = SlotAllocator(self.capacity)
        tried._taken = set(self._taken)
        return tried.resize(slots, count).count

    def largest_free(self) -> int:
        """Return the length of the longest range that could be allocated now; 0 if none."""
        count = 1 << (self.capacity.bit_length() - 1)
        while count and not any(_aligned_bases(gap, count) for gap in self._gaps()):
            count //= 2
        return count

    @staticmethod
    def _check(count: int) -> None:
        if count < 1 or count & (count - 1):
            raise JobRefusedError(
                f"a job's slots must be a power of two (chunk numbers wrap at 2^32), not {count}"
            )

    def _gaps(self) -> Iterable[SlotRange]:
        start = 0
        for taken in self.taken:
            if taken.base > start:
                yield SlotRange(start, taken.base - start)
            start = taken.end
        if start < self.capacity:
            yield SlotRange(start, self.capacity - start)

    def _refusal(self, count: int) -> str:
        if count > self.capacity:
            return f"{plural(count, 'slot')} requested, but the switch has {self.capacity}"
        largest = self.largest_free()
        room = f" and the longest free range has {largest}: request fewer" if largest else ": wait"
        return f"{plural(count, 'slot')} requested; {self.free_slots} of the switch's {self.capacity} are free{room} or end a job"


def _aligned_bases(gap: SlotRange, count: int) -> range:
    """Return every multiple of `count` at which a range of that length fits into the gap."""
    first_multiple = -(-gap.base // count) * count
    return range(first_multiple, gap.end - count + 1, count)
