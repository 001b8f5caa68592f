"""Block-sparse reductions: blocks that are zero at every worker do not travel.

A block is what the lanes of a packet hold. Each worker finds the blocks in which it has anything but zeros, the switch
combines the workers' bitmaps of them by bitwise or, and then only the blocks of this union travel. A worker that has
nothing in a block of the union contributes as one without data does: a header, or zeros where a header could not grow
into the result (`without_data`). So every slot still gets a contribution of every worker, and everything that holds for
dense collectives holds here (docs/protocol.md, "Block-sparse reductions").

Bitmaps and data take turns. The data of the blocks of one bitmap is sent when its union is there, while the next bitmap
is on its way. How many packets a bitmap takes follows from the union before it, which all workers have: more where few
blocks are left, so that a thin array is not one round trip after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from host_agent.codecs import bitmap as bitmaps
from host_agent.codecs.bitmap import WORD_BLOCKS
from host_agent.codecs.raw import WORDS
from host_agent.errors import MisuseError
from host_agent.protocol.passes import Pass
from host_agent.statistics import Statistics
from host_agent.wire import Admission
from host_agent.wire.constants import OP_BOR

Sparse = Literal["auto", "always", "never"]
SPARSE: Final[tuple[Sparse, ...]] = ("auto", "always", "never")

AUTO_LEAST_BYTES: Final = 1 << 20
"""From this size on arrays are looked at by default: two round trips more are then a small part of the time."""
MOST_BITMAP_PACKETS: Final = 8
"""At once; the search for the blocks of more keeps a worker from its socket for too long."""
PHASES: Final = 250
"""Passes that are told apart by their fingerprints, one after the other."""
BLOCKS_A_TURN: Final = 4
"""A bitmap is meant to bring so many blocks for each slot."""


def is_sparse(choice: Sparse, work: Pass, op: str) -> bool:
    """Whether a reduction leaves out blocks of zeros; all workers answer alike.

    Parameters
    ----------
    choice : {"auto", "always", "never"}
        The caller's.
    work : Pass
        Over the whole array.
    op : str
        For the message.

    Raises
    ------
    MisuseError
        If the caller insists on an operation that zeros take part in.
    """
    if choice == "never" or work.target.size == 0:
        return False
    if work.codec.nonzero is None:
        if choice == "always":
            raise MisuseError(
                f"sparse='always': op {op!r} cannot leave out zeros, only sum, mean and bor can"
            )
        return False
    return choice == "always" or work.target.nbytes >= AUTO_LEAST_BYTES


@dataclass
class _Bitmap:
    """The blocks `first` to `first + count` of an array, and the pass that unites the workers' bitmaps of them."""

    first: int
    count: int
    work: Pass


class BlockSparse:
    """The passes of one block-sparse reduction.

    Parameters
    ----------
    admission : Admission
        This worker's.
    whole : Pass
        What the reduction would be if it were dense.
    mark : callable
        Returns the fingerprint of a pass, given a number that no neighbour has.

    Attributes
    ----------
    data : list of Pass
        Those over blocks of the union, as far as they are known.
    """

    def __init__(self, admission: Admission, whole: Pass, mark: Callable[[int], int]) -> None:
        self._admission = admission
        self._whole = whole
        self._mark = mark
        self._phase = 0
        lane_count = admission.lanes
        self._block_elements = lane_count * whole.codec.per_lane
        self._blocks = -(-whole.target.size // self._block_elements)
        self._own = np.zeros(self._blocks, np.uint16)
        self._payloads = np.ascontiguousarray(whole.lay_out(lane_count, admission.slot_count)["payload"])
        self._target_bytes = whole.target.view(np.uint8)
        self._own_blocks = self._union_blocks = 0
        self.data: list[Pass] = []

    def passes(self) -> Iterator[Pass | None]:
        """Yield bitmaps and data in turns."""
        bitmap: _Bitmap | None = self._bitmap_from(0, 1)
        assert bitmap is not None
        yield bitmap.work
        while bitmap is not None:
            while not bitmap.work.done:
                yield None
            union = self._union_of(bitmap)
            following = self._bitmap_from(
                bitmap.first + bitmap.count, self._packets_after(bitmap, union.size)
            )
            if following is not None:
                yield following.work
            if union.size:
                work = replace(self._whole, fingerprint=self._next_mark(), blocks=union, own=self._own)
                self.data.append(work)
                yield work
            bitmap = following

    def count(self, statistics: Statistics) -> None:
        """Add how many blocks there were, how many this worker had, and how many travelled."""
        statistics.sparse_blocks += self._blocks
        statistics.own_blocks += self._own_blocks
        statistics.union_blocks += self._union_blocks

    def _bitmap_from(self, first: int, packets: int) -> _Bitmap | None:
        """Find this worker's blocks from `first` on, as many as the bits of so many packets."""
        count = min(packets * self._admission.lanes * WORD_BLOCKS, self._blocks - first)
        if count == 0:
            return None
        words = np.empty(-(-count // WORD_BLOCKS), np.uint32)
        nonzero = self._whole.codec.nonzero
        assert nonzero is not None
        self._own_blocks += bitmaps.find_blocks(
            self._payloads, nonzero.address, self._admission.lanes, first, count, self._own, words
        )
        return _Bitmap(first, count, Pass(WORDS, OP_BOR, self._next_mark(), words, words))

    def _union_of(self, bitmap: _Bitmap) -> npt.NDArray[np.int64]:
        """Return the blocks of the union, after filling all others of the result with zeros."""
        words: Any = bitmap.work.target
        block_bytes = self._block_elements * self._whole.target.itemsize
        bitmaps.clear_blocks(
            words, bitmap.count, block_bytes, self._target_bytes[bitmap.first * block_bytes :]
        )
        blocks = np.empty(bitmap.count, np.int64)
        listed = blocks[: bitmaps.list_blocks(words, bitmap.first, bitmap.count, blocks)].copy()
        self._union_blocks += listed.size
        return listed

    def _packets_after(self, bitmap: _Bitmap, union_blocks: int) -> int:
        """Return how many packets the next bitmap takes, by how full this one was; alike at all workers."""
        wanted = BLOCKS_A_TURN * self._admission.slot_count
        blocks = wanted * bitmap.count // max(union_blocks, 1)
        return max(1, min(blocks // (self._admission.lanes * WORD_BLOCKS), MOST_BITMAP_PACKETS))

    def _next_mark(self) -> int:
        mark = self._mark(self._phase)
        self._phase = (self._phase + 1) % PHASES
        return mark
