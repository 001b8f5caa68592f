"""Corruptions of one worker's view at the decoder, in a compiled loop: ``python -m tests.verification.at_length 10000000``.

What three workers sent is real: their passes are encoded by the codec's routines with digests, and their checks are added. Then
each try changes what one of them received, or the sums of the check, and the worker must refuse it. With a secret a try is a
forgery: the switch changes lanes and seal together, by what the change is worth under coefficients that it guesses.
"""

import sys
import time
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numba import carray

from host_agent.codecs.block_float import FLOAT32
from host_agent.codecs.payload import learn_exponent, own_exponent, read_block, write_block
from host_agent.protocol.passes import Pass
from host_agent.verification.checked import Checks
from host_agent.verification.digest import digest
from host_agent.verification.field import PRIME, plus, times
from host_agent.verification.keys import PUBLIC, make_keys
from host_agent.verification.seals import SEAL_LANES, judge, write_lanes
from netsum_common.compiled import Integer, Records, Words, compiled
from netsum_common.memory import pointer

WORKERS: Final = 3
LANES: Final = 16
BLOCKS: Final = 4
KINDS: Final = 9


@compiled
def encode(record: Records, exponents: Any, lanes: Words, own: bool) -> None:
    """Find the exponents of a worker's blocks, or encode the blocks with those of all workers."""
    payload = record[0].payload
    for block in range(BLOCKS):
        if own:
            exponents[block] = max(exponents[block], own_exponent(payload, block, LANES))
        else:
            learn_exponent(payload, block, exponents[block])
            write_block(payload, block, LANES, 2, lanes[block])


@compiled
def decode(record: Records, lanes: Words) -> None:
    """Read all blocks."""
    for block in range(BLOCKS):
        read_block(record[0].payload, block, LANES, 2, lanes[block])


@compiled
def _next(state: Any) -> Integer:
    state[0] = state[0] * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
    return state[0] >> np.uint64(33)


@compiled
def attack(
    plans: Records,
    record: Records,
    sums: Any,
    lanes: Words,
    parts: Any,
    guess: Any,
    factors: Any,
    tries: int,
    forge: bool,
    seed: int,
) -> npt.NDArray[np.int64]:
    """Corrupt and judge; returns how many of each kind were tried, were refused, and changed nothing."""
    counts = np.zeros((KINDS, 3), np.int64)
    state = np.full(1, seed, np.uint64)
    verdicts = np.zeros(plans[0].segment_count, np.int8)
    changed, kept = lanes.copy(), sums.copy()
    payload = record[0].payload
    exponents = carray(pointer(payload.exponents), (BLOCKS,), np.uint16)
    right = exponents.copy()
    seals = plans[0].claim_lanes
    for _ in range(tries):
        kind = np.int64(KINDS - 1) if forge else np.int64(_next(state) % np.uint64(KINDS - 1))
        block, other = np.int64(_next(state) % np.uint64(BLOCKS)), np.int64(_next(state) % np.uint64(BLOCKS))
        at, to = np.int64(_next(state) % np.uint64(LANES)), np.int64(_next(state) % np.uint64(LANES))
        worker = np.int64(_next(state) % np.uint64(WORKERS))
        changed[:] = lanes
        kept[:] = sums
        if kind == 0:
            changed[block, at] ^= np.uint32(1) << np.uint32(_next(state) % np.uint64(32))
        elif kind == 1:
            for _ in range(2 + np.int64(_next(state) % np.uint64(30))):
                where = np.int64(_next(state) % np.uint64(BLOCKS * LANES))
                changed[where // LANES, where % LANES] ^= np.uint32(1) << np.uint32(
                    _next(state) % np.uint64(32)
                )
        elif kind == 2:
            changed[block, at], changed[block, to] = lanes[block, to], lanes[block, at]
        elif kind == 3:
            for i in range(LANES):
                changed[block, i], changed[other, i] = lanes[other, i], lanes[block, i]
        elif kind == 4 or kind == 5:  # A contribution that is missing, or there twice.
            for i in range(LANES):
                mine = _swap(parts[worker, block, i])
                total = _swap(lanes[block, i]) + (mine if kind == 5 else -mine)
                changed[block, i] = _swap(np.uint32(total))
        elif kind == 6:
            exponents[block] = np.uint16(right[block] + 1)
        elif kind == 7:
            where = np.int64(_next(state) % np.uint64(kept.size))
            kept[where] ^= np.int32(1) << np.int32(_next(state) % np.uint64(31))
        else:
            before = digest(guess, lanes[block])
            for i in range(LANES):
                changed[block, i] = _swap(np.uint32(_swap(lanes[block, i]) + np.uint32(_next(state))))
            worth = plus(digest(guess, changed[block]), np.uint64(PRIME) - before)
            worth = times(factors[block], plus(worth, np.uint64(_next(state) if at != 0 else np.uint64(0))))
            for k in range(SEAL_LANES):
                kept[seals + k] += np.int32((worth >> np.uint64(16 * k)) & np.uint64(0xFFFF))
        same = kind != 6
        for b in range(BLOCKS):
            for i in range(LANES):
                same &= changed[b, i] == lanes[b, i]
        for i in range(kept.size):
            same &= kept[i] == sums[i]
        decode(record, changed)
        verdicts[:] = 0
        refused = judge(plans, kept, verdicts) >= 0
        for each in verdicts:
            refused |= each != 0
        counts[kind, 0] += 1
        counts[kind, 1] += refused
        counts[kind, 2] += same
        exponents[block] = right[block]
    return counts


