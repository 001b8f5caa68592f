"""Summarizes the ranks' messages: one row for each exchange."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from netsum.allreduce.plan import Plan, PlannedExchange

Message = dict[str, Any]


@dataclass(frozen=True)
class Spread:
    """A number that was measured several times."""

    median: float
    least: float
    most: float
    p99: float  # The 99th percentile: the least value that 99 % do not exceed.

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """Put values together."""
        found = sorted(values)
        return cls(statistics.median(found), found[0], found[-1], found[-(-99 * len(found) // 100) - 1])


@dataclass(frozen=True, kw_only=True)
class ReportRow(PlannedExchange):
    """Result of one exchange."""

    bytes: int  # Size of one rank's array in memory.
    repeats: int
    seconds: Spread  # From the barrier before to the result at the rank that had it last.
    elements_per_s: Spread  # Elements of one rank's array over those seconds.
    # Algorithm bandwidth as nccl-tests defines it: bytes of one rank's array over the median time.
    algbw_bytes_per_s: float
    # Bus bandwidth as nccl-tests defines it for an all-reduce of n ranks: the algorithm bandwidth times 2(n − 1)/n, as
    # each link of a ring would carry.
    busbw_bytes_per_s: float
    processor_seconds: float  # Processor time of all ranks together in the timed repeats.
    correct: bool  # Whether all results of all ranks were right bit for bit, warm-ups included.
    same_bits: bool  # Whether all ranks had the same bits.
    # packets, retransmissions: of all ranks, in the timed repeats, sent and received; None if that is not known.
    packets: int | None
    retransmissions: int | None
    checksums: list[str]  # First 16 digits of the result's SHA-256 at rank 0, for each timed repeat.
    # bytes_sent, bytes_received: UDP payload of all ranks in the timed repeats; None if that is not known.
    bytes_sent: int | None
    bytes_received: int | None
    # own_share, union_share: of the array's blocks, those in which a rank had anything but zeros, on the average of the
    # ranks, and those in which any had, which travelled; None if all blocks travelled.
    own_share: float | None
    union_share: float | None


def make_rows(plan: Plan, rounds: Sequence[Sequence[Message]]) -> list[ReportRow]:
    """Combine the measurements. `rounds`: for each rank its messages of event "round", in order."""
    by_round: dict[int, list[Message]] = defaultdict(list)
    for said in rounds:
        for number, message in enumerate(said):
            by_round[number].append(message)
    rows = []
    count = plan.warmups + plan.repeats
    for number, exchange in enumerate(plan.exchanges):
        all_rounds = [by_round[number * count + each] for each in range(count)]
        timed = all_rounds[plan.warmups :]
        seconds = [max(message["seconds"] for message in each) for each in timed]
        algbw = exchange.array_bytes / statistics.median(seconds)
        rows.append(
            ReportRow(
                **asdict(exchange),
                bytes=exchange.array_bytes,
                repeats=plan.repeats,
                seconds=Spread.of(seconds),
                elements_per_s=Spread.of(exchange.elements / each for each in seconds),
                algbw_bytes_per_s=algbw,
                busbw_bytes_per_s=algbw * 2 * (len(rounds) - 1) / len(rounds),
                processor_seconds=sum(message["processor_seconds"] for each in timed for message in each),
                correct=all(message["correct"] for each in all_rounds for message in each),
                same_bits=all(len({message["checksum"] for message in each}) == 1 for each in all_rounds),
                packets=_total(timed, "packets_sent", "packets_received"),
                retransmissions=_total(timed, "retransmissions"),
                checksums=[each[0]["checksum"] for each in timed],
                bytes_sent=_total(timed, "bytes_sent"),
                bytes_received=_total(timed, "bytes_received"),
                own_share=_share(timed, "own_blocks"),
                union_share=_share(timed, "union_blocks"),
            )
        )
    return rows


def _total(timed: Iterable[Iterable[Message]], *names: str) -> int | None:
    counted: list[Any] = [message.get(name) for each in timed for message in each for name in names]
    return None if None in counted else sum(counted)


def _share(timed: Sequence[Sequence[Message]], name: str) -> float | None:
    """Return a count of blocks over all blocks of block-sparse rounds."""
    blocks = _total(timed, "sparse_blocks")
    found = _total(timed, name)
    return found / blocks if blocks and found is not None else None
