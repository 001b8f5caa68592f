"""Masks on lanes, so that neither a switch nor anybody on the path learns contributions or sums.

With n workers and k = 31 - ceil(log2 n), worker w sends (x + F(w) - F(w + 1)) mod 2^k as a lane that is not negative, worker 0
with F(n) in addition: n of them never overflow int32, each is uniform, and all but F(n) cancel in the sum. A receiver subtracts
F(n), and reads the sum as a signed number of k bits. Lanes that one worker alone sends are combined with F(n) by exclusive or.

F is AES-128 in counter mode with a key for each stream, by OpenSSL. A position in a stream belongs to one attempt at one
collective, one pass, and one lane, so a retransmission repeats its lanes, and nothing else does.
"""

from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from typing import Final

import numpy as np
from numba import carray

from host_agent.codecs.codec import decoder, encoder
from host_agent.codecs.payload import DECODE, ENCODE, array_block
from host_agent.collectives.collective import BUSY, Busy
from host_agent.errors import MisuseError
from host_agent.protocol.passes import ALL_BLOCKS, Pass
from host_agent.protocol.records import CONTRIBUTES_DATA
from host_agent.verification.digest import checks_of
from host_agent.verification.keys import Keys
from host_agent.wire.constants import OP_SUM
from host_agent.wire.header import swap
from netsum_common.compiled import Record, Words, compiled, routine_call
from netsum_common.memory import pointer

STEP_BYTES: Final = 1 << 17  # Generated between two looks at the network; it stays in the cache.
FIRST_BLOCKS: Final = 256
MOST_BLOCKS: Final = 4096
"""Blocks of one part of a pass: its streams are generated while the part before is on its way."""
_AES_BLOCK: Final = 16

_call_encode = routine_call(ENCODE)
_call_decode = routine_call(DECODE)


def lane_bits(world_size: int) -> int:
    """Return k."""
    return 31 - (world_size - 1).bit_length()


@compiled
def add_masks(masks: Words, bits: int, limit: int, lanes: Words) -> None:
    """Mask lanes, each at most `limit` in magnitude."""
    most, least, kept = np.int32(limit), np.int32(-limit), np.uint32((1 << bits) - 1)
    for i in range(lanes.size):
        value = np.uint32(max(min(np.int32(swap(lanes[i])), most), least))
        lanes[i] = swap(np.uint32((value + masks[i]) & kept))


@compiled
def remove_masks(lanes: Words, masks: Words, bits: int, plain: Words) -> None:
    """Write what the sums of masked lanes stand for."""
    above = np.int32(32 - bits)
    for i in range(lanes.size):
        value = np.int32(np.uint32(swap(lanes[i]) - masks[i]) << np.uint32(above))
        plain[i] = swap(np.uint32(value >> above))


@encoder
def _encode(payload: Record, block: int, lane_count: int, headroom: int, lanes: Words) -> None:
    checks = checks_of(payload)
    _call_encode(checks.plain_encode, (payload, block, lane_count, headroom + checks.headroom, lanes))
    first = block * lane_count
    masks = carray(pointer(checks.masks), (first + lane_count,), np.uint32)[first:]
    if checks.mask_bits != 0:
        add_masks(masks, checks.mask_bits, checks.limit, lanes)
        return
    start = array_block(payload, block) * lane_count
    for i in range(max(checks.own_from - start, 0), min(checks.own_to - start, lane_count)):
        lanes[i] ^= masks[i]


@decoder
def _decode(payload: Record, block: int, lane_count: int, headroom: int, lanes: Words) -> None:
    checks = checks_of(payload)
    if lanes.size == 0:
        _call_decode(checks.plain_decode, (payload, block, lane_count, headroom + checks.headroom, lanes))
        return
    first = block * lane_count
    common = carray(pointer(checks.common), (first + lane_count,), np.uint32)[first:]
    plain = carray(pointer(checks.scratch), (lane_count,), np.uint32)
    if checks.mask_bits != 0:
        remove_masks(lanes, common, checks.mask_bits, plain)
    else:
        for i in range(lane_count):
            plain[i] = lanes[i] ^ common[i]
    _call_decode(checks.plain_decode, (payload, block, lane_count, headroom + checks.headroom, plain))


MASKED: Final = (_encode, _decode)


class Masks:
    """The streams of one attempt at a collective.

    `scale`: largest magnitude of elements, in place of exponents of blocks; 0: there is none.
    """

    def __init__(self, keys: Keys, number: int, attempt: int, scale: float = 0.0) -> None:
        self.scale = scale
        self._key, self._rank, self._ranks = keys.key, keys.rank, keys.world_size
        self._lane_count = keys.lane_count
        self._number = number.to_bytes(5, "big") + attempt.to_bytes(1, "big")
        self._passes = 0

    def parts(self, work: Pass, blocks: int, divisible: bool) -> Iterator[Pass | Busy]:
        """Yield a pass in parts, with the streams of each in `last`, and BUSY while they are generated."""
        first, count = 0, FIRST_BLOCKS if divisible else blocks
        while first < blocks or first == 0:
            count = min(count, blocks - first)
            number = self._passes
            self._passes += 1
            masks = np.empty(count * self._lane_count, np.uint32)
            common = np.empty_like(masks)
            yield from self._generate(number, masks, common, adds=work.op == OP_SUM)
            if divisible:
                listed = np.arange(first, first + count)
                part = replace(work, fingerprint=work.fingerprint ^ number, blocks=listed)
            else:
                part = work
            self.last = masks, common
            yield part
            first += count
            count = min(2 * count, MOST_BLOCKS)

    def _generate(self, number: int, masks: Words, common: Words, adds: bool) -> Iterator[Busy]:
        """Fill in this worker's masks of a part, and what a receiver removes."""
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        labels = [self._ranks]
        if adds and self._ranks > 1:
            labels += [self._rank, (self._rank + 1) % self._ranks]
        counter = self._number + number.to_bytes(4, "big") + bytes(6)
        streams = []
        for label in labels:
            key = blake2b(
                label.to_bytes(4, "big"), key=self._key, digest_size=16, person=b"netsum stream"
            ).digest()
            streams.append(Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor())
        zeros = memoryview(bytearray(STEP_BYTES))
        own, after = np.empty(STEP_BYTES // 4, np.uint32), np.empty(STEP_BYTES // 4, np.uint32)
        for begin in range(0, masks.size, own.size):
            piece = common[begin : begin + own.size]
            streams[0].update_into(zeros[: piece.nbytes], piece.view(np.uint8).data)
            mine = masks[begin : begin + own.size]
            mine[:] = piece if not adds or self._rank == 0 else 0
            for stream, part in zip(streams[1:], (own, after), strict=False):
                stream.update_into(zeros[: piece.nbytes], part[: piece.size].view(np.uint8).data)
            if len(streams) > 1:
                mine += own[: piece.size]
                mine -= after[: piece.size]
            yield BUSY


def own_words(work: Pass, rank: int, ranks: int) -> tuple[int, int]:
    """Return the elements, from the first to the one before the second, that this worker alone contributes to."""
    if work.contributes != CONTRIBUTES_DATA:
        return 0, 0
    if work.data == ALL_BLOCKS:
        return 0, work.target.size
    each = work.target.size // ranks
    return each * rank, each * (rank + 1)


def check_cipher() -> None:
    """Raise MisuseError where the package for ciphers is not installed."""
    try:
        import cryptography.hazmat.primitives.ciphers  # noqa: F401
    except ImportError:
        raise MisuseError(
            "private=True needs the package cryptography: pip install 'netsum[private]'"
        ) from None
