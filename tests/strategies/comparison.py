"""``python -m tests.strategies``: the same task and seeds under every strategy, in virtual time.

All workers of a training run in this process. Their messages and waits are kept, so that the time on links of any rate and
round trip can be computed afterwards; the times of collectives come from the simulator.
"""

import gzip
import json
import math
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from netsum.bench.machine import machine_and_date
from netsum.command_errors import kept_when_interrupted
from netsum.option_values import rate_of, rtt_us_of
from sim.experiments.sweeping import Finished, Swept
from tests.strategies.options import StrategiesOptions
from tests.strategies.points import Curve, StrategyPoint, points_of
from tests.strategies.report import collectives_of, report, rows_of, times_of
from tests.virtual.network import NetworkOf, simulate_collectives


class Results:
    """A folder with a file for each training that was run."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder

    def missing(self, points: Iterable[StrategyPoint]) -> list[StrategyPoint]:
        """Return the points that were not run."""
        return [point for point in points if not (self.folder / point.file_name).is_file()]

    def keep(self, point: StrategyPoint, curve: Curve) -> None:
        """Write a result; a file is there whole or not at all."""
        path = self.folder / point.file_name
        partial = path.with_suffix(".partial")
        text = json.dumps({"point": asdict(point), "curve": asdict(curve)}) + "\n"
        partial.write_bytes(gzip.compress(text.encode(), mtime=0))
        partial.replace(path)

    def read(self, points: Iterable[StrategyPoint]) -> dict[StrategyPoint, Curve]:
        """Return the results that are there of some points."""
        there = {point: self.folder / point.file_name for point in points}
        return {
            point: Curve(**json.loads(gzip.decompress(path.read_bytes()))["curve"])
            for point, path in there.items()
            if path.is_file()
        }


_QUICK_RECIPES = ("synchronous", "local-sgd", "diloco", "downpour")


def run(options: StrategiesOptions) -> None:
    """Run the trainings that have no result so far, compute their times on all links, and print the tables of all."""
    networks = [
        NetworkOf(rate_of(rate, "--rates"), rtt_us_of(rtt, "--rtts"))
        for rate in options.rates.split(",")
        for rtt in options.rtts.split(",")
    ]
    points = points_of(_quick(options) if options.quick else options)
    results = Results(options.folder)
    with kept_when_interrupted("results are", results.folder):
        _train(points, results, math.inf if options.seconds is None else options.seconds)
        found = results.read(points)
        sizes = collectives_of(found.values())
        durations = simulate_collectives(networks, sizes, results.folder / "collectives", _Simulated())
    computes = f"a step computes for {options.step_time}" + (
        f", {options.slowest:g} times as long at the last worker" if options.slowest != 1 else ""
    )
    print(f"{machine_and_date()}; virtual time, {computes}; star, 256 lanes, ideal hosts")
    times = {point: times_of(curve, durations) for point, curve in found.items()}
    report(rows_of(found, times, networks), networks)


def _quick(options: StrategiesOptions) -> StrategiesOptions:
    return replace(options, tasks="digits", strategies=",".join(_QUICK_RECIPES), workers="4", seeds=1)


def _train(points: Sequence[StrategyPoint], results: Results, seconds: float) -> None:
    missing = results.missing(points)
    print(f"{len(points)} trainings, {len(points) - len(missing)} of them run before", file=sys.stderr)
    if not missing:
        return
    from tests.strategies.training import train

    began = time.monotonic()
    for number, point in enumerate(missing, 1):
        if time.monotonic() - began > seconds:
            print("time is up: the same command goes on from here", file=sys.stderr)
            return
        curve = train(point)
        results.keep(point, curve)
        left = (time.monotonic() - began) / number * (len(missing) - number)
        print(
            f"{number} of {len(missing)}: {point}: {curve.accuracies[-1]:.1%}, {curve.sent_bytes / 1e3:,.0f} kB sent by a "
            f"worker; about {left / 60:.0f} min left",
            file=sys.stderr,
            flush=True,
        )


class _Simulated:
    """Says how far the simulator is, at most once in two seconds."""

    def __init__(self) -> None:
        self._said = time.monotonic()

    def __call__(self, swept: Swept, finished: Finished | None) -> None:
        if finished is not None and finished.result is None:
            print(f"the simulator: {finished.point}: {finished.error}", file=sys.stderr)
        if finished is not None and time.monotonic() - self._said >= 2:
            self._said = time.monotonic()
            print(f"times of collectives: {swept.done} of {swept.total}", file=sys.stderr)
