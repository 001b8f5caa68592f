"""A collective with its check: codecs that compute digests, one more pass behind the arrays, and the verdict."""

import math
import secrets
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from host_agent.codecs.block_float import FLOAT32, FLOAT64
from host_agent.codecs.codec import Codec
from host_agent.codecs.halves import INT32
from host_agent.codecs.raw import WORDS
from host_agent.collectives.collective import Passes
from host_agent.protocol.passes import NO_BLOCKS, Pass
from host_agent.verification.digest import CHECKS, NO_LANES, ROUTINES
from host_agent.verification.field import PRIME
from host_agent.verification.keys import Keys
from host_agent.verification.masking import MASKED, Masks, lane_bits, own_words
from host_agent.verification.seals import (
    DECIDING,
    DISJOINT,
    ENCODE_LANES,
    LINEAR,
    NO_LANES_AT_ALL,
    NOT_LINEAR,
    PLAN,
    SEAL_LANES,
    SEGMENT,
    SEGMENTS,
    judge,
)
from host_agent.wire import fingerprint
from host_agent.wire.constants import EXPONENT_BIAS, OP_SUM

_ENCODE, _DECODE, _EXPONENT = ROUTINES
_FIELD_BITS: Final = 31
_NAMED: Final = 4  # Segments that an error lists.


