"""``netsum compression bench``: trainings with compressed gradients over netsum and Gloo, on the same limited links.

A Mininet testbed is brought up; on each of its hosts one process trains every point of the comparison in turn. Each point's
result is a file, so an interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.compression_points import METHODS, QUICK_METHODS, TASKS, Curve, Point, Results, points_of  # noqa: E402
from bench.compression_report import report  # noqa: E402
from bench.engine import machine_and_date  # noqa: E402
from bench.testbeds import testbed  # noqa: E402
from netsum.allreduce.launch import Ranks  # noqa: E402
from netsum.allreduce.report import Message  # noqa: E402
from netsum.allreduce.session import testbed_sites  # noqa: E402
from netsum.links_text import rate_of  # noqa: E402
from topologies.run_folder import RunningTestbed  # noqa: E402
from topologies.topology_file import load_topology  # noqa: E402

__all__ = ["main"]

_SILENCE_S = 600.0
"""How long the ranks may say nothing: one training, on a slow link."""
_QUICK_TASKS = ("digits_cnn", "transformer_lm")
_QUICK_SCALE = 0.3
"""Of the steps, for a quick look."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the points that have no result so far, then print the table and draw the plot of all."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--methods", default=",".join(["none", *METHODS]))
    parser.add_argument("--backends", default="netsum,gloo")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--topology", default="star-2")
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--folder", type=Path, default=Path("runs") / "compression")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no point after so long")
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args(arguments)
    rate_of(chosen.rate)
    network = f"{load_topology(chosen.topology).name} {chosen.rate}"
    tasks, methods, seeds, scale = chosen.tasks.split(","), chosen.methods.split(","), chosen.seeds, 1.0
    if chosen.quick:
        tasks, methods, seeds, scale = list(_QUICK_TASKS), list(QUICK_METHODS), 1, _QUICK_SCALE
    points = points_of(tasks, methods, chosen.backends.split(","), seeds, scale, network)
    results = Results(chosen.folder)
    missing = results.missing(points)
    print(f"{len(points)} points, {len(points) - len(missing)} of them run before", file=sys.stderr)
    try:
        if missing:
            _run(missing, results, chosen.topology, chosen.rate, chosen.seconds)
    except KeyboardInterrupt:
        print(f"\nresults are kept in {results.folder}: the same command goes on from there", file=sys.stderr)
        raise
    print(f"{machine_and_date()}; {network}, embedded switch")
    report(results.read(points), results.folder)


def _run(points: Sequence[Point], results: Results, topology: str, rate: str, seconds: float) -> None:
    began = time.monotonic()
    with (
        testbed(topology, switch="embedded", lanes=256, rate=rate, loss_percent="0") as bed,
        tempfile.TemporaryDirectory() as folder,
    ):
        _train(points, results, bed, Path(folder), began + seconds)


def _train(
    points: Sequence[Point], results: Results, bed: RunningTestbed, folder: Path, deadline: float
) -> None:
    """Run a rank on each host, which trains the points in turn, until all are done or time is up."""
    sites = testbed_sites(bed, ())
    hosts = bed.state["hosts"]
    plan = json.dumps([dataclasses.asdict(point) for point in points])

    def command(rank: int) -> list[str]:
        return [
            *(sys.executable, "-m", "bench.compression_rank", "--rank", str(rank)),
            *("--world-size", str(len(sites)), "--plan", plan),
            *("--master", hosts[sites[0].name]["ip"], "--interface", hosts[sites[rank].name]["interface"]),
        ]

    began = time.monotonic()
    done = 0

    def take(rank: int, message: Message) -> None:
        nonlocal done
        if message["event"] != "curve":
            return
        point = Point(**message["point"])
        curve = Curve(**{each.name: message[each.name] for each in dataclasses.fields(Curve)})
        results.keep(point, curve)
        done += 1
        left = (time.monotonic() - began) / done * (len(points) - done)
        print(
            f"{done} of {len(points)}: {point}: {curve.accuracies[-1]:.1%} after {curve.seconds[-1]:.1f} s; "
            f"about {left / 60:.0f} min left",
            file=sys.stderr,
            flush=True,
        )
        if time.monotonic() > deadline and done < len(points):
            raise _TimeUp

    os.environ["PYTHONPATH"] = str(ROOT)  # bench is not installed.
    os.environ["NETSUM_CONTROLLER"] = bed.controller_address
    with Ranks(command, sites, folder) as ranks:
        try:
            ranks.follow(_SILENCE_S, take)
        except _TimeUp:
            print("time is up: the same command goes on from here", file=sys.stderr)
            return
        ranks.dismiss()


class _TimeUp(Exception):
    """The time that the caller allowed has passed."""


if __name__ == "__main__":
    main()
