"""What exact sums cost between processes on the Mininet testbed: ``python -m netsum.bench.exact_testbed star-4`` (root).

Each host has normally distributed numbers, which are all-reduced plainly (dense) and exactly in turns. A time is that of the last
rank, from the end of a barrier.
"""

import argparse
import hashlib
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from host_agent.collectives.exact import Exact
from host_agent.communicator import compile_ahead
from host_agent.joining import join
from netsum.allreduce.launch import Ranks
from netsum.allreduce.session import testbed_sites
from netsum.bench.exact import LANES, SLOTS, rounded_to
from netsum.bench.machine import machine_and_date
from netsum.bench.modules import one_sentence, whole
from netsum.bench.testbeds import testbed
from netsum.terminal import Rows, print_json_line

TYPES: Final[dict[str, Exact]] = {"float32": True, "bfloat16": "bfloat16", "float16": True}
TIMEOUT_S: Final = 300.0


def _rank(options: argparse.Namespace) -> None:
    """Be one rank, and print a line of JSON for every all-reduce."""
    compile_ahead()
    joined = {"job": "exact", "rank": options.rank, "world_size": options.workers, "slots": SLOTS}
    with join(options.controller, **joined) as seat, seat.communicator(timeout_s=TIMEOUT_S) as communicator:
        print_json_line({"event": "joined"})
        for dtype in TYPES:
            rng = np.random.default_rng([1, options.rank])
            array = rounded_to(rng.standard_normal(options.elements), dtype)
            for repeat in range(-1, options.repeats):
                for exact in (False, TYPES[dtype]):
                    how: dict[str, Any] = {"exact": exact} if exact else {"sparse": "never"}
                    communicator.barrier()
                    begin = time.perf_counter()
                    result = communicator.allreduce(array, **how)
                    seconds = time.perf_counter() - begin
                    digest = hashlib.sha256(result.tobytes()).hexdigest()
                    what = [dtype, bool(exact), repeat]
                    print_json_line({"event": "round", "what": what, "seconds": seconds, "sha256": digest})
        communicator.barrier()
        print_json_line({"event": "done"})
        sys.stdin.read()


def _measure(options: argparse.Namespace) -> None:
    """Bring up a testbed, run a rank on each host, and print medians with the least and the most."""
    times: dict[tuple[Any, ...], float] = {}
    digests: dict[tuple[Any, ...], set[str]] = {}

    def take(rank: int, message: dict[str, Any]) -> None:
        if message["event"] == "round":
            what = tuple(message["what"])
            times[what] = max(times.get(what, 0.0), message["seconds"])
            digests.setdefault(what[:2], set()).add(message["sha256"])

    load = os.getloadavg()[0]
    with (
        testbed(options.topology, switch="embedded", lanes=LANES, rate=options.rate, loss_percent="0") as bed,
        tempfile.TemporaryDirectory() as folder,
    ):
        sites = testbed_sites(bed, ())

        def command(rank: int) -> list[str]:
            return [
                *(sys.executable, "-m", "netsum.bench.exact_testbed", options.topology, "--rank", str(rank)),
                *("--workers", str(len(sites)), "--controller", bed.controller_address),
                *("--elements", str(options.elements), "--repeats", str(options.repeats)),
            ]

        with Ranks(command, sites, Path(folder)) as ranks:
            ranks.follow(TIMEOUT_S, take)
            ranks.dismiss()
    print(
        f"{machine_and_date()}; load {load:.1f} before, {os.getloadavg()[0]:.1f} after; {options.topology}, {options.rate}"
    )
    table = Rows("type", ">plain, s (least, most)", ">exact, s (least, most)", ">exact / plain", "same bits")
    for dtype in TYPES:
        both = [[times[dtype, exact, each] for each in range(options.repeats)] for exact in (False, True)]
        texts = [f"{median(each):.3f} ({min(each):.3f}, {max(each):.3f})" for each in both]
        same = "yes" if all(len(digests[dtype, exact]) == 1 for exact in (False, True)) else "NO"
        table.add(dtype, *texts, f"{median(both[1]) / median(both[0]):.2f}", same)
    table.print()


def main() -> None:
    """Print a table over types; or be one of its ranks."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("topology", help="such as star-4 or star-8")
    parser.add_argument("--elements", type=whole, default=1 << 22, help="of an array (default: %(default)s)")
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--repeats", type=whole, default=5)
    for option, kind in (("--rank", int), ("--workers", int), ("--controller", str)):
        parser.add_argument(option, type=kind, help=argparse.SUPPRESS)
    options = parser.parse_args()
    (_measure if options.rank is None else _rank)(options)


if __name__ == "__main__":
    with one_sentence():
        main()
