"""Time of checked and masked sums on a Mininet testbed: ``python -m tests.verification.on_testbed [ROUNDS] [--switch KIND]``.

The sizes, modes and rate are those of `tests.verification.limited_links`. Each of four hosts has a process with a job for each
mode, and the modes take turns, so that other work of the machine meets all alike. A round's time is that of its slowest rank.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import numpy as np

from host_agent.communicator import compile_ahead
from host_agent.errors import MisuseError
from host_agent.joining import join
from host_agent.verification.masking import check_cipher
from host_agent.verification.trust import Trust
from netsum.allreduce.launch import Ranks
from netsum.allreduce.report import Message
from netsum.allreduce.session import testbed_sites
from netsum.bench.testbeds import testbed
from netsum.terminal import print_json_line
from tests.verification.limited_links import LANES, MODES, RATE_BPS, SIZES, SLOTS, WORKERS

SECRET: Final = b"a secret that all workers share "
TRUST: Final = {
    "plain": Trust(),
    "verify": Trust(verify=True),
    "retry": Trust(verify=True, on_corruption="retry"),
    "private": Trust(secret=SECRET, private=True),
}
MOST_BYTES: Final = 1 << 23  # Elements and rounds together: larger arrays have fewer rounds.
LEAST: Final = 15
DEADLINE_S: Final = 120.0


def rounds_of(elements: int, rounds: int) -> int:
    """Return the rounds of an array: all, or fewer of a large one."""
    return min(rounds, max(LEAST, 2 * MOST_BYTES // elements))


def take_part(rank: int, rounds: int) -> None:
    """Be one rank of all jobs."""
    compile_ahead()
    with ExitStack() as stack:
        made = {}
        for mode in MODES:
            member = stack.enter_context(
                join(job=mode, rank=rank, world_size=WORKERS, slots=SLOTS, timeout_s=DEADLINE_S)
            )
            made[mode] = stack.enter_context(member.communicator(DEADLINE_S, trust=TRUST[mode]))
        print_json_line({"event": "joined"})
        for label, elements in SIZES.items():
            array = np.random.default_rng(rank).normal(size=elements).astype(np.float32)
            for number in range(-1, rounds_of(elements, rounds)):  # The first compiles, and exchanges keys.
                for at in range(len(MODES)):
                    mode = MODES[(at + number) % len(MODES)]
                    made["plain"].barrier()
                    began = time.perf_counter()
                    made[mode].allreduce(array, sparse="never")
                    spent = time.perf_counter() - began
                    if number >= 0:
                        print_json_line({"event": "round", "key": [label, mode, number], "ms": 1e3 * spent})
        made["plain"].barrier()
    print_json_line({"event": "done"})
    sys.stdin.read()


def measure(rounds: int, switch: str) -> dict[str, dict[str, list[float]]]:
    """Return each round's milliseconds by size and mode."""
    slowest: dict[tuple[str, str, int], float] = defaultdict(float)

    def on_message(rank: int, message: Message) -> None:
        if message["event"] == "round":
            key = (*message["key"],)
            slowest[key] = max(slowest[key], message["ms"])
            if rank == 0 and not message["key"][2] % 10:
                print(f"{', '.join(map(str, key))}: {message['ms']:.1f} ms", file=sys.stderr, flush=True)

    def command(rank: int) -> Sequence[str]:
        return [sys.executable, "-m", "tests.verification.on_testbed", str(rounds), "--rank", str(rank)]

    bed = testbed("star-4", switch=switch, lanes=LANES, rate=f"{RATE_BPS // 10**6}mbit", loss_percent="0")
    with bed as running, tempfile.TemporaryDirectory() as folder:
        os.environ["NETSUM_CONTROLLER"] = running.state["controller"]["address"]
        with Ranks(command, testbed_sites(running, list(running.state["hosts"])), Path(folder)) as ranks:
            ranks.follow(DEADLINE_S, on_message)
            ranks.dismiss()
    found: dict[str, dict[str, list[float]]] = {label: {mode: [] for mode in MODES} for label in SIZES}
    for label, mode, number in sorted(slowest, key=lambda key: key[2]):
        found[label][mode].append(slowest[label, mode, number])
    return found


def main() -> None:
    """Measure, and print medians and quartiles, and what each mode adds to a plain sum of the same round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", type=int, nargs="?", default=100)
    parser.add_argument("--switch", choices=("embedded", "xdp", "bmv2"), default="embedded")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.rank is not None:
        take_part(chosen.rank, chosen.rounds)
        return
    try:
        check_cipher()
    except MisuseError as missing:
        sys.exit(str(missing))
    before = os.getloadavg()[0]
    for label, by_mode in measure(chosen.rounds, chosen.switch).items():
        for mode, spent in by_mode.items():
            low, middle, high = statistics.quantiles(spent, n=4)
            added = [100 * (one / plain - 1) for one, plain in zip(spent, by_mode["plain"], strict=True)]
            worst, typical, best = statistics.quantiles(added, n=4)[::-1]
            print(
                f"{label}, {mode}: {middle:.2f} ms ({low:.2f} … {high:.2f}), least {min(spent):.2f}; "
                f"{typical:+.2f} % ({best:+.2f} … {worst:+.2f}), {len(spent)} rounds",
                flush=True,
            )
    print(f"load {before:.1f} before, {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
