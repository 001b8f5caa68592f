"""``netsum compression bench``: trainings with compressed gradients over netsum and Gloo, on the same limited links.

A Mininet testbed is brought up; on each of its hosts one process trains every point of the comparison in turn. Each point's
result is a file, so an interrupted run goes on where it was.
"""

import dataclasses
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from netsum.allreduce.report import Message
from netsum.bench.compression_points import QUICK_METHODS, Curve, Point, points_of
from netsum.bench.compression_report import report
from netsum.bench.machine import machine_and_date, use_examples
from netsum.bench.results import Progress, Results
from netsum.bench.testbeds import run_ranks, testbed
from netsum.command_errors import kept_when_interrupted
from netsum.option_values import rate_of
from topologies.run_folder import RunningTestbed
from topologies.topology_file import load_topology

_SILENCE_S = 600.0  # How long the ranks may print nothing: one training, on a slow link.
_QUICK_TASKS = ("digits_cnn", "transformer_lm")
_QUICK_SCALE = 0.3  # Share of the steps, for a quick look.


def run(
    *,
    tasks: Sequence[str],
    methods: Sequence[str],
    backends: Sequence[str],
    seeds: int,
    topology: str,
    rate: str,
    folder: Path,
    seconds: float,
    quick: bool,
) -> None:
    """Run the points that have no result so far, then print the table and draw the plot of all."""
    rate_of(rate)
    network = f"{load_topology(topology).name} {rate}"
    use_examples()
    scale = 1.0
    if quick:
        tasks, methods, seeds, scale = _QUICK_TASKS, tuple(QUICK_METHODS), 1, _QUICK_SCALE
    points = points_of(tasks, methods, backends, seeds, scale, network)
    results = Results[Point, Curve](folder, Curve)
    missing = results.missing(points)
    print(f"{len(points)} points, {len(points) - len(missing)} of them run before", file=sys.stderr)
    with kept_when_interrupted("results are", results.folder):
        if missing:
            _run(missing, results, topology, rate, seconds)
    print(f"{machine_and_date()}; {network}, embedded switch")
    report(results.read(points), results.folder)


def _run(
    points: Sequence[Point], results: Results[Point, Curve], topology: str, rate: str, seconds: float
) -> None:
    began = time.monotonic()
    with (
        testbed(topology, switch="embedded", lanes=256, rate=rate, loss_percent="0") as bed,
        tempfile.TemporaryDirectory() as folder,
    ):
        _train(points, results, bed, Path(folder), began + seconds)


def _train(
    points: Sequence[Point],
    results: Results[Point, Curve],
    bed: RunningTestbed,
    folder: Path,
    deadline: float,
) -> None:
    """Run a rank on each host, which trains the points in turn, until all are done or time is up."""
    progress = Progress(len(points))

    def take(rank: int, message: Message) -> None:
        if message["event"] != "curve":
            return
        point = Point(**message["point"])
        curve = Curve(**{each.name: message[each.name] for each in dataclasses.fields(Curve)})
        results.keep(point, curve)
        progress.done(f"{point}: {curve.accuracies[-1]:.1%} after {curve.seconds[-1]:.1f} s")
        if time.monotonic() > deadline and progress.left:
            raise _TimeUp

    os.environ["NETSUM_CONTROLLER"] = bed.controller_address
    plan = json.dumps([dataclasses.asdict(point) for point in points])
    try:
        run_ranks("compression_rank", plan, bed, folder, _SILENCE_S, take)
    except _TimeUp:
        print("time is up: the same command goes on from here", file=sys.stderr)


class _TimeUp(Exception):
    """The time that the caller allowed has passed."""
