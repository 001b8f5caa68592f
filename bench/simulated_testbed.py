"""The same all-reduces on a Mininet testbed and in the simulator, side by side: ``python bench/simulated_testbed.py``.

Every combination of workers, rate, lanes, loss and size is measured on the testbed (the embedded switch as a process, workers as
processes, links shaped by the kernel) and computed in virtual time with the same numbers and ideal hosts. Root and Mininet.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.engine import machine_and_date  # noqa: E402
from bench.testbeds import testbed  # noqa: E402
from netsum.allreduce.plan import Plan  # noqa: E402
from netsum.allreduce.session import run_between, testbed_sites  # noqa: E402
from netsum.simulation import programs  # noqa: E402
from netsum.terminal import Rows  # noqa: E402
from sim.experiments.experiment import parse_experiment  # noqa: E402
from sim.experiments.running import run_point  # noqa: E402

__all__ = ["main"]

QUEUE_BYTES = 1000 * 1514
"""As long as the queue that the testbed gives an interface."""


def simulated(workers: int, rate: str, lanes: int, loss: str, size: int, slots: int, seeds: int) -> float:
    """Return the median time over seeds, in seconds."""
    text = f"""
[topology]
rate = "{rate}"
latency = 0
framing = 0
queue = {QUEUE_BYTES}
[host]
cost = "measured"
[[job]]
workers = {workers}
size = {size}
lanes = {lanes}
slots = {slots}
collectives = 3
[[fault]]
loss = "{loss}%"
[run]
seeds = {seeds}
"""
    rows = [row for point in parse_experiment(text, "x").points for row in run_point(point, programs()).rows]
    return statistics.median(row["duration_ns"] for row in rows) / 1e9


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both times of every combination, and how far they are apart."""
    options = argparse.ArgumentParser(description=main.__doc__)
    options.add_argument("--workers", type=int, nargs="+", default=[2, 4])
    options.add_argument("--rates", nargs="+", default=["20mbit", "100mbit"])
    options.add_argument("--lanes", type=int, nargs="+", choices=(64, 256), default=[256, 64])
    options.add_argument("--losses", nargs="+", default=["0", "0.1"], help="percent, each way")
    options.add_argument("--sizes", default="1MiB,4MiB")
    options.add_argument(
        "--slots",
        type=int,
        default=256,
        help="chunks under way, so many that pauses of processes are covered",
    )
    options.add_argument("--repeats", type=int, default=3)
    chosen = options.parse_args(arguments)
    print(f"{machine_and_date()}; load {os.getloadavg()[0]:.1f}", flush=True)
    made = Rows(
        ">workers", "rate", ">lanes", ">loss, %", ">size", ">testbed, ms", ">simulated, ms", ">apart", key=5
    )
    apart: dict[bool, list[float]] = {False: [], True: []}
    cases = itertools.product(chosen.workers, chosen.rates, chosen.lanes, chosen.losses)
    for workers, rate, lanes, loss in cases:
        plan = Plan.of(chosen.sizes, repeats=chosen.repeats, timeout_s=120.0)
        with (
            tempfile.TemporaryDirectory() as folder,
            testbed(f"star-{workers}", switch="embedded", lanes=lanes, rate=rate, loss_percent=loss) as bed,
        ):
            sites = testbed_sites(bed, ())
            found = run_between(
                plan, sites, controller=bed.controller_address, folder=Path(folder), slots=str(chosen.slots)
            ).rows
        for row in found:
            real = row.seconds.median
            size = row.bytes
            virtual = simulated(workers, rate, lanes, loss, size, chosen.slots, 5 if loss != "0" else 1)
            apart[loss != "0"].append(abs(virtual / real - 1))
            made.add(
                *(str(workers), rate, str(lanes), loss, f"{size:,}"),
                *(f"{real * 1e3:.2f}", f"{virtual * 1e3:.2f}", f"{virtual / real - 1:+.1%}"),
            )
            print(
                f"{workers} {rate} {lanes} {loss} {size} {real:.5f} {virtual:.5f}",
                file=sys.stderr,
                flush=True,
            )
    made.print()
    for lossy, values in apart.items():
        if values:
            print(
                f"{'with' if lossy else 'without'} loss, {len(values)} scenarios: apart by {statistics.median(values):.1%} "
                f"at the median, {max(values):.1%} at worst"
            )


if __name__ == "__main__":
    main()
