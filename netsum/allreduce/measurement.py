"""Times and checks one rank's part of an all-reduce by netsum or by a peer."""

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np

from netsum.allreduce.inputs import Array, make_inputs, same_bits, tolerance
from netsum.allreduce.plan import Plan, PlannedExchange


class Reducer(Protocol):
    """An all-reduce among ranks, all of which call the same in the same order."""

    def barrier(self) -> None:
        """Return when all ranks have called it."""

    def allreduce(self, array: Array, exchange: PlannedExchange, out: Array) -> None:
        """Reduce `array` over all ranks into `out`, as the exchange says."""

    def counts(self) -> dict[str, Any]:
        """Return the network cost of the last all-reduce; empty if it is not known."""


@dataclass(frozen=True)
class MeasuredRound:
    """One all-reduce at one rank."""

    exchange: PlannedExchange
    repeat: int  # 0 and up; a warm-up has -1.
    seconds: float  # From the end of the barrier before to the result.
    # Processor time of this process meanwhile, the system's work for it included.
    processor_seconds: float
    # Whether the result was right, bit for bit; with few bits, within the bound of their error.
    correct: bool
    checksum: str  # First 16 digits of the SHA-256 of its bytes.
    counts: dict[str, Any] = field(default_factory=dict)  # See `Reducer.counts`.

    def to_message(self, rank: int) -> dict[str, Any]:
        """Return the line of JSON on it, as docs/cli.md describes it."""
        exchange = self.exchange
        return {
            "event": "round",
            "rank": rank,
            **asdict(exchange),
            "bytes": exchange.array_bytes,
            "repeat": self.repeat,
            "seconds": round(self.seconds, 9),
            "processor_seconds": round(self.processor_seconds, 9),
            "elements_per_s": round(exchange.elements / self.seconds, 3),
            "correct": self.correct,
            "checksum": self.checksum,
            **self.counts,
        }


def measure(
    reducer: Reducer,
    plan: Plan,
    rank: int,
    world_size: int,
    *,
    clock_ns: Callable[[], int] = time.perf_counter_ns,
) -> Iterator[MeasuredRound]:
    """Run a plan as one rank and yield every round of it."""
    rounds = plan.warmups + plan.repeats
    for number, exchange in enumerate(plan.exchanges):
        inputs = make_inputs(exchange, rank, world_size, rounds, plan.seed + number)
        out = np.empty(exchange.elements, exchange.dtype)
        for each in range(rounds):
            contribution = inputs.contribution(each)
            reducer.barrier()
            spent_ns, start_ns = time.process_time_ns(), clock_ns()
            reducer.allreduce(contribution, exchange, out)
            seconds = max(clock_ns() - start_ns, 1) / 1e9
            processor_seconds = (time.process_time_ns() - spent_ns) / 1e9
            yield MeasuredRound(
                exchange,
                max(each - plan.warmups, -1),
                seconds,
                processor_seconds,
                _is_right(out, inputs.result(each), exchange, world_size),
                hashlib.sha256(out.data).hexdigest()[:16],
                reducer.counts(),
            )
            out.fill(0)  # so that a result that is not written is not right


def _is_right(result: Array, expected: Array, exchange: PlannedExchange, world_size: int) -> bool:
    if exchange.bits == "full":
        return same_bits(result, expected)
    off = np.abs(result.astype(np.float64) - expected).max(initial=0.0)
    return bool(off <= tolerance(exchange, world_size))
