"""``netsum bench allreduce``: netsum and torch's Gloo all-reduce on the same links, in turn.

A Mininet testbed is brought up for every number of lanes and every loss; on it, one after the other, the same arrays are reduced
by netsum and by Gloo, whose TCP the same switch forwards; then, where that is chosen, arrays with zeros and elements of few bits.
All results are checked bit for bit, those of few bits against the bound of their error. The processor time of ranks and switch,
which other work on the machine changes less than the time that passes, is given per packet. The bounds are those of the links: a
chunk that travels takes one frame of each worker each way, and a ring sends 2(n - 1)/n times the array in full TCP segments.
"""

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

from controller.service.client import OperatorClient
from host_agent.codecs.packed import BITS, packed_codec
from host_agent.joining.leaf import LEAF_VARIABLE
from netsum.allreduce.launch import silence_of
from netsum.allreduce.plan import CHOICES, Plan, PlanError, PlannedExchange, parse_size
from netsum.allreduce.report import Message, ReportRow, make_rows
from netsum.allreduce.session import JobPlan, run_between, testbed_sites
from netsum.bench.allreduce_results import (
    GLOO,
    HEADINGS,
    AllReduceResult,
    gloo_bound,
    netsum_bound,
    print_table,
    table,
)
from netsum.bench.machine import command_line, machine_and_date
from netsum.bench.options import GlooComparisonOptions
from netsum.bench.testbeds import run_ranks, testbed
from netsum.option_values import loss_of, rate_of
from netsum.programs import check_lanes
from netsum.terminal import console
from netsum_common.lane_counts import SOFTWARE_LANES
from netsum_common.targets import PROCESS_TARGETS
from topologies.children import TestbedError, ending_in_order
from topologies.run_folder import RunningTestbed, new_run_folder
from topologies.topology_file import load_topology
from topologies.units import parse_rate_bps


class _Bench:
    def __init__(self, options: GlooComparisonOptions, folder: Path, echo: Callable[[str], None]) -> None:
        self._options, self._folder, self._echo = options, folder, echo
        self.uplinks: list[str] = []  # Bytes that hosts sent, by the switch's port counters, as sentences.
        self.results: list[AllReduceResult] = []

    def compare(self, switch: str, lanes: int, loss: str, plan: Plan, *, with_gloo: bool) -> None:
        """Measure netsum, and Gloo if chosen, on one testbed."""
        rate, per_host = self._options.rate, self._options.per_host
        with testbed(self._options.topology, switch=switch, lanes=lanes, rate=rate, loss_percent=loss) as bed:
            hosts = [host for host in bed.state["hosts"] for _ in range(per_host)]
            workers, rate_bps = len(hosts), parse_rate_bps(rate)
            where = f"{rate}, {loss} % loss, {switch}"
            for leaves in ("1", "0") if per_host > 1 else ("1",):
                name = f"netsum, {lanes} lanes" + ("" if leaves == "1" else ", no host leaves")
                self._echo(f"{name} on {bed.state['topology']}, {where}")
                spent, before = _SwitchTime(bed, plan, workers), _sent_by_hosts(bed)
                outcome = run_between(
                    plan,
                    [
                        replace(site, environment={**site.environment, LEAF_VARIABLE: leaves})
                        for site in testbed_sites(bed, hosts)
                    ],
                    JobPlan(bed.controller_address, slots=self._options.slots),
                    self._logs(f"{switch}-{lanes}-{rate}-{loss}-{leaves}"),
                    spent.on_message,
                )
                sent = max(now - then for now, then in zip(_sent_by_hosts(bed), before, strict=True))
                rounds = plan.warmups + plan.repeats
                arrays = rounds * sum(row.bytes for row in outcome.rows)
                self.uplinks.append(
                    f"{name}, {where}: a host sent at most {sent:,} bytes, {sent / arrays:.2f} times a rank's arrays"
                )
                # The ranks of a host without a leaf share its link.
                sharing = 1 if leaves == "1" else per_host
                for row, seconds in zip(outcome.rows, spent.of_exchanges(), strict=True):
                    per_lane = 1 if isinstance(row.bits, str) else packed_codec(row.bits, workers).per_lane
                    bound = netsum_bound(rate_bps, lanes, per_lane, row.union_share or 1.0) / sharing
                    self._keep([AllReduceResult(name, switch, rate, loss, workers, bound, row, seconds)])
            if with_gloo:
                self._echo(f"{GLOO} on {bed.state['topology']}, {where}")
                logs = self._logs(f"{switch}-gloo-{rate}-{loss}")
                rows = gloo_rows(bed, dense_part(plan), logs, per_host)
                bound = gloo_bound(rate_bps, workers)
                self._keep(
                    AllReduceResult(GLOO, switch, rate, loss, workers, bound, row, None) for row in rows
                )

    def _keep(self, results: Iterable[AllReduceResult]) -> None:
        self.results += results
        # Finished measurements stay if a later one fails.
        (self._folder / "results.json").write_text(
            json.dumps([asdict(one) for one in self.results], indent=1), encoding="utf-8"
        )

    def _logs(self, name: str) -> Path:
        folder = self._folder / "logs" / name
        folder.mkdir(parents=True)
        return folder


