"""Random collectives, the same at every worker, on data that is chosen to hurt."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from host_agent.collectives import (
    AllGatherRequest,
    AllReduceRequest,
    BarrierRequest,
    BroadcastRequest,
    Collective,
    OnOverflow,
    ReduceScatterRequest,
)
from host_agent.errors import SumOverflowError
from host_agent.schedule import Outcome
from host_agent.wire import Admission
from sim.network.worker import Plan

from .reference import expected, packed_sum, same_bits

KINDS = (
    ("float32", "sum"),
    ("float32", "sum"),
    ("float32", "mean"),
    ("float32", "max"),
    ("float32", "min"),
    ("float64", "sum"),
    ("float64", "min"),
    ("float64", "max"),
    ("float16", "sum"),
    ("float16", "min"),
    ("int32", "sum"),
    ("int32", "sum"),
    ("int32", "max"),
    ("int32", "min"),
    ("int32", "bor"),
    ("uint8", "broadcast"),
    ("float32", "broadcast"),
    ("float32", "barrier"),
)


def nasty_values(rng: np.random.Generator, dtype: str, size: int) -> npt.NDArray[Any]:
    """Values over the whole range of a type, in blocks of similar ones, with zeros and now and then what is not finite."""
    if dtype == "uint8":
        return rng.integers(0, 256, size, dtype=np.uint8)
    if dtype == "int32":
        bits = rng.integers(0, 33, size // 20 + 1).repeat(20)[:size]
        return (rng.integers(-(2**31), 2**31, size) >> (32 - bits)).astype(np.int32)
    info = np.finfo(dtype)
    low, high = int(info.minexp) - int(info.nmant), int(info.maxexp)
    exponents = rng.integers(low, high + 1, size // 20 + 1).repeat(20)[:size]
    if rng.random() < 0.5:
        exponents = np.clip(rng.normal(0, 4, size), low, high).astype(int)
    values = np.ldexp(rng.uniform(-1, 1, size), exponents)
    values = np.clip(values, -float(info.max), float(info.max))
    values[rng.random(size) < 0.2] = 0
    values[rng.random(size) < 0.05] = -0.0
    if rng.random() < 0.15 and size:
        values[rng.integers(0, size)] = rng.choice([np.nan, np.inf, -np.inf])
    if rng.random() < 0.15 and size:
        values[rng.integers(0, size)] = float(info.max) * rng.choice([-1, 1])
    return values.astype(dtype)


@dataclass(frozen=True)
class CollectiveTask:
    """One collective: every worker's part, and what must come out."""

    op: str
    parts: list[npt.NDArray[Any]]
    result: npt.NDArray[Any] | None
    in_place: bool
    saturate: bool
    overflows: bool
    sparse: str = "auto"
    bits: int | str = "full"
    scatters: bool = False
    """Whether each worker gets its row of the result alone."""

    def plan(self, worker: int) -> Plan:
        def plan(admission: Admission, sequence: int) -> Collective[Any]:
            part = self.parts[worker].copy()
            if self.op == "barrier":
                return BarrierRequest().plan(admission, sequence)
            out = part if self.in_place else None
            if self.op == "broadcast":
                return BroadcastRequest(part, 0, out).plan(admission, sequence)
            choice: OnOverflow = "saturate" if self.saturate else "raise"
            if self.op == "all_gather":
                result = np.zeros((len(self.parts), *part.shape), part.dtype) if self.in_place else None
                if result is not None:
                    result[worker] = part
                return AllGatherRequest(part if result is None else result[worker], result).plan(
                    admission, sequence
                )
            sparse: Any = self.sparse
            bits: Any = self.bits
            op: Any = self.op
            if self.scatters:
                request = ReduceScatterRequest(part, op, None, choice, sparse)
                return request.plan(admission, sequence)
            return AllReduceRequest(part, op, out, choice, sparse, bits).plan(admission, sequence)

        return plan

    def check(self, outcome: Outcome, worker: int) -> None:
        if self.overflows:
            assert outcome.statistics.overflowed > 0
            if not self.saturate:
                assert isinstance(outcome.error, SumOverflowError)
                return
        assert outcome.error is None, outcome.error
        if self.result is None:
            assert outcome.result is None
        else:
            assert outcome.result is not None
            result = self.result[worker] if self.scatters else self.result
            assert same_bits(outcome.result, result), (self.op, outcome.result, result)