@compiled
def _swap(word: np.uint32) -> np.uint32:
    return np.uint32(
        (word >> np.uint32(24))
        | ((word >> np.uint32(8)) & np.uint32(0xFF00))
        | ((word << np.uint32(8)) & np.uint32(0xFF0000))
        | (word << np.uint32(24))
    )


def views(key: bytes, seed: int) -> Any:
    """Encode the arrays of all workers; returns the view of worker 0, the sums, and each worker's lanes."""
    rng = np.random.default_rng(seed)
    exponents = np.zeros(BLOCKS, np.int64)
    all_checks, all_passes = [], []
    parts = np.zeros((WORKERS, BLOCKS, LANES), np.uint32)
    for rank in range(WORKERS):
        array = rng.normal(size=BLOCKS * LANES).astype(np.float32)
        checks = Checks(make_keys(key, rank, WORKERS, LANES), 0, 0, False)
        work = checks.watch(Pass(FLOAT32, 1, 0, array, np.zeros_like(array)))
        work.lay_out(LANES, 4)
        encode(work.record, exponents, parts[rank], True)
        all_checks.append(checks)
        all_passes.append(work)
    for rank, work in enumerate(all_passes):
        encode(work.record, exponents, parts[rank], False)
    lanes = parts.byteswap().view(np.int32).sum(axis=0, dtype=np.int32).byteswap().view(np.uint32)
    sums: Any = 0
    for checks, work in zip(all_checks, all_passes, strict=True):
        decode(work.record, lanes)
        closing = checks.closing()
        write_lanes(checks.plan[0])
        sums = sums + closing.source
    return all_checks[0], all_passes[0], sums.astype(np.int32), lanes, parts


def tries(count: int, forge: bool, seed: int = 1) -> npt.NDArray[np.int64]:
    """Run corruptions, or forgeries against a secret."""
    checks, work, sums, lanes, parts = views(b"k" * 32 if forge else PUBLIC, seed)
    verdicts = np.zeros(checks.plan["segment_count"][0], np.int8)
    assert judge(checks.plan, sums, verdicts) == -1, "an exponent of an undamaged result was refused"
    assert not verdicts.any(), "an undamaged result was refused"
    guessed = make_keys(b"g" * 32, 0, WORKERS, LANES)
    return attack(
        *(checks.plan, work.record, sums, lanes, parts, guessed.coefficients, guessed.block_coefficients),
        *(count, forge, seed),
    )


def main() -> None:
    """Run as many corruptions as the command line says, and a tenth as many forgeries."""
    count = int(sys.argv[1])
    for forge in (False, True):
        began = time.monotonic()
        counts = tries(count // 10 if forge else count, forge)
        tried, refused, same = counts.sum(axis=0).tolist()
        print(
            f"{'forgeries' if forge else 'corruptions'}: {tried} in {time.monotonic() - began:.0f} s, {same} changed nothing,",
            end=" ",
        )
        print(f"{refused} were refused, {tried - refused - same} were accepted; by kind: {counts.tolist()}")


if __name__ == "__main__":
    main()
