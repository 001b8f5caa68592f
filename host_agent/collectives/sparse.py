"""Block-sparse reductions: blocks that are zero at every worker do not travel.

A block has as many elements as a packet holds. Each worker finds the blocks in which it has anything but zeros, the switch
combines the workers' bitmaps of them by bitwise or, and then only the blocks of this union travel. A worker that has
nothing in a block of the union contributes a header, or zeros where a header could not grow into the result. So every
slot still gets a contribution of every worker, and all guarantees of dense collectives hold here
(docs/protocol.md, "Block-sparse reductions").

Bitmaps and data take turns: bitmap 0, bitmap 1, data of 0, bitmap 2, data of 1, and so on. The data of the blocks of one
bitmap is sent when its union is there, while the next bitmap is on its way and the blocks of those after it are searched
for, in slices, between looks at the network. The first bitmaps are short, so that the first data is sent soon. How many
packets a later one takes follows from a union before it, which all workers have: more where few blocks are left, so that
a thin array is not one round trip after the other. Behind a part without zeros some blocks travel without a bitmap.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from host_agent.codecs import bitmap as bitmaps
from host_agent.codecs.bitmap import WORD_BLOCKS
from host_agent.codecs.payload import NOT_SEARCHED
from host_agent.codecs.raw import WORDS
from host_agent.collectives.collective import BUSY, Passes
from host_agent.errors import MisuseError
from host_agent.protocol.passes import NO_BLOCKS, Pass
from host_agent.statistics import Statistics
from host_agent.wire import Admission
from host_agent.wire.constants import HEADER_BYTES, LANE_BYTES, OP_BOR
from host_agent.wire.parts import PART_BITMAP

Sparse = Literal["auto", "always", "never"]
SPARSE: Final[tuple[Sparse, ...]] = ("auto", "always", "never")

AUTO_LEAST_BYTES: Final = 1 << 20
LOCAL_LEAST_BYTES: Final = 1 << 23
"""From this size on arrays are searched by default: two round trips more are then a small part of the time. The second one is
for packets that no Ethernet carries: worker and switch are on one machine."""
BMV2_GROWTH_BYTES: Final = 512  # Longer blocks that only others have may have travelled as zeros.
ETHERNET_LANES: Final = 256
MOST_BITMAP_PACKETS: Final = 8
SLICE_BYTES: Final = 1 << 20
"""Bytes of the array that are searched or cleared between two polls of the network: some tenths of a millisecond."""
PHASES: Final = 250  # Consecutive passes with different fingerprints.
BLOCKS_A_TURN: Final = 4  # Number of blocks for each slot that a bitmap should announce.
UNSEARCHED: Final = 7
"""After a fully dense bitmap, 7 times the blocks before it travel without a bitmap. The search and the bitmaps take a quarter
of a worker's computing time for a dense array over shared memory."""


def is_sparse(choice: Sparse, work: Pass, op: str, lanes: int) -> bool:
    """Whether a reduction by packets of `lanes` lanes leaves out blocks of zeros; all workers answer alike.

    Raises MisuseError if the caller insists on an operation that zeros take part in.
    """
    if choice == "never" or work.target.size == 0:
        return False
    if work.codec.nonzero is None:
        if choice == "always":
            raise MisuseError(
                f"sparse='always': op {op!r} cannot leave out zeros, only sum, mean and bor can"
            )
        return False
    least = AUTO_LEAST_BYTES if lanes <= ETHERNET_LANES else LOCAL_LEAST_BYTES
    return choice == "always" or work.target.nbytes >= least


@dataclass
class _Bitmap:
    """The blocks `first` to `first + count` of an array, and the pass that unites the workers' bitmaps of them."""

    first: int
    count: int
    work: Pass


