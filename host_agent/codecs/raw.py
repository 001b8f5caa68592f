"""32-bit words as they are, or complemented: bitwise or, and the extremes of integers.

MIN is the complement of MAX of the complements: the negation of the smallest integer overflows.
"""

from typing import Final

import numpy as np

from host_agent.codecs.codec import Codec, decoder, encoder, exponent_finder
from host_agent.codecs.payload import source_of, target_of
from host_agent.wire.constants import OP_BOR, OP_MAX
from host_agent.wire.header import swap
from netsum_common.compiled import Integer, Record, Words, compiled


@compiled
def words_to_lanes(words: Words, flip: int, lanes: Words) -> None:
    """Write words as lanes, complemented if `flip` is -1."""
    mask = np.uint32(flip & 0xFFFFFFFF)
    for i in range(words.size):
        lanes[i] = swap(np.uint32(words[i] ^ mask))
    for i in range(words.size, lanes.size):
        lanes[i] = np.uint32(0)


@compiled
def words_from_lanes(lanes: Words, flip: int, words: Words) -> None:
    """Undo `words_to_lanes`."""
    mask = np.uint32(flip & 0xFFFFFFFF)
    for i in range(words.size):
        words[i] = swap(lanes[i]) ^ mask


@encoder
def _encode(payload: Record, block: int, lane_count: int, headroom: int, lanes: Words) -> None:
    words_to_lanes(source_of(payload, block, lane_count, np.uint32), payload.flip, lanes)


@decoder
def _decode(payload: Record, block: int, lane_count: int, headroom: int, lanes: Words) -> None:
    words_from_lanes(lanes, payload.flip, target_of(payload, block, lane_count, np.uint32))


@exponent_finder
def _nonzero(payload: Record, block: int, lane_count: int) -> Integer:
    found = np.uint32(0)
    for word in source_of(payload, block, lane_count, np.uint32):
        found |= word
    return np.int64(1) if found != 0 else np.int64(0)


WORDS: Final = Codec(
    "words", _encode, _decode, nonzero=_nonzero, switch_op=OP_BOR, reduces=(("int32", "bor"),)
)
"""Words under bitwise or."""

WORDS_MAX: Final = Codec(
    "words in order", _encode, _decode, switch_op=OP_MAX, reduces=(("int32", "min"), ("int32", "max"))
)
"""int32 in their own order."""