SPARSE_KINDS = (
    ("float32", "sum"),
    ("float32", "mean"),
    ("float64", "sum"),
    ("float16", "sum"),
    ("int32", "sum"),
    ("int32", "bor"),
    ("float32", "packed"),
)


def sparse_task(rng: np.random.Generator, workers: int, lanes: int, blocks: int) -> CollectiveTask:
    """One block-sparse all-reduce: most blocks are zero, here and there -0.0, and now and then not finite."""
    dtype, op = SPARSE_KINDS[rng.integers(len(SPARSE_KINDS))]
    size = blocks * lanes - int(rng.integers(0, lanes))
    density = rng.choice([0.0, 0.01, 0.1, 0.5]) if blocks < 100 else 8 / blocks
    parts = []
    for _ in range(workers):
        present = (rng.random(blocks) < density).repeat(lanes)[:size]
        # Zeros may be of either sign: dense reductions make +0.0 of them.
        zeros = np.where(rng.random(size) < 0.1, -0.0, 0.0).astype(dtype)
        part = zeros
        part[present] = nasty_values(rng, dtype, int(present.sum()))
        parts.append(part)
    bits: int | str = "full"
    if op == "packed":
        op, bits = "sum", int(rng.choice([16, 8, 4, 2] if workers < 8 else [16, 8, 2]))
        result = packed_sum(parts, lanes, bits)
    else:
        result = expected(op, parts, lanes)
    overflows = False
    if (dtype, op) == ("int32", "sum"):
        assert result is not None
        overflows = not np.array_equal(np.sum([part.astype(np.int64) for part in parts], axis=0), result)
    in_place, saturate = bool(rng.random() < 0.5), bool(rng.random() < 0.5)
    return CollectiveTask(op, parts, result, in_place, saturate, overflows, "always", bits)


def shard_task(rng: np.random.Generator, workers: int, lanes: int) -> CollectiveTask:
    """One reduce-scatter, dense or sparse, or one all-gather."""
    size = int(rng.choice([0, 1, lanes + 1, *rng.integers(lanes, 6 * lanes, 3)]))
    in_place, saturate = bool(rng.random() < 0.5), bool(rng.random() < 0.5)
    if rng.random() < 0.5:
        dtype = rng.choice(["uint8", "float32"])
        parts = [nasty_values(rng, dtype, size) for _ in range(workers)]
        return CollectiveTask("all_gather", parts, np.stack(parts), in_place, saturate, False)
    dtype, op = KINDS[rng.integers(KINDS.index(("int32", "bor")) + 1)]
    parts = [nasty_values(rng, dtype, workers * size).reshape(workers, size) for _ in range(workers)]
    rows = [expected(op, [part[rank] for part in parts], lanes) for rank in range(workers)]
    overflows = (dtype, op) == ("int32", "sum") and not np.array_equal(
        np.sum([part.astype(np.int64) for part in parts], axis=0), np.stack(rows)
    )
    sparse = "never" if op in ("min", "max") else str(rng.choice(["auto", "always"]))
    result = np.stack(rows)[:, None]  # The first dimension of an array is divided by the number of workers.
    return CollectiveTask(op, parts, result, in_place, saturate, overflows, sparse, scatters=True)


def random_task(rng: np.random.Generator, workers: int, lanes: int) -> CollectiveTask:
    if rng.random() < 0.25:
        return shard_task(rng, workers, lanes)
    dtype, op = KINDS[rng.integers(len(KINDS))]
    size = int(rng.choice([0, 1, lanes - 1, lanes, lanes + 1, int(rng.integers(0, 6 * lanes))]))
    parts = [nasty_values(rng, dtype, size) for _ in range(workers)]
    result = None
    if op == "broadcast":
        result = parts[0]
    elif op != "barrier":
        result = expected(op, parts, lanes)
    overflows = False
    if (dtype, op) == ("int32", "sum"):
        assert result is not None
        overflows = not np.array_equal(np.sum([part.astype(np.int64) for part in parts], axis=0), result)
    return CollectiveTask(op, parts, result, bool(rng.random() < 0.5), bool(rng.random() < 0.5), overflows)