class _SwitchTime:
    """Processor time of the testbed's switches while ranks follow a plan."""

    def __init__(self, bed: RunningTestbed, plan: Plan, ranks: int) -> None:
        self._processes = [Path("/proc", str(each["pid"]), "task") for each in bed.state["switches"].values()]
        self._plan = plan
        self._ranks = ranks
        self._said = 0
        self._marks: list[float] = []

    def on_message(self, rank: int, message: Message) -> None:
        """Take a rank's message; a round is over when every rank has sent its message of it."""
        del rank
        if message["event"] == "joined" and not self._marks:
            self._marks.append(self._now())
        if message["event"] == "round":
            self._said += 1
            if self._said % self._ranks == 0:
                self._marks.append(self._now())

    def of_exchanges(self) -> list[float]:
        """Return the seconds of each exchange's timed repeats."""
        rounds = self._plan.warmups + self._plan.repeats
        ends = [(number + 1) * rounds for number in range(len(self._plan.exchanges))]
        return [self._marks[end] - self._marks[end - self._plan.repeats] for end in ends]

    def _now(self) -> float:
        # The first number is the time that a thread ran, in nanoseconds.
        threads = [each for process in self._processes for each in process.glob("*/schedstat")]
        return sum(int(each.read_text().split()[0]) for each in threads) / 1e9


def _sent_by_hosts(bed: RunningTestbed) -> list[int]:
    """Return how many bytes have come in on each port of the testbed's switches to which a host is connected."""
    with OperatorClient(bed.controller_address) as client:
        shown = [client.switch(name) for name in bed.state["switches"]]
    return [port.rx_bytes for switch in shown for port in switch.ports if port.peer in bed.state["hosts"]]


