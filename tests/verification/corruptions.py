"""Corruptions of packets, and requests to corrupt: every worker must get its right bits, or an error."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from host_agent.collectives import (
    AllGatherRequest,
    AllReduceRequest,
    BarrierRequest,
    BroadcastRequest,
    ReduceScatterRequest,
)
from host_agent.collectives.exact import ExactRequest
from host_agent.collectives.rows import AllReduceRowsRequest, Rows
from host_agent.wire.constants import EXPONENT_NON_FINITE, HEADER_BYTES
from tests.verification.hostile import Datagrams, Planned


def values(rank: int, size: int, seed: int, dtype: str = "float32") -> Any:
    """A worker's array: blocks of different magnitude, and some of zeros."""
    rng = np.random.default_rng((seed, rank))
    if dtype.startswith("int"):
        return rng.integers(-(2**30), 2**30, size, dtype=dtype) >> rng.integers(0, 31)
    scale = np.ldexp(1.0, rng.integers(-20, 20, size // 50 + 1)).repeat(50)[:size]
    scale[: size // 4] *= rng.random() < 0.7
    scale = np.minimum(scale, 1e3) if dtype == "float16" else scale
    return (rng.normal(size=size) * scale).astype(dtype)


def rows(rank: int, count: int, seed: int) -> Rows:
    """Some of many rows."""
    rng = np.random.default_rng((seed, rank))
    numbers = np.flatnonzero(rng.random(count) < 0.3)
    return Rows(numbers, rng.normal(size=(numbers.size, 10)).astype(np.float32))


REQUESTS: Final[dict[str, Callable[[int, int, int], Planned]]] = {
    "float32 sum": lambda rank, ranks, seed: AllReduceRequest(values(rank, 300, seed)),
    "float32 mean": lambda rank, ranks, seed: AllReduceRequest(values(rank, 200, seed), "mean"),
    "float64 sum": lambda rank, ranks, seed: AllReduceRequest(values(rank, 150, seed, "float64")),
    "float16 sum": lambda rank, ranks, seed: AllReduceRequest(values(rank, 150, seed, "float16")),
    "int32 sum": lambda rank, ranks, seed: AllReduceRequest(
        values(rank, 200, seed, "int32"), on_overflow="saturate"
    ),
    "int64 sum": lambda rank, ranks, seed: AllReduceRequest(values(rank, 100, seed, "int64")),
    "packed": lambda rank, ranks, seed: AllReduceRequest(values(rank, 500, seed), bits=8),
    "sparse": lambda rank, ranks, seed: AllReduceRequest(values(rank, 700, seed), sparse="always"),
    "exact": lambda rank, ranks, seed: ExactRequest(values(rank, 300, seed)),
    "rows": lambda rank, ranks, seed: AllReduceRowsRequest(rows(rank, 40, seed), 40),
    "reduce-scatter": lambda rank, ranks, seed: ReduceScatterRequest(values(rank, ranks * 120, seed)),
    "all-gather": lambda rank, ranks, seed: AllGatherRequest(values(rank, 120, seed)),
    "broadcast": lambda rank, ranks, seed: BroadcastRequest(values(rank, 200, seed), 1 % ranks),
    "barrier": lambda rank, ranks, seed: BarrierRequest(),
}
"""Requests whose results are proven whole."""

PARTLY_PROVEN: Final[dict[str, Callable[[int, int, int], Planned]]] = {
    "float32 max": lambda rank, ranks, seed: AllReduceRequest(values(rank, 200, seed), "max"),
    "float64 min": lambda rank, ranks, seed: AllReduceRequest(values(rank, 150, seed, "float64"), "min"),
    "int32 bor": lambda rank, ranks, seed: AllReduceRequest(values(rank, 200, seed, "int32"), "bor"),
}
"""Requests whose check shows missing contributions and differences between workers alone."""


@dataclass
class Corruption:
    """One corruption of one run: a hook for `HostileStar.run`.

    `at`: number of the packet that it begins with, of those with lanes unless headers are changed. `loss`: share of packets lost.
    `damaged`: whether a packet has other bits than before.
    """

    kind: str
    at: int
    chance: random.Random
    loss: float = 0.0
    done: bool = False
    seen: int = field(default=0, init=False)
    kept: Any = field(default=None, init=False)
    damaged: bool = field(default=False, init=False)

    def __call__(self, datagrams: Datagrams, way: str) -> None:
        if self.loss:
            lost = np.array([self.chance.random() < self.loss for _ in datagrams.lengths])
            datagrams.lengths[lost] = 0
        wanted = "up" if self.kind in UP else "down"
        if self.done or way != wanted:
            return
        rows = (
            np.flatnonzero(datagrams.lengths > 0)
            if "header" in self.kind or "exponent" in self.kind
            else datagrams.with_lanes
        )
        before, self.seen = self.seen, self.seen + len(rows)
        if self.kind == "old result" and self.kept is None and len(rows):
            self.kept = datagrams.lanes[rows[0]].copy()
        if self.seen <= self.at or not len(rows):
            return
        row = rows[max(self.at - before, 0)]
        words = datagrams.words.copy()
        self.done = KINDS[self.kind](self, datagrams, rows, row)
        self.damaged |= not np.array_equal(words, datagrams.words)


def _flip(corruption: Corruption, datagrams: Datagrams, rows: Any, row: int) -> bool:
    lanes = datagrams.lanes[row]
    lanes[corruption.chance.randrange(lanes.size)] ^= 1 << corruption.chance.randrange(32)
    return True


def _larger(corruption: Corruption, datagrams: Datagrams, rows: Any, row: int) -> bool:
    """Lanes that are a little too large, and as plausible as the right ones."""
    more = np.uint32(2 + corruption.chance.randrange(6))
    datagrams.lanes[row] = datagrams.lanes[row].astype(np.uint32) + more
    return True


def _flip_several(corruption: Corruption, datagrams: Datagrams, rows: Any, row: int) -> bool:
    for _ in range(corruption.chance.randrange(2, 40)):
        _flip(corruption, datagrams, rows, row)
    return True


def _flip_for_all(corruption: Corruption, datagrams: Datagrams, rows: Any, row: int) -> bool:
    chunks = datagrams.field("chunk")
    lane, bit = corruption.chance.randrange(datagrams.lanes.shape[1]), 1 << corruption.chance.randrange(32)
    for each in rows[chunks[rows] == chunks[row]]:
        datagrams.lanes[each, lane] ^= bit
    return True


def _missing(corruption: Corruption, datagrams: Datagrams, rows: Any, row: int) -> bool:
    datagrams.lanes[row] = 0
    return True


def _always_missing(corruption: Corruption, datagrams: Datagrams, rows: Any, row: int) -> bool:
    """A worker whose contributions to all chunks are left out, those of the check included."""
    datagrams.lanes[rows[datagrams.workers[rows] == corruption.at % 2]] = 0
    return False


def _twice(corruption: Corruption, datagrams: Datagrams, rows: Any, row: int) -> bool:
    datagrams.lanes[row] = datagrams.lanes[row].astype(np.uint32) * np.uint32(2)
    return True


def _always_twice(corruption: Corruption, datagrams: Datagrams, rows: Any, row: int) -> bool:
    of_one = rows[datagrams.workers[rows] == corruption.at % 2]
    datagrams.lanes[of_one] = datagrams.lanes[of_one].astype(np.uint32) * np.uint32(2)
    return False


def _moved_lanes(corruption: Corruption, datagrams: Datagrams, rows: Any, row: int) -> bool:
    datagrams.lanes[row] = np.roll(
        datagrams.lanes[row], corruption.chance.randrange(1, datagrams.lanes.shape[1])
    )
    return True


def _moved_chunks(corruption: Corruption, datagrams: Datagrams, rows: Any, row: int) -> bool:
    chunks, workers = datagrams.field("chunk"), datagrams.workers
    others = rows[(workers[rows] == workers[row]) & (chunks[rows] != chunks[row])]
    if not others.size:
        return False
    other = corruption.chance.choice(others.tolist())
    datagrams.lanes[[row, other]] = datagrams.lanes[[other, row]]
    return True


def _old_result(corruption: Corruption, datagrams: Datagrams, rows: Any, row: int) -> bool:
    datagrams.lanes[row] = corruption.kept
    return True


def _constant(corruption: Corruption, datagrams: Datagrams, rows: Any, row: int) -> bool:
    """A constant is added to every lane of every RESULT, those of the check included."""
    datagrams.lanes[rows] = datagrams.lanes[rows].astype(np.uint32) + np.uint32(1 + corruption.at)
    return False


def _header(corruption: Corruption, datagrams: Datagrams, rows: Any, row: int) -> bool:
    word, bit = divmod(corruption.chance.randrange(8 * HEADER_BYTES), 32)
    datagrams.words[row, word] ^= 1 << bit
    return True


def _exponent(corruption: Corruption, datagrams: Datagrams, rows: Any, row: int) -> bool:
    """An exponent near the true one, in the packets of one chunk."""
    change = corruption.chance.choice([1, 1, 2, -1, 5])
    chunks, exponents = datagrams.field("chunk"), datagrams.field("exponent")
    for each in [row] if "one" in corruption.kind else rows[chunks[rows] == chunks[row]]:
        exponent = int(exponents[each])
        if exponent == EXPONENT_NON_FINITE or not exponent or not 0 < exponent + change < EXPONENT_NON_FINITE:
            return False
        datagrams.set_field(each, "exponent", exponent + change)
    return True


KINDS: Final[dict[str, Callable[[Corruption, Datagrams, Any, int], bool]]] = {
    "bit": _flip,
    "bit up": _flip,
    "bits": _flip_several,
    "larger": _larger,
    "bit for all": _flip_for_all,
    "missing": _missing,
    "always missing": _always_missing,
    "twice": _twice,
    "always twice": _always_twice,
    "moved lanes": _moved_lanes,
    "moved lanes up": _moved_lanes,
    "moved chunks": _moved_chunks,
    "moved chunks up": _moved_chunks,
    "old result": _old_result,
    "constant": _constant,
    "header": _header,
    "header up": _header,
    "exponent up": _exponent,
    "exponent": _exponent,
    "exponent of one": _exponent,
}
UP: Final = {kind for kind in KINDS if kind.endswith(" up")} | {
    "missing",
    "always missing",
    "twice",
    "always twice",
}
