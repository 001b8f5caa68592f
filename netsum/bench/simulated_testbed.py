"""The same all-reduces on a Mininet testbed and in the simulator, side by side: ``python -m netsum.bench.simulated_testbed``.

Every combination of workers, rate, lanes, loss and size is measured on the testbed (the embedded switch as a process, workers as
processes, links shaped by the kernel) and computed in virtual time with the same numbers. What is measured is appended to a file
and not measured again, so that a long series can be made in pieces. Root and Mininet.

On the testbed, all hosts, links and the switch share the processors of one machine. The simulator counts that as the time that
the switch is busy with a packet: what `netsum.bench.parts` finds for a packet at all of them, over the number of processors.
"""

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from host_agent.wire.constants import HEADER_BYTES
from host_agent.wire.header import FRAME_HEADERS_BYTES
from netsum.allreduce.plan import Plan
from netsum.allreduce.session import run_between, testbed_sites
from netsum.bench.machine import machine_and_date
from netsum.bench.modules import one_sentence, positive, whole
from netsum.bench.testbeds import testbed
from netsum.simulation import programs
from netsum.terminal import Rows
from sim.experiments.experiment import parse_experiment
from sim.experiments.running import run_point
from topologies.units import parse_rate_bps

QUEUE_BYTES = 1000 * 1514  # As long as the queue that the testbed gives an interface.
LINKS_LIMIT_BELOW = 0.5
"""Share of the machine's processors that a scenario may need at its links' rate so that its links are the limit.

From there on, packets wait for processors: those of other work on the machine, and of the other end of each link.
"""
LOSSY_SEEDS = 9


@dataclass(frozen=True)
class Measured:
    """What the testbed took for one combination."""

    workers: int
    rate: str
    lanes: int
    loss: str
    slots: int
    size: int
    median_s: float
    least_s: float
    most_s: float
    repeats: int
    resent: int
    machine: str
    load: float

    @property
    def key(self) -> tuple[int, str, int, str, int, int]:
        """What was measured."""
        return self.workers, self.rate, self.lanes, self.loss, self.slots, self.size

    def processors_needed(self, pair_us: float) -> float:
        """Return the share of this machine's processors that is busy when all links are.

        `pair_us`: processor time of a contribution and its result, at all parts of the testbed together.
        """
        packets_per_s = parse_rate_bps(self.rate) / 8 / (FRAME_HEADERS_BYTES + HEADER_BYTES + 4 * self.lanes)
        return packets_per_s * self.workers * pair_us / 1e6 / (os.cpu_count() or 1)


def simulated_s(case: Measured, pair_us: float) -> float:
    """Return the median time over seeds and collectives in the simulator, in seconds."""
    text = f"""
[topology]
rate = "{case.rate}"
latency = 0
framing = 0
queue = {QUEUE_BYTES}
[switch]
service = {pair_us * 1000 / (os.cpu_count() or 1)}
[[job]]
workers = {case.workers}
size = {case.size}
lanes = {case.lanes}
slots = {case.slots}
collectives = 3
[[fault]]
loss = "{case.loss}%"
[run]
seeds = {1 if float(case.loss) == 0 else LOSSY_SEEDS}
"""
    rows = [row for point in parse_experiment(text, "x").points for row in run_point(point, programs()).rows]
    return float(statistics.median(row["duration_ns"] for row in rows)) / 1e9


def measure(
    workers: int, rate: str, lanes: int, loss: str, slots: int, sizes: str, repeats: int
) -> Iterator[Measured]:
    """Bring up a testbed and measure all-reduces of several sizes on it."""
    plan = Plan.of(sizes, repeats=repeats, timeout_s=120.0)
    with (
        tempfile.TemporaryDirectory() as folder,
        testbed(f"star-{workers}", switch="embedded", lanes=lanes, rate=rate, loss_percent=loss) as bed,
    ):
        found = run_between(
            plan,
            testbed_sites(bed, ()),
            controller=bed.controller_address,
            folder=Path(folder),
            slots=str(slots),
        ).rows
    for row in found:
        seconds = row.seconds
        yield Measured(
            *(workers, rate, lanes, loss, slots, row.bytes),
            *(seconds.median, seconds.least, seconds.most, repeats, row.retransmissions or 0),
            *(machine_and_date(), round(os.getloadavg()[0], 1)),
        )


def read_results(file: Path) -> list[Measured]:
    """Read what was measured before."""
    if not file.exists():
        return []
    return [Measured(**json.loads(line)) for line in file.read_text().splitlines()]