def exchanges_of(
    sizes: str, workers: int, densities: Sequence[float], overlaps: Sequence[str], bits: Sequence[int]
) -> tuple[PlannedExchange, ...]:
    """Return the exchanges: for each size the dense one first, then those with zeros and those of few bits."""
    exchanges = []
    for size in sizes.split(","):
        elements = -(-parse_size(size.strip()) // 4)
        exchanges.append(PlannedExchange("float32", "sum", elements))
        exchanges += [
            PlannedExchange("float32", "sum", elements, density, overlap)
            for overlap in overlaps
            for density in densities
            # Without overlap there must be room for all.
            if density < 1 and (overlap != "none" or density * workers <= 1)
        ]
        exchanges += [PlannedExchange("float32", "sum", elements, sparse="never", bits=each) for each in bits]
    return tuple(exchanges)


def dense_part(plan: Plan) -> Plan:
    """Return a plan without arrays with zeros and without few bits: what Gloo is measured with."""
    dense = (each for each in plan.exchanges if each.density == 1 and each.bits == "full")
    return replace(plan, exchanges=tuple(dense))


def gloo_rows(bed: RunningTestbed, plan: Plan, folder: Path, per_host: int = 1) -> list[ReportRow]:
    """Measure what torch's Gloo does of a plan on a testbed; logs go to `folder`."""
    rounds: list[list[Message]] = [[] for _ in range(per_host * len(bed.state["hosts"]))]

    def on_message(rank: int, message: Message) -> None:
        if message["event"] == "round":
            rounds[rank].append(message)

    run_ranks("gloo_rank", plan.to_json(), bed, folder, silence_of(plan), on_message, per_host)
    return make_rows(plan, rounds)


def _numbers(option: str, text: str, most: float) -> list[float]:
    try:
        numbers = [float(each) for each in text.split(",") if each.strip()]
    except ValueError:
        numbers = [-1.0]
    if any(not 0 <= each <= most for each in numbers):
        raise PlanError(f"{option}: expected numbers from 0 to {most:g} with commas between, not {text!r}")
    return numbers


def _chosen(option: str, text: str, known: Sequence[object]) -> list[str]:
    words = text.split(",")
    if unknown := [each for each in words if each not in map(str, known)]:
        *others, last = map(str, known)
        raise PlanError(f"{option}: expected {', '.join(others)} or {last}, not {unknown[0]!r}")
    return words


def run(options: GlooComparisonOptions) -> list[dict[str, Any]]:
    """Measure netsum and Gloo on one topology and print the table; JSON and Markdown go to a run folder."""
    rate_of(options.rate)
    losses = options.loss.split(",")
    lossy = {each: loss_of(each) > 0 for each in losses}
    lane_counts = _chosen("--lanes", options.lanes, SOFTWARE_LANES)
    switch_kinds = _chosen("--switches", options.switches, tuple(PROCESS_TARGETS))
    for kind in switch_kinds:
        if (lacking := PROCESS_TARGETS[kind].lacking()) is not None:
            raise TestbedError(lacking)
    topology = load_topology(options.topology)
    for count in lane_counts:
        check_lanes(int(count), topology.mtu, topology.name)
    workers = options.per_host * len(topology.hosts)
    variants = (
        [each / 100 for each in _numbers("--densities", options.densities, 100)],
        _chosen("--overlaps", options.overlaps, CHOICES["overlap"]),
        [int(each) for each in _numbers("--bits", options.bits, 16)],
    )
    if unknown := [each for each in variants[2] if each not in BITS]:
        raise PlanError(f"--bits: expected {', '.join(map(str, BITS[1:]))}, not {unknown[0]}")
    plans = {
        loses: Plan(exchanges_of(each, workers, *variants), options.repeats, timeout_s=120.0)
        for loses, each in ((False, options.sizes), (True, options.lossy_sizes))
    }
    folder = new_run_folder(Path("runs"), "bench-allreduce")
    load = f"load before: {os.getloadavg()[0]:.1f}; float32, sum"
    header = f"{machine_and_date()}\n{command_line()}\n{load}"
    print(header, flush=True)
    with ending_in_order(), console(stderr=True).status("bringing up the testbed") as status:
        bench = _Bench(options, folder, status.update)
        for percent in losses:
            plan = plans[lossy[percent]]
            for number, (switch, count) in enumerate(product(switch_kinds, lane_counts)):
                first = number == 0 or (switch == "bmv2" and count == lane_counts[0])
                bench.compare(switch, int(count), percent, plan, with_gloo=options.gloo and first)
    text = print_table(HEADINGS, table(bench.results), key=6)
    for line in bench.uplinks:
        print(line)
    (folder / "table.md").write_text(f"{header}\n\n{text}", encoding="utf-8")
    print(f"results.json and table.md: {os.path.relpath(folder)}")
    return list(map(asdict, bench.results))
