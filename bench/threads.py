"""One thread or several over disjoint slots: ``python -m bench.threads``.

Every rank joins a job with all the slots, and jobs that have a part of them each. The same array is reduced by the one, in one
thread, and in parts by the others at once, a thread each. That is what a worker with several threads over disjoint slots would
be, with nothing shared between them. Switch and ranks are processes on this machine's loopback.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import numpy as np

from bench.machine import machine_and_date
from host_agent.communicator import Communicator, compile_ahead
from host_agent.joining import join
from netsum.allreduce.launch import Ranks
from netsum.allreduce.report import Message
from netsum.allreduce.session import local_sites, loopback_controller
from netsum.cli.errors import reported_errors

__all__ = ["main"]

ROOT = Path(__file__).resolve().parents[1]

SLOTS = 128
TIMEOUT_S = 120.0


def be_a_rank(rank: int, world_size: int, controller: str, threads: int, elements: int, runs: int) -> None:
    """Reduce in turn in one thread and in several; say how long each took and what processor time."""
    compile_ahead()
    with ExitStack() as stack:

        def member(job: str, slots: int) -> Communicator:
            asked = {"job": job, "rank": rank, "world_size": world_size, "slots": slots}
            seat = stack.enter_context(join(controller, timeout_s=TIMEOUT_S, **asked))  # type: ignore[arg-type]
            return stack.enter_context(seat.communicator(timeout_s=TIMEOUT_S))

        ways = [
            [member("whole", SLOTS)],
            [member(f"part {part}", SLOTS // threads) for part in range(threads)],
        ]
        array = np.random.default_rng(rank).standard_normal(elements, np.float32)
        out = np.zeros_like(array)
        for run in range(-1, runs):
            for way in ways:
                ways[0][0].allreduce_async(array[:1]).result()  # a barrier; its thread runs from now on
                wall, spent = time.perf_counter(), time.process_time()
                parts = zip(way, np.array_split(array, len(way)), np.array_split(out, len(way)), strict=True)
                for future in [each.allreduce_async(part, out=into) for each, part, into in parts]:
                    future.result()
                took = {
                    "seconds": time.perf_counter() - wall,
                    "processor_seconds": time.process_time() - spent,
                }
                if run >= 0:
                    print(json.dumps({"event": "round", "threads": len(way), **took}), flush=True)
        ways[0][0].allreduce_async(array[:1]).result()
        print(json.dumps({"event": "done"}), flush=True)
        sys.stdin.read()


@reported_errors()
def main(arguments: Sequence[str] | None = None) -> None:
    """Print elements/s per worker and processor time, in one thread a rank and in several."""
    options = argparse.ArgumentParser(description=main.__doc__)
    options.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--lanes", type=int, choices=(64, 256), default=256)
    options.add_argument("--elements", type=int, default=1 << 22)
    options.add_argument("--runs", type=int, default=7)
    options.add_argument("--be-rank", help=argparse.SUPPRESS)
    chosen = options.parse_args(arguments)
    if chosen.be_rank:
        rank, world_size, controller = json.loads(chosen.be_rank)
        be_a_rank(rank, world_size, controller, chosen.threads, chosen.elements, chosen.runs)
        return
    print(machine_and_date())
    print(
        f"load before: {os.getloadavg()[0]:.1f}; {chosen.lanes} lanes, {SLOTS} slots in all, float32, sum; "
        f"median of {chosen.runs} runs (least … most)"
    )
    for workers in chosen.workers:
        _measure(workers, chosen)


def _measure(workers: int, chosen: argparse.Namespace) -> None:
    same = ["--threads", str(chosen.threads), "--elements", str(chosen.elements), "--runs", str(chosen.runs)]
    rounds: dict[int, list[list[Message]]] = {}

    def take(rank: int, message: Message) -> None:
        if message["event"] == "round":
            of_rank = rounds.setdefault(message["threads"], [[] for _ in range(workers)])[rank]
            of_rank.append(message)

    with (
        tempfile.TemporaryDirectory(prefix="netsum-threads-") as folder,
        loopback_controller(workers, chosen.lanes, 0, Path(folder)) as address,
    ):

        def command(rank: int) -> list[str]:
            place = json.dumps([rank, workers, address])
            return [sys.executable, "-m", "bench.threads", "--be-rank", place, *same]

        os.environ["PYTHONPATH"] = str(ROOT)  # bench is not installed.
        with Ranks(command, local_sites(workers), Path(folder)) as ranks:
            ranks.follow(TIMEOUT_S, take)
            ranks.dismiss()
    for threads, said in sorted(rounds.items()):
        rate = [
            chosen.elements / max(one["seconds"] for one in each) / 1e6 for each in zip(*said, strict=True)
        ]
        spent = [sum(one["processor_seconds"] for one in each) for each in zip(*said, strict=True)]
        print(
            f"{workers} workers, {threads} threads each: {median(rate):6.2f} M elements/s ({min(rate):.2f} … {max(rate):.2f}), "
            f"{median(spent):.3f} s of the ranks' processors a run",
            flush=True,
        )


if __name__ == "__main__":
    main()