class BlockSparse:
    """The passes of one block-sparse reduction.

    `mark`: returns the fingerprint of a pass, given a number that no neighbour has. `skips`: whether blocks behind a dense part
    are not searched; False if the array's parts differ.
    """

    def __init__(
        self, admission: Admission, whole: Pass, mark: Callable[[int], int], *, skips: bool = True
    ) -> None:
        self._skips = skips
        self._admission = admission
        self._whole = whole
        self._mark = mark
        self._phase = 0
        lane_count = admission.lanes
        self._block_elements = lane_count * whole.codec.per_lane
        self._blocks = -(-whole.target.size // self._block_elements)
        self._own = np.zeros(self._blocks, np.uint16)
        self._payloads = np.ascontiguousarray(whole.lay_out(lane_count, admission.slot_count)["payload"])
        self._words = np.zeros(-(-self._blocks // WORD_BLOCKS), np.uint32)
        self._target_words = whole.target.view(np.uint32)
        block_bytes = self._block_elements * whole.target.itemsize
        self._slice_blocks = max(SLICE_BYTES // block_bytes // WORD_BLOCKS, 1) * WORD_BLOCKS
        self._searched = self._in_bitmaps = 0
        self._own_blocks = self._union_blocks = self._bitmap_packets = 0
        self._unsearched = 0  # End of the last part without a bitmap.
        self.data: list[Pass] = []  # Passes over blocks of the union, as far as they are known.

    def passes(self) -> Passes:
        """Yield bitmaps and data in turns."""
        ahead: deque[_Bitmap] = deque()
        united: deque[_Bitmap] = deque()
        searches = not self._skips  # Whether to search while it waits.
        # A second bitmap travels while the first one's data does. With two slices the pipeline would stall for one round trip.
        first = self._slice_blocks if self._blocks > 2 * self._slice_blocks else self._blocks
        for _ in range(2):
            yield from self._next_bitmap(first, ahead)
        while ahead:
            bitmap = ahead.popleft()
            while not bitmap.work.done:
                yield BUSY if searches and self._search_slice() else None
            union = self._union_of(bitmap)
            searches = union.size < bitmap.count or not self._skips
            blocks = union
            if not searches and bitmap.first >= self._unsearched:
                blocks = np.concatenate((union, self._without_bitmap()))
            if blocks.size:
                data = replace(self._whole, fingerprint=self._next_mark(), blocks=blocks, own=self._own)
                self.data.append(data)
                yield data
            yield from self._next_bitmap(self._blocks_after(bitmap, union.size), ahead)
            united.append(bitmap)
        for bitmap in united if self._whole.header_only == NO_BLOCKS else ():
            yield from self._clear(bitmap)

    def count(self, statistics: Statistics) -> None:
        """Add how many blocks there were, how many this worker had, and how many travelled."""
        statistics.sparse_collectives += 1
        statistics.sparse_blocks += self._blocks
        statistics.own_blocks += self._own_blocks
        statistics.union_blocks += self._union_blocks
        statistics.saved_bytes += max(self._saved_bytes(), 0)

    def _saved_bytes(self) -> int:
        """Return what packets and lanes did not travel, in UDP payload, less the bitmaps'."""
        lane_bytes = LANE_BYTES * self._admission.lanes
        left_out = self._blocks - self._union_blocks - self._bitmap_packets
        absent = self._union_blocks - self._own_blocks if lane_bytes <= BMV2_GROWTH_BYTES else 0
        return 2 * left_out * (HEADER_BYTES + lane_bytes) + absent * lane_bytes

    def _search_slice(self) -> bool:
        """Find this worker's blocks in the next slice of the array; returns False if there is none."""
        first = self._searched
        count = min(self._slice_blocks, self._blocks - first)
        if count == 0:
            return False
        nonzero = self._whole.codec.nonzero
        assert nonzero is not None
        self._own_blocks += bitmaps.find_blocks(
            self._payloads,
            nonzero.address,
            self._admission.lanes,
            first,
            count,
            self._own,
            self._words[first // WORD_BLOCKS : -(-(first + count) // WORD_BLOCKS)],
        )
        self._searched += count
        return True

    def _without_bitmap(self) -> npt.NDArray[np.int64]:
        """Return the next blocks that travel without a bitmap."""
        first = self._in_bitmaps
        end = self._in_bitmaps = self._unsearched = min((1 + UNSEARCHED) * first, self._blocks)
        unknown = max(end - self._searched, 0)
        self._searched += unknown
        self._own_blocks += unknown
        self._union_blocks += end - first
        self._own[first:end] = NOT_SEARCHED
        return np.arange(first, end)

    def _next_bitmap(self, blocks: int, ahead: deque[_Bitmap]) -> Passes:
        """Yield the pass over the bitmap of the next blocks when they have been searched."""
        first = self._in_bitmaps
        count = min(blocks, self._blocks - first)
        if count == 0:
            return
        while self._searched < first + count:
            self._search_slice()
            yield BUSY
        words = self._words[first // WORD_BLOCKS : -(-(first + count) // WORD_BLOCKS)]
        work = Pass(WORDS, OP_BOR, self._next_mark(), words, words, part=PART_BITMAP)
        ahead.append(_Bitmap(first, count, work))
        self._in_bitmaps += count
        self._bitmap_packets += -(-words.size // self._admission.lanes)
        yield work

    def _union_of(self, bitmap: _Bitmap) -> npt.NDArray[np.int64]:
        """Return the blocks of the union."""
        blocks = np.empty(bitmap.count, np.int64)
        words: Any = bitmap.work.target
        listed = blocks[: bitmaps.list_blocks(words, bitmap.first, bitmap.count, blocks)].copy()
        self._union_blocks += listed.size
        return listed

    def _clear(self, bitmap: _Bitmap) -> Passes:
        """Fill with zeros the blocks that are not in the union."""
        words: Any = bitmap.work.target
        block_words = self._block_elements * self._whole.target.itemsize // LANE_BYTES
        for first in range(0, bitmap.count, self._slice_blocks):
            count = min(self._slice_blocks, bitmap.count - first)
            bitmaps.clear_blocks(
                words[first // WORD_BLOCKS :],
                count,
                block_words,
                self._target_words[(bitmap.first + first) * block_words :],
            )
            yield BUSY

    def _blocks_after(self, bitmap: _Bitmap, union_blocks: int) -> int:
        """Return how many blocks the next bitmap covers, by how full this one was; alike at all workers."""
        in_packet = self._admission.lanes * WORD_BLOCKS
        wanted = BLOCKS_A_TURN * bitmap.work.slot_count  # The slots may be others than when this was planned.
        packets = wanted * bitmap.count // max(union_blocks, 1) // in_packet
        return in_packet * max(1, min(packets, MOST_BITMAP_PACKETS))

    def _next_mark(self) -> int:
        mark = self._mark(self._phase)
        self._phase = (self._phase + 1) % PHASES
        return mark
