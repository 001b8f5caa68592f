"""One rank as a process: ``python -m netsum.allreduce.worker --job NAME --rank 0 --world-size 4 --plan JSON``.

It joins the job through the controller that ``NETSUM_CONTROLLER`` names, and prints lines of JSON: ``joined``, a ``round``
for every all-reduce, then ``done``, or ``failed`` with the reason. docs/cli.md describes them.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from host_agent.communicator import Communicator, compile_ahead
from host_agent.errors import ClosedCommunicatorError, NetsumError, PeerError
from host_agent.joining import Membership, join
from netsum.allreduce.inputs import Array
from netsum.allreduce.measurement import measure
from netsum.allreduce.plan import Plan, PlannedExchange
from netsum.compiling import ended_by_signals
from netsum.option_values import parse_slots
from netsum.terminal import print_json_line
from netsum_common.options import REQUIRED, option, parse
from topologies.children import ending_in_order

Echo = Callable[[dict[str, Any]], None]


class InNetwork:
    """netsum as a `Reducer`."""

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator

    def barrier(self) -> None:
        """Return when all ranks have called it."""
        self._communicator.barrier()

    def allreduce(self, array: Array, exchange: PlannedExchange, out: Array) -> None:
        """Reduce `array` over all ranks into `out`."""
        how: Any = {"sparse": exchange.sparse, "bits": exchange.bits, "rounding": exchange.rounding}
        self._communicator.allreduce(array, exchange.op, out=out, **how)  # type: ignore[arg-type]  # checked by the plan

    def counts(self) -> dict[str, Any]:
        """Return the network cost of the last all-reduce."""
        spent = self._communicator.stats
        names = (
            "chunks",
            "retransmissions",
            "packets_sent",
            "packets_received",
            "bytes_sent",
            "bytes_received",
            "sparse_blocks",
            "own_blocks",
            "union_blocks",
            "duplicates",
            "stale",
            "probes",
            "srtt_ns",
        )
        return {name: getattr(spent, name) for name in names}


@dataclass(frozen=True)
class RankOptions:
    """One rank of a job; see `host_agent.joining.join`."""

    job: str = option("name of the job; the same at all ranks, and no other job's", REQUIRED)
    rank: int = option("number of the rank", REQUIRED)
    world_size: int = option("number of ranks", REQUIRED)
    plan: Plan = option("JSON of a netsum.allreduce.plan.Plan", REQUIRED, read=Plan.from_json)
    controller: str | None = option("HOST:PORT or unix:PATH; default: NETSUM_CONTROLLER")
    slots: str | None = option("chunks in flight: 64, 25% or 10gbit*50us; default: the controller's")
    join_token: str = option("secret of the job; default: NETSUM_JOIN_TOKEN", "")
    join_timeout_s: float = option("how long to wait for the controller and the other ranks", 120.0)
    stay: bool = option("when done, leave the job only when standard input ends", False)


def take_part(options: RankOptions, echo: Echo) -> bool:
    """Be one rank from joining to the end.

    Returns whether all results were right. Raises NetsumError if the job could not be joined, or a collective failed.
    """
    plan, rank = options.plan, options.rank
    with ended_by_signals():
        compile_ahead()  # Before others wait for us.
    with join(
        options.controller,
        job=options.job,
        rank=rank,
        world_size=options.world_size,
        slots=parse_slots(options.slots),
        if_full="take less",
        join_token=options.join_token or os.environ.get("NETSUM_JOIN_TOKEN", ""),
        timeout_s=options.join_timeout_s,
    ) as membership:
        admission = membership.admission
        echo(
            {
                "event": "joined",
                "rank": rank,
                "host": membership.host,
                "job_id": admission.job_id,
                "slots": admission.slot_count,
                "lanes": admission.lanes,
            }
        )
        correct, rounds = True, 0
        with (
            membership.communicator(timeout_s=plan.timeout_s) as communicator,
            _ending_with(membership, communicator) as ending,
        ):
            for each in measure(InNetwork(communicator), plan, rank, options.world_size):
                echo(each.to_message(rank))
                correct, rounds = correct and each.correct, rounds + 1
            ending.finishing = True
            communicator.barrier()  # Every rank stays while another one still needs an answer.
            spent = communicator.total_stats
            echo(
                {
                    "event": "done",
                    "rank": rank,
                    "rounds": rounds,
                    "correct": correct,
                    "retransmissions": spent.retransmissions,
                    "packets_sent": spent.packets_sent,
                    "packets_received": spent.packets_received,
                }
            )
            if options.stay:
                sys.stdin.read()
    return correct


class JobLostError(PeerError):
    """The purpose of the job cannot be reached any more; the message gives the reason."""


@dataclass
class _Ending:
    """Whether and why the job ends."""

    reason: str = ""  # Why no collective will end any more; empty while it will.
    # Whether this worker is done with all collectives: others may leave then, without harm.
    finishing: bool = False


@contextmanager
def _ending_with(membership: Membership, communicator: Communicator) -> Iterator[_Ending]:
    """End collectives as soon as the controller says that they cannot, and not only at their deadline."""
    ending = _Ending()

    def lost(reason: str) -> None:
        ending.reason = ending.reason or reason
        communicator.close()

    def left(rank: int, reason: str) -> None:
        if not ending.finishing:
            lost(f"rank {rank} left: {reason}")

    membership.watch(
        left,
        lambda reason: lost(f"the job ended: {reason}"),
        lambda _, reason: lost(f"the job was restarted: {reason}"),
    )
    try:
        yield ending
    except ClosedCommunicatorError:
        raise JobLostError(ending.reason) from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one rank; return 0 if all results were right."""
    options = parse(
        RankOptions, arguments, "python -m netsum.allreduce.worker", (__doc__ or "").split(":")[0]
    )
    try:
        with ending_in_order():
            correct = take_part(options, print_json_line)
    except NetsumError as fault:
        print_json_line({"event": "failed", "rank": options.rank, "error": str(fault)})
        return 1
    except KeyboardInterrupt:
        return 130
    return 0 if correct else 1


if __name__ == "__main__":
    sys.exit(main())
