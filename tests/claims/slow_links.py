"""Methods for slow links on a grid of links: loss after equal seconds, and after equal bytes.

    python -m tests.claims.slow_links [LINK]… [--method NAME]… [--seeds N] [--folder FOLDER] [--json]

A LINK is a rate and a round trip, as 10mbit/50ms. A training does not depend on the link, so each runs once, in virtual time,
and is kept in the folder: a second run goes on where the first ended. Its collectives are then put on every link, with as many
slots as fill it, and losses are interpolated between two looks. On each link a method has the one of three values of its option
that has the lowest loss there with the first seed.
"""

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import numpy as np

from controller.ledger import DEFAULT_SLOTS
from host_agent.wire.constants import LANE_BYTES
from netsum.bench.machine import use_examples
from netsum.terminal import ProgressRows, print_json
from tests.claims.slow_link import (
    EVERY,
    METHODS,
    OUTER,
    SECONDS,
    MeteredLinks,
    Method,
    Trained,
    durations_of,
    model_bytes,
    replayed,
    train,
)
from tests.virtual.network import LANES, NetworkOf
from topologies.units import parse_latency_ns, parse_rate_bps

LINKS: Final = ("10mbit/5ms", "10mbit/50ms", "100mbit/5ms", "100mbit/50ms", "1gbit/5ms", "1gbit/50ms")
SWITCH_SLOTS: Final = 1024
STEPS: Final = 124  # More than fit into the time on any link.
MEGABYTES: Final = (0.02, 0.05, 0.2, 1, 5, 20, 100)
GRID: Final = {name: replace(method, steps=STEPS) for name, method in METHODS.items()} | {
    "muon": Method("muon", STEPS, "rate", (0.01, 0.02, 0.04)),
    "decoupled, 3 of 4": Method("decoupled-diloco", STEPS, "outer_momentum", OUTER, {"sync_every": EVERY}, 3),
}


def link(text: str) -> NetworkOf:
    """Return the link that a text names: a rate and a round trip."""
    rate, _, round_trip = text.partition("/")
    return NetworkOf(parse_rate_bps(rate), parse_latency_ns(round_trip) / 1000)


def slots_of(network: NetworkOf) -> int:
    """Return as many slots as fill the link during a round trip, in powers of two, or all of a switch if it has fewer."""
    packets = network.rate_bps * network.rtt_us / 1e6 / (8 * LANE_BYTES * LANES)
    return min(SWITCH_SLOTS, max(DEFAULT_SLOTS, 1 << math.ceil(math.log2(packets))))


class Trainings:
    """Trainings that a folder keeps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._began = time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)

    def of(self, name: str, value: float, seed: int) -> Trained:
        """Return a training, run or read."""
        kept = self.folder / f"{name.replace(' ', '-').replace(',', '')}-{value:g}-{seed}.json"
        if kept.exists():
            return Trained(**json.loads(kept.read_text(encoding="utf-8")))
        trained = train(GRID[name], value, seed)
        kept.write_text(json.dumps(asdict(trained)), encoding="utf-8")
        self.say(
            f"{name}: {GRID[name].tuned} {value:g}, seed {seed}: loss {trained.losses[-1]:.3f} at the end"
        )
        return trained

    def say(self, what: str) -> None:
        """Print progress."""
        print(f"{what} ({time.monotonic() - self._began:.0f} s so far)", file=sys.stderr, flush=True)


def spread(losses: Sequence[float]) -> str:
    """Return mean and standard deviation, or why there is none."""
    if not losses:
        return "-"
    return f"{statistics.fmean(losses):.3f}" + (f"±{statistics.stdev(losses):.3f}" if len(losses) > 1 else "")


def rows_of(
    name: str, trainings: Trainings, networks: Sequence[NetworkOf], seeds: int, start: int = 0
) -> tuple[list[str], list[str]]:
    """Return a method's losses after equal seconds on each link, and after equal bytes.

    `start`: bytes that every method sends before its first step, which do not count.
    """
    first = {value: trainings.of(name, value, 0) for value in GRID[name].values}
    by_seconds, chosen = [name], dict[NetworkOf, list[Trained]]()
    for network in networks:

        def losses(of: Sequence[Trained], network: NetworkOf = network) -> list[float]:
            durations = durations_of(of, [network], trainings.folder / "collectives", slots_of(network))[
                network
            ]
            times = [replayed(each, MeteredLinks(network, durations)) for each in of]
            looks = [
                [at[look] for look in range(len(each.losses))] for each, at in zip(of, times, strict=True)
            ]
            return [float(np.interp(SECONDS, at, each.losses)) for each, at in zip(of, looks, strict=True)]

        found = dict(zip(losses(list(first.values())), first, strict=True))
        best = found[min(found)]
        chosen[network] = [trainings.of(name, best, seed) for seed in range(seeds)]
        by_seconds.append(f"{spread(losses(chosen[network]))} ({best:g})")
        trainings.say(" | ".join(by_seconds))
    by_bytes = [name]
    for megabytes in MEGABYTES:
        sent = start + 1e6 * megabytes
        of = [each for each in chosen[networks[0]] if each.sent[0] <= sent <= each.sent[-1]]
        by_bytes.append(spread([float(np.interp(sent, each.sent, each.losses)) for each in of]))
    return by_seconds, by_bytes


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.claims.slow_links", description=__doc__)
    parser.add_argument("links", nargs="*", metavar="LINK", help=f"default: {' '.join(LINKS)}")
    parser.add_argument(
        "--method", action="append", choices=GRID, metavar="NAME", help="of the tables; all by default"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("runs/slow-links"))
    parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON document")
    chosen = parser.parse_args()
    texts = chosen.links or list(LINKS)
    try:
        networks = [link(text) for text in texts]
    except ValueError as expected:
        parser.error(f"LINK is a rate and a round trip, as 10mbit/50ms: expected {expected}")
    use_examples()
    trainings = Trainings(chosen.folder)
    names = chosen.method or list(GRID)
    both = [rows_of(name, trainings, networks, chosen.seeds, model_bytes()) for name in names]
    titles = {
        "seconds": ["method", *(f"{text.replace('/', ', ')}" for text in texts)],
        "bytes": ["method", *(f"{megabytes:g} MB" for megabytes in MEGABYTES)],
    }
    tables = dict(zip(titles, zip(*both, strict=True), strict=True))
    if chosen.as_json:
        print_json({name: {"columns": titles[name], "rows": tables[name]} for name in titles})
        return
    for name, rows in tables.items():
        print(
            f"loss after {SECONDS:g} s, and the tuned value:"
            if name == "seconds"
            else "loss after bytes sent:"
        )
        table = ProgressRows(*titles[name])
        for row in rows:
            table.add(*row)
        table.print()


if __name__ == "__main__":
    main()
