"""The arrays that compiled code reads and writes: they grow, and the world's record holds their addresses."""

import contextlib
import mmap
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from host_agent.wire.constants import HEADER_BYTES, STATUS_BYTES
from host_agent.wire.header import HEADER_WORDS, STATUS_WORDS
from sim.core_calls import SHIPPED
from sim.network.engine.engine_records import PACKET, WORLD
from sim.network.engine.events import HEAP_WORDS
from sim.network.engine.packets import PAYLOAD_AT

_LINE: Final = 64
_FIRST_PACKETS: Final = 4096
_FIRST_MARGIN: Final = 1024

Array = npt.NDArray[Any]


def address_of(array: Array) -> int:
    """Return the address of an array's memory."""
    return int(array.__array_interface__["data"][0])


def together(sizes: Sequence[int], count: int) -> list[list[Array]]:
    """Return `count` lists of byte arrays of these sizes, all in one mapping with huge pages.

    In pages of 4 KiB, thousands of small arrays would need more entries than a processor's TLB has.
    """
    rounded = [-(-size // _LINE) * _LINE for size in sizes]
    stride = (
        sum(rounded) // _LINE | 1
    ) * _LINE  # With an odd number of lines, successive lists are in different cache sets.
    memory = mmap.mmap(-1, max(stride * count, 1))
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # The kernel has no huge pages.
            memory.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(memory, np.uint8)
    starts = np.cumsum([0, *rounded[:-1]])
    return [
        [whole[stride * at + start :][:size] for start, size in zip(starts, sizes, strict=True)]
        for at in range(count)
    ]


class RecordRows:
    """A structured array to which rows can be added."""

    def __init__(self, world: Array, field: str, kind: np.dtype[Any]) -> None:
        self._world = world
        self._field = field
        self._rows = np.zeros(8, kind)
        self.count = 0
        world[field] = address_of(self._rows)

    def __len__(self) -> int:
        return self.count

    @property
    def rows(self) -> Array:
        """The rows; a view that is valid until a row is added."""
        return self._rows[: self.count]

    def __getitem__(self, number: int) -> Any:
        return self._rows[number]

    def add(self, **values: int) -> int:
        """Add a row; fields that are not named are 0. Returns its number."""
        return self.extend(1, **values)

    def extend(self, count: int, **values: Any) -> int:
        """Add rows; a value is an array with one element per row, or the same for all. Return the first row's number."""
        first, need = self.count, self.count + count
        if need > len(self._rows):
            grown = np.zeros(max(need, 2 * len(self._rows)), self._rows.dtype)
            grown[:first] = self._rows[:first]
            self._rows = grown
            self._world[self._field] = address_of(grown)
        for name, value in values.items():
            self._rows[name][first:need] = value
        self.count = need
        return first


class NetworkMemory:
    """The world's record, the arrays that it points to, and their room for packets and events.

    `lanes`: the most int32 values that a packet carries.
    """

    def __init__(self, seed: int, lanes: int) -> None:
        self.world = np.zeros(1, WORLD)  # WORLD array of one element, the argument of compiled code.
        self.margin = _FIRST_MARGIN  # Packets and events that one event may need at most.
        self._arrays: dict[str, Array] = {}
        world = self.world[0]
        world["core_take_in"], world["core_transmit"] = SHIPPED.receive.address, SHIPPED.send.address
        world["seed"] = seed & (1 << 63) - 1
        # A row has room for a frame, and an odd number of lines, so that successive rows are in different cache sets.
        lines = (PAYLOAD_AT + HEADER_BYTES + 4 * lanes + STATUS_BYTES + 63) // 64
        world["row_bytes"] = 64 * (lines | 1)
        self._set_room(_FIRST_PACKETS)
        scratch_bytes = 4 * (max(HEADER_WORDS + lanes, STATUS_WORDS) + 1)
        self.keep("scratch", np.zeros((64, scratch_bytes), np.uint8))
        world["scratch_rows"], world["scratch_bytes"] = 64, scratch_bytes
        self.keep("scratch_lengths", np.zeros(64, np.int32))
        self.keep("in_length", np.zeros(1, np.int32))
        self.keep("in_port", np.zeros(1, np.uint16))

    @property
    def frames(self) -> Array:
        """The packets' bytes, a row each."""
        return self._arrays["frames"]

    def get(self, field: str) -> Array | None:
        """Return the array whose address is in a field of the world; None if there is none yet."""
        return self._arrays.get(field)

    def keep(self, field: str, array: Array) -> Array:
        """Put an array's address into a field of the world, and keep the array alive."""
        self._arrays[field] = array
        self.world[field] = address_of(array)
        return array

    def need(self, margin: int) -> None:
        """Raise the number of packets and events that one event may need."""
        self.margin = max(self.margin, margin)

    def make_room(self) -> None:
        """Grow until one more event has room."""
        world = self.world[0]
        while min(world["free_count"], world["heap_room"] - world["heap_count"]) < self.margin:
            self.grow()

    def reserve(self, events: int) -> None:
        """Grow until this many more events can be scheduled."""
        world = self.world[0]
        while world["heap_room"] - world["heap_count"] < events + self.margin:
            self.grow()
            self.make_room()

    def grow(self) -> None:
        """Double the room for packets and events."""
        self._set_room(2 * int(self.world["packet_room"][0]))

    def _set_room(self, packets: int) -> None:
        world = self.world[0]
        before = int(world["packet_room"])
        frames = np.zeros((packets, int(world["row_bytes"])), np.uint8)
        records = np.zeros(packets, PACKET)
        heap = np.zeros((2 * packets, HEAP_WORDS), np.int64)
        free = np.zeros(packets, np.int32)
        kept = int(world["free_count"])
        if before:
            frames[:before], records[:before] = self._arrays["frames"], self._arrays["packets"]
            heap[: 2 * before] = self._arrays["heap"]
        free[: packets - before] = np.arange(packets - 1, before - 1, -1)
        if before:
            free[packets - before : packets - before + kept] = self._arrays["free"][:kept]
        self.keep("frames", frames)
        self.keep("packets", records)
        self.keep("heap", heap)
        self.keep("free", free)
        world["packet_room"], world["heap_room"] = packets, 2 * packets
        world["free_count"] = kept + packets - before