def print_table(cases: Sequence[Measured], costs: dict[int, float]) -> None:
    """Print both times of every combination, and how far they are apart."""
    for machine in sorted({case.machine.rsplit(";", 1)[0] for case in cases}):
        loads = [case.load for case in cases if case.machine.startswith(machine)]
        print(
            f"{machine}; {min(case.machine.rsplit('; ', 1)[-1] for case in cases)} to "
            f"{max(case.machine.rsplit('; ', 1)[-1] for case in cases)}; load {min(loads)} to {max(loads)}"
        )
    made = Rows(
        *(">work-\ners", "rate", ">lanes", ">loss,\n%", ">KiB", ">testbed,\nms", ">least to\nmost"),
        *(">simu-\nlated", ">apart", ">proces-\nsors"),
        key=5,
    )
    apart: dict[str, list[float]] = {}

    def pair_us(case: Measured) -> float:
        return costs[case.lanes]

    def order(case: Measured) -> tuple[bool, int, float, int, float, int]:
        links = case.processors_needed(pair_us(case)) < LINKS_LIMIT_BELOW
        return not links, parse_rate_bps(case.rate), case.workers, case.lanes, float(case.loss), case.size

    for case in sorted(cases, key=order):
        needed = case.processors_needed(pair_us(case))
        virtual = simulated_s(case, pair_us(case))
        difference = virtual / case.median_s - 1
        limit = "links" if needed < LINKS_LIMIT_BELOW else "processors"
        apart.setdefault(limit, []).append(abs(difference))
        made.add(
            *(str(case.workers), case.rate, str(case.lanes), case.loss, f"{case.size / 1024:,.0f}"),
            *(f"{case.median_s * 1e3:.1f}", f"{case.least_s * 1e3:.0f} to {case.most_s * 1e3:.0f}"),
            *(f"{virtual * 1e3:.1f}", f"{difference:+.1%}", f"{needed:.0%}"),
        )
    made.print()
    for limit, values in apart.items():
        print(
            f"{limit} are the limit, {len(values)} scenarios: apart by {statistics.median(values):.1%} at the median, "
            f"{max(values):.1%} at worst"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is not in the file yet, and print all of it beside simulated times."""
    options = argparse.ArgumentParser(description=main.__doc__)
    options.add_argument("--workers", type=whole, nargs="+", default=[2, 4])
    options.add_argument("--rates", nargs="+", default=["10mbit", "25mbit"])
    options.add_argument("--lanes", type=int, nargs="+", choices=(64, 256), default=[256, 64])
    options.add_argument("--losses", nargs="+", default=["0", "0.1"], help="percent, each way")
    options.add_argument("--sizes", default="512KiB,2MiB")
    options.add_argument("--slots", type=whole, default=256, help="chunks under way")
    options.add_argument("--repeats", type=whole, default=5)
    options.add_argument(
        "--results", type=Path, default=Path("runs/simulated_testbed.jsonl"), help="what was measured"
    )
    for lanes, us in ((64, 12.9), (256, 22.0)):
        options.add_argument(
            f"--pair-us-{lanes}",
            type=positive,
            default=us,
            metavar="US",
            help="processor time of a contribution and its result, from python -m netsum.bench.parts",
        )
    options.add_argument("--no-table", action="store_true", help="print no table: more is to be measured")
    options.add_argument("--table", action="store_true", help="measure nothing, print what is there")
    chosen = options.parse_args(arguments)
    costs = {64: chosen.pair_us_64, 256: chosen.pair_us_256}
    cases = (
        [] if chosen.table else itertools.product(chosen.workers, chosen.rates, chosen.lanes, chosen.losses)
    )
    chosen.results.parent.mkdir(parents=True, exist_ok=True)
    sizes = Plan.of(chosen.sizes).exchanges
    for workers, rate, lanes, loss in cases:
        there = {each.key for each in read_results(chosen.results)}
        if all((workers, rate, lanes, loss, chosen.slots, each.array_bytes) in there for each in sizes):
            continue
        for found in measure(workers, rate, lanes, loss, chosen.slots, chosen.sizes, chosen.repeats):
            with chosen.results.open("a") as file:
                file.write(json.dumps(asdict(found)) + "\n")
            print(f"{found.key}: {found.median_s:.4f} s", file=sys.stderr, flush=True)
    if not chosen.no_table:
        print_table(read_results(chosen.results), costs)


if __name__ == "__main__":
    with one_sentence():
        main()
