"""Bitmaps of the blocks of an array that are not zero.

Block b is bit b mod 32 of word b div 32. Words are numbers of the host; as lanes they travel like any others.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from host_agent.codecs.payload import PAYLOAD, find_exponent
from netsum_common.compiled import Integer, Records, compiled

WORD_BLOCKS: Final = 32  # Blocks in a word.

Words = npt.NDArray[np.uint32]


@compiled
def find_blocks(
    payloads: Records,
    routine: int,
    lane_count: int,
    first: int,
    count: int,
    own: npt.NDArray[np.uint16],
    bitmap: Words,
) -> Integer:
    """Look at `count` blocks of the source, from block `first` on.

    `routine`: address of `Codec.nonzero`. `own` (uint16 array): of all blocks of the array; set to the routine's findings in
    each. `bitmap` (uint32 array): set: bit 0 of its first word is block `first`. Returns how many blocks are not zero.
    """
    payload = payloads[0]
    found = 0
    bitmap[:] = np.uint32(0)
    for at in range(count):
        exponent = find_exponent(routine, payload, first + at, lane_count)
        own[first + at] = np.uint16(exponent)
        if exponent != 0:
            found += 1
            bitmap[at // WORD_BLOCKS] |= np.uint32(1) << np.uint32(at % WORD_BLOCKS)
    return found


@compiled
def list_blocks(bitmap: Words, first: int, count: int, out: npt.NDArray[np.int64]) -> Integer:
    """Write the numbers of the blocks in a bitmap of `count` blocks from block `first` on; returns how many they are."""
    listed = 0
    for at in range(count):
        if bitmap[at // WORD_BLOCKS] >> np.uint32(at % WORD_BLOCKS) & np.uint32(1):
            out[listed] = first + at
            listed += 1
    return listed


@compiled
def clear_blocks(bitmap: Words, count: int, block_words: int, target: Words) -> None:
    """Fill with zeros the blocks that a bitmap of `count` blocks lacks; `target` begins with the first block.

    Words that are zero already are only read, which takes half of the memory's time: most words are, where results go to the
    array that was contributed.
    """
    for at in range(count):
        if not bitmap[at // WORD_BLOCKS] >> np.uint32(at % WORD_BLOCKS) & np.uint32(1):
            block = target[at * block_words : min((at + 1) * block_words, target.size)]
            found = np.uint32(0)
            for i in range(block.size):
                found |= block[i]
            if found != 0:
                block[:] = np.uint32(0)


def load() -> None:
    """Compile these functions, or load them from the cache, before the first collective needs them."""
    nothing: Any = np.zeros(1, PAYLOAD)
    bitmap = np.zeros(1, np.uint32)
    find_blocks(nothing, 0, 1, 0, 0, np.zeros(1, np.uint16), bitmap)
    list_blocks(bitmap, 0, 0, np.zeros(1, np.int64))
    clear_blocks(bitmap, 0, 1, bitmap)
