"""The rounds of each worker: real passes of the worker core over real data, and what must come out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from host_agent.codecs.block_float import FLOAT32
from host_agent.codecs.codec import NOTHING
from host_agent.codecs.halves import INT32
from host_agent.codecs.raw import WORDS
from host_agent.protocol.passes import ALL_BLOCKS, NO_BLOCKS, Pass
from host_agent.protocol.records import CONTRIBUTES_DATA, CONTRIBUTES_NOTHING
from host_agent.wire.constants import OP_BOR, OP_MAX, OP_SUM
from sim.explore.engine.world import BEFORE, ELEMENTS
from sim.explore.scenario import BlockPass

FIRST_FINGERPRINT, _OTHER_FINGERPRINT = 0x8001000, 0x9001000
_CODECS = {
    "sum": (WORDS, OP_SUM),
    "saturating": (WORDS, OP_SUM),
    "sparse": (WORDS, OP_SUM),
    "max": (WORDS, OP_MAX),
    "min": (WORDS, OP_MAX),
    "bor": (WORDS, OP_BOR),
    "int32": (INT32, OP_SUM),
    "float32": (FLOAT32, OP_SUM),
    "broadcast": (WORDS, OP_BOR),
    "barrier": (NOTHING, OP_SUM),
    "quorum": (NOTHING, OP_SUM),
    "contributors": (WORDS, OP_SUM),
    "reduce": (WORDS, OP_SUM),
    "gather": (WORDS, OP_BOR),
}


SUMMED: Final = frozenset(
    ("sum", "sparse", "broadcast", "barrier", "quorum", "contributors", "reduce", "gather")
)
"""Kinds of rounds in which a slot holds the sum over a set of workers, whatever their order."""


@dataclass(frozen=True)
class PassTask:
    """One round of one worker."""

    work: Pass  # The pass that the worker core begins.
    # uint32[n]. The bits that must stand in its target when it is done; no RESULT may be accepted if None. Of the reduction
    # of the contributors of a quorum chunk they are not used.
    expected: npt.NDArray[np.uint32] | None
    # array. Contribution of a worker in place of `work.source` if it is no contributor.
    neutral: npt.NDArray[Any] = field(default_factory=lambda: np.zeros(ELEMENTS, np.int32))


def _value(kind: str, number: int, job: int, epoch: int, worker: int) -> npt.NDArray[Any]:
    rng = np.random.default_rng((number, job, epoch, worker))
    if kind == "float32":
        # No two workers and no two successive rounds need the same exponent; the sums are exact all the same.
        scale = 4 * worker - 28 * (number % 2)
        return np.ldexp(rng.integers(-(1 << 10), 1 << 10, ELEMENTS), scale).astype(np.float32)
    if kind in ("max", "min", "saturating"):
        # Values of both signs, so that an order without signs is another one; two of the saturating values overflow.
        low = 1 << 30 if kind == "saturating" else 1 << 16
        signs = 1 - 2 * ((np.arange(ELEMENTS) + (worker if kind != "saturating" else 0)) % 2)
        return (rng.integers(low, 2 * low - 1, ELEMENTS) * signs).astype(np.int32)
    if kind == "sparse" and worker % 2:
        return np.zeros(ELEMENTS, np.int32)
    # Small enough that no sum of a few saturates, so that every subset and multiple has a sum of its own.
    return rng.integers(1 << 16, 1 << 24, ELEMENTS).astype(np.int32)


def make_task(round_: BlockPass, number: int, job: int, epoch: int, worker: int, workers: int) -> PassTask:
    """Return a worker's part of a round."""
    values = [_value(round_.kind, number, job, epoch, each) for each in range(workers)]
    codec, op = _CODECS[round_.kind]
    disagrees = not round_.agreed and worker == workers - 1
    # The same for all rounds: that the number of the pass is in it must not be what keeps rounds apart.
    fingerprint = _OTHER_FINGERPRINT if disagrees else FIRST_FINGERPRINT
    if codec is NOTHING:
        offered = False if round_.kind == "quorum" else None
        return PassTask(
            Pass(codec, op, fingerprint, offered=offered), np.zeros(0, np.uint32) if round_.agreed else None
        )
    contributes = CONTRIBUTES_DATA
    if round_.kind == "broadcast" and worker != 0:
        contributes = CONTRIBUTES_NOTHING
    # The lanes of these are not written.
    is_header_only = (round_.kind == "reduce" and worker != 0) or (round_.kind == "gather" and worker == 0)
    work = Pass(
        codec,
        op,
        fingerprint,
        values[worker],
        np.zeros_like(values[worker]),
        flip=-1 if round_.kind == "min" else 0,
        contributes=contributes,
        header_only=ALL_BLOCKS if is_header_only else NO_BLOCKS,
        data=NO_BLOCKS if round_.kind == "gather" and worker != 0 else ALL_BLOCKS,
        own=values[worker][:1].astype(bool).astype(np.uint16) if round_.kind == "sparse" else None,
    )
    stack = np.stack(values)
    match round_.kind:
        case "max":
            result = stack.max(axis=0)
        case "min":
            result = stack.min(axis=0)
        case "saturating":
            limits = np.iinfo(np.int32)
            result = stack.sum(axis=0, dtype=np.int64).clip(limits.min, limits.max)
        case "bor":
            result = np.bitwise_or.reduce(stack)
        case "broadcast" | "gather":
            result = stack[0]
        case _:
            result = stack.sum(axis=0, dtype=stack.dtype)  # exact: floats of few bits, or small integers
    expected = np.ascontiguousarray(result.astype(stack.dtype)).view(np.uint32)
    if is_header_only:
        expected = np.full(ELEMENTS, BEFORE, np.uint32)
    return PassTask(work, expected if round_.agreed else None)


def subset_sums(rounds: Sequence[BlockPass], jobs: int, workers: int) -> npt.NDArray[np.uint32]:
    """Return the bits of the sums over each subset of workers: uint32[jobs, rounds, 2 ** workers, ELEMENTS].

    Those of the rounds of `SUMMED`; 0 in the others, and where there are no lanes.
    """
    sums = np.zeros((jobs, len(rounds), 1 << workers, ELEMENTS), np.uint32)
    for job, number, worker in np.ndindex(jobs, len(rounds), workers):
        kind = rounds[number].kind
        if (
            kind in SUMMED
            and _CODECS[kind][0] is WORDS
            and (kind not in ("broadcast", "gather") or worker == 0)
        ):
            having = np.arange(1 << workers) >> worker & 1 == 1
            sums[job, number, having] += _value(kind, number, job, 0, worker).view(np.uint32)
    return sums