class Checks:
    """The digests and the check of one attempt at a collective."""

    def __init__(self, keys: Keys, number: int, attempt: int, disjoint: bool) -> None:
        self._keys = keys
        self._number = number
        self._attempt = attempt
        self._disjoint = disjoint
        self._watched: list[_Watched] = []
        self.plan = np.zeros(1, PLAN)  # This worker's plan, for `seals.judge`.
        self._segments = np.zeros(0, SEGMENTS)
        self._sums = np.zeros(0, np.int32)
        self._kept: list[npt.NDArray[Any]] = []  # Arrays whose addresses the plan has.
        self._exponents = 0
        self._verdict: Pass | None = None

    def watch(self, work: Pass) -> Pass:
        """Let the codec of a pass that begins next keep digests."""
        self._watched.append(_Watched(work, self._keys, self._disjoint))
        return work

    def masked(self, work: Pass, masks: Masks) -> Passes:
        """Yield a pass in parts with masks and digests, and BUSY while its masks are generated."""
        codec, keys = work.codec, self._keys
        lanes_are_masked = codec.encode is not None and (work.op == OP_SUM or self._disjoint)
        if not lanes_are_masked:
            yield self.watch(work)
            return
        blocks = blocks_of(work, keys.lane_count)
        divisible = work.blocks is None and codec in (FLOAT32, FLOAT64)
        for part in masks.parts(work, blocks, divisible):
            if isinstance(part, Pass):
                watched = _Watched(part, keys, self._disjoint)
                watched.mask(codec, masks, keys)
                self._watched.append(watched)
            yield part

    @property
    def waiting(self) -> bool:
        """Whether RESULTs are missing that the check is about."""
        compared = (NOT_LINEAR, NO_LANES_AT_ALL, DECIDING)
        return any(not each.work.done for each in self._watched if each.kind in compared)

    @property
    def incomplete(self) -> bool:
        """Whether the sums of the check are missing."""
        return not self._closing.done

    def closing(self) -> Pass:
        """Return the pass behind all others, which have begun."""
        keys, segments = self._keys, []
        for each in self._watched:
            for first in range(0, each.blocks, SEGMENT):
                count = min(SEGMENT, each.blocks - first)
                segments.append(
                    (each.work.record.ctypes.data, each.record.ctypes.data, first, count, each.kind)
                )
        self._exponents = sum(each.exponents for each in self._watched)
        bits = keys.world_size.bit_length()
        claim_lanes = -(-self._exponents // (_FIELD_BITS // bits))
        claim_packets = -(-claim_lanes // keys.lane_count)
        for first in range(0, claim_packets, SEGMENT):
            segments.append((0, 0, first, min(SEGMENT, claim_packets - first), LINEAR))
        self._segments = np.array(segments, SEGMENTS)
        lanes = np.zeros(claim_lanes + SEAL_LANES * len(segments), np.int32)
        self._sums = np.zeros_like(lanes)
        own, every = keys.pads(self._number, self._attempt, len(segments))
        pads, all_pads = np.array(own, np.uint64), np.array(every, np.uint64)
        self._kept = [lanes, pads, all_pads]
        values = {
            "segments": self._segments.ctypes.data,
            "segment_count": len(segments),
            "lane_count": keys.lane_count,
            "coefficients": keys.coefficients.ctypes.data,
            "block_coefficients": keys.block_coefficients.ctypes.data,
            "own_coefficient": keys.own_coefficient,
            "all_coefficients": keys.all_coefficients,
            "own_pads": pads.ctypes.data,
            "all_pads": all_pads.ctypes.data,
            "claim_lanes": claim_lanes,
            "claim_bits": bits,
            "poison": 1 + secrets.randbelow(PRIME - 1),
            "lanes": lanes.ctypes.data,
        }
        for name, value in values.items():
            self.plan[name] = value
        mark = fingerprint(kind="check", number=self._number, attempt=self._attempt, lanes=lanes.size)
        codec = replace(_CHECK, settings={"checks": self.plan.ctypes.data})
        self._closing = Pass(codec, OP_SUM, mark, lanes, self._sums)
        return self._closing

    def verdict(self) -> Pass:
        """Return the pass by which all workers learn whether one of them has found a fault, when `closing` is done.

        It is a header alone, in whose exponent a fault is, and has no seal: a forged one changes who repeats, no result.
        """
        mark = fingerprint(kind="verdict", number=self._number, attempt=self._attempt)
        found = np.array([bool(self.fault())], np.float32)
        self._verdict = Pass(_VERDICT, OP_SUM, mark, found, found)
        return self._verdict

    @property
    def disputed(self) -> bool:
        """Whether the verdict says that a worker has found a fault."""
        assert self._verdict is not None  # `verdict` has begun it.
        return bool(self._verdict.exponents[0])

    def fault(self) -> str:
        """Return what is wrong, when all RESULTs have come; empty: nothing is."""
        verdicts = np.zeros(len(self._segments), np.int8)
        unsent = judge(self.plan, self._sums, verdicts)
        wrong = np.flatnonzero(verdicts)
        found = [self._describe(segment) for segment in self._segments[wrong[:_NAMED]]]
        if wrong.size > _NAMED:
            found.append(f"and {wrong.size - _NAMED} more")
        if unsent >= 0:
            found.append(f"the exponent of block {unsent} is none that a worker sent")
        uncovered = sum(int(each.record["uncovered"][0]) for each in self._watched)
        if uncovered:
            found.append(f"{uncovered} packets lack what this worker contributed")
        beyond = sum(int(each.record["beyond"][0]) for each in self._watched)
        if beyond:
            found.append(f"{beyond} blocks of this worker have elements that are larger than the scale")
        return "; ".join(found)

    def _describe(self, segment: Any) -> str:
        """Name a segment: its blocks, and the slots through which they went."""
        numbers = [each.record.ctypes.data for each in self._watched]
        if segment["record"] == 0:
            return "the claims of exponents"
        number = numbers.index(segment["checks"])
        work = self._watched[number].work
        first, last = int(segment["first"]), int(segment["first"] + segment["count"]) - 1
        record, slots = work.record[0], work.slot_count
        chunk = int(record["first_chunk"] + record["lead"]) + first
        through = (
            f"slots {chunk % slots} to {(chunk + last - first) % slots}"
            if last - first < slots - 1
            else "all slots"
        )
        return f"blocks {first} to {last} of pass {number} ({through}, chunks from {chunk & 0xFFFFFFFF})"


class _Watched:
    """A pass, and the memory for its digests."""

    def __init__(self, work: Pass, keys: Keys, disjoint: bool) -> None:
        codec = work.codec
        self.work = work
        data_blocks = blocks_of(work, keys.lane_count)
        self.exponents = data_blocks if codec.exponent else 0
        self.blocks = codec.rounds * data_blocks
        if codec.encode is None:
            self.kind, self.blocks = NO_LANES_AT_ALL, 1
        elif work.op == OP_SUM:
            self.kind = DECIDING if work.decides else LINEAR
        else:
            self.kind = DISJOINT if disjoint else NOT_LINEAR
        self.record = np.zeros(1, CHECKS)
        if codec.encode is None:
            return
        assert codec.decode is not None
        if self.kind == NOT_LINEAR:
            work.header_only = NO_BLOCKS  # Every worker compares the results.
        self._kept = (
            np.full(self.blocks, NO_LANES, np.uint64),
            np.full(self.blocks, NO_LANES, np.uint64),
            np.zeros(self.blocks, np.uint16),
            np.zeros(keys.lane_count, np.uint32),
        )
        sent, received, own, scratch = (each.ctypes.data for each in self._kept)
        values = {
            "encode": codec.encode.address,
            "decode": codec.decode.address,
            "exponent": codec.exponent.address if codec.exponent else 0,
            "blocks": self.blocks,
            "sent": sent,
            "received": received,
            "own": own,
            "coefficients": keys.coefficients.ctypes.data,
            "covers": work.op if self.kind == NOT_LINEAR else 0,
            "scratch": scratch,
        }
        for name, value in values.items():
            self.record[name] = value
        work.codec = replace(
            codec,
            encode=_ENCODE,
            decode=_DECODE,
            exponent=_EXPONENT if codec.exponent else None,
            settings={**codec.settings, "checks": self.record.ctypes.data},
        )

    def mask(self, codec: Codec, streams: Masks, keys: Keys) -> None:
        """Mask the lanes of the pass, whose codec it was."""
        assert codec.encode is not None
        assert codec.decode is not None
        own_from, own_to = own_words(self.work, keys.rank, keys.world_size)
        bits = lane_bits(keys.world_size)
        sums = self.work.op == OP_SUM
        self._streams = masks, common = streams.last
        values = {
            "plain_encode": codec.encode.address,
            "plain_decode": codec.decode.address,
            "encode": MASKED[0].address,
            "decode": MASKED[1].address,
            # int32 sums go in halves where their whole would not fit k bits; see `private_request`.
            "headroom": (31 - bits) + (codec is INT32) if sums else 0,
            "masks": masks.ctypes.data,
            "common": common.ctypes.data,
            "mask_bits": bits if sums else 0,
            "own_from": own_from,
            "own_to": own_to,
            # The sum of floats may round up to 2^(k - 1), which is a negative number of k bits.
            "limit": ((1 << (bits - 1)) - 1) // keys.world_size
            if codec in (FLOAT32, FLOAT64)
            else (1 << 31) - 1,
            "scale": scale_exponent(codec, streams.scale) if streams.scale and codec.exponent else 0,
        }
        for name, value in values.items():
            self.record[name] = value


def scale_exponent(codec: Codec, scale: float) -> int:
    """Return the wire exponent of all blocks whose elements are at most `scale` in magnitude; of integers, of any."""
    least, greatest = codec.exponents
    return greatest if codec is INT32 else min(max(math.frexp(scale)[1] + EXPONENT_BIAS, least), greatest)


def blocks_of(work: Pass, lane_count: int) -> int:
    """Return how many blocks of its array a pass goes over."""
    if work.blocks is not None:
        return work.blocks.size
    return -(-work.target.size // (lane_count * work.codec.per_lane))


_SUMS: Final = replace(WORDS, nonzero=None, switch_op=OP_SUM, reduces=())
_VERDICT: Final = replace(FLOAT32, name="verdict", encode=None, decode=None, reduces=())
_CHECK: Final[Codec] = replace(_SUMS, name="check", encode=ENCODE_LANES)


def load() -> None:
    """Compile the routines, or load them from the cache."""
    for codec in (_CHECK, Codec("checked", *ROUTINES), Codec("masked", *MASKED)):
        codec.load()
    judge(np.zeros(1, PLAN), np.zeros(0, np.int32), np.zeros(0, np.int8))
