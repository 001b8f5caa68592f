"""``netsum bench allreduce``: netsum and torch's Gloo all-reduce on the same links, in turn.

A Mininet testbed is brought up for every number of lanes and every loss; on it, one after the other, the same arrays are reduced
by netsum and by Gloo, whose TCP the same switch forwards. All results are checked bit for bit. The processor time of ranks and
switch, which other work on the machine changes less than the time that passes, is given per packet. The bounds are those of the
links: a chunk takes one frame of each worker each way, and a ring sends 2(n - 1)/n times the array in full TCP segments.
"""

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

from controller.service.client import OperatorClient
from host_agent.joining.leaf import LEAF_VARIABLE
from host_agent.wire.constants import HEADER_BYTES
from host_agent.wire.header import FRAME_HEADERS_BYTES
from netsum.allreduce.launch import silence_of
from netsum.allreduce.plan import Plan, PlanError, size_text
from netsum.allreduce.report import Message, Row, make_rows
from netsum.allreduce.session import run_between, testbed_sites
from netsum.bench.machine import command_line, machine_and_date
from netsum.bench.results import print_table
from netsum.bench.testbeds import run_ranks, testbed
from netsum.links_text import loss_of, rate_of
from netsum.programs import LANES
from netsum.slots_text import parse_slots
from netsum.terminal import console
from topologies.children import ending_in_order
from topologies.run_folder import RunningTestbed, new_run_folder
from topologies.switch_process import missing_for_switch
from topologies.topology_file import load_topology
from topologies.units import parse_rate_bps

TCP_FRAME_BYTES, TCP_PAYLOAD_BYTES = 14 + 1500, 1500 - 20 - 20 - 12
"""A full segment on a link with an MTU of 1500, with timestamps."""
GLOO = "Gloo (TCP)"


def netsum_bound(rate_bps: int, lanes: int) -> float:
    """Return the elements/s that a link carries: rate x lanes / bits of a chunk's frame."""
    return rate_bps * lanes / (8 * (FRAME_HEADERS_BYTES + HEADER_BYTES + lanes * 4))


def gloo_bound(rate_bps: int, workers: int) -> float:
    """Return the float32 elements/s of a ring all-reduce: each link carries 2(n - 1)/n of the array each way."""
    wire_bytes = 4 * TCP_FRAME_BYTES / TCP_PAYLOAD_BYTES * 2 * (workers - 1) / workers
    return rate_bps / (8 * wire_bytes)


@dataclass(frozen=True)
class Result:
    """What one contender did with one size at one loss."""

    contender: str  # Such as "netsum, 256 lanes".
    switch: str  # ``embedded`` or ``bmv2``.
    rate: str  # Of the links, as tc writes it.
    loss_percent: str  # Of every link, each way.
    workers: int
    bound: float  # The links' own, in elements/s.
    row: Row
    # What the switch had of the processors in the timed repeats; None if that was not measured.
    switch_seconds: float | None

    def us_per_packet(self, seconds: float | None) -> str:
        """Return processor time over the packets that hosts sent and received, in microseconds; empty if not known."""
        return "" if seconds is None or not self.row.packets else f"{seconds / self.row.packets * 1e6:.2f}"

    @property
    def share(self) -> float:
        """Of the links' bound, the median."""
        return self.row.elements_per_s.median / self.bound


class _Bench:
    def __init__(
        self, topology: str, slots: str | None, folder: Path, echo: Callable[[str], None], per_host: int
    ) -> None:
        self._per_host = per_host
        self.uplinks: list[str] = []  # What hosts sent, by the switch's port counters, as sentences.
        self._topology = topology
        self._slots = slots
        self._folder = folder
        self._echo = echo
        self.results: list[Result] = []

    def compare(self, switch: str, lanes: int, rate: str, loss: str, plan: Plan, *, with_gloo: bool) -> None:
        """Measure netsum, and Gloo if asked to, on one testbed."""
        with testbed(self._topology, switch=switch, lanes=lanes, rate=rate, loss_percent=loss) as bed:
            hosts = [host for host in bed.state["hosts"] for _ in range(self._per_host)]
            workers, rate_bps = len(hosts), parse_rate_bps(rate)
            where = f"{rate}, {loss} % loss, {switch}"
            for leaves in ("1", "0") if self._per_host > 1 else ("1",):
                name = f"netsum, {lanes} lanes" + ("" if leaves == "1" else ", no host leaves")
                self._echo(f"{name} on {bed.state['topology']}, {where}")
                spent, before = _SwitchTime(bed, plan, workers), _sent_by_hosts(bed)
                outcome = run_between(
                    plan,
                    [
                        replace(site, environment={**site.environment, LEAF_VARIABLE: leaves})
                        for site in testbed_sites(bed, hosts)
                    ],
                    controller=bed.controller_address,
                    folder=self._logs(f"{switch}-{lanes}-{rate}-{loss}-{leaves}"),
                    slots=self._slots,
                    on_message=spent.on_message,
                )
                sent = max(now - then for now, then in zip(_sent_by_hosts(bed), before, strict=True))
                rounds = plan.warmups + plan.repeats
                arrays = rounds * sum(row.bytes for row in outcome.rows)
                self.uplinks.append(
                    f"{name}, {where}: a host sent at most {sent:,} bytes, {sent / arrays:.2f} times a rank's arrays"
                )
                # The ranks of a host without a leaf share its link.
                bound = netsum_bound(rate_bps, lanes) / (1 if leaves == "1" else self._per_host)
                measured = zip(outcome.rows, spent.of_exchanges(), strict=True)
                self._keep(Result(name, switch, rate, loss, workers, bound, *each) for each in measured)
            if with_gloo:
                self._echo(f"{GLOO} on {bed.state['topology']}, {where}")
                rows = gloo_rows(bed, plan, self._logs(f"{switch}-gloo-{rate}-{loss}"), self._per_host)
                bound = gloo_bound(rate_bps, workers)
                self._keep(Result(GLOO, switch, rate, loss, workers, bound, row, None) for row in rows)

    def _keep(self, results: Iterable[Result]) -> None:
        self.results += results
        # What was measured stays, whatever becomes of the rest.
        (self._folder / "results.json").write_text(
            json.dumps([asdict(one) for one in self.results], indent=1), encoding="utf-8"
        )

    def _logs(self, name: str) -> Path:
        folder = self._folder / "logs" / name
        folder.mkdir(parents=True)
        return folder


class _SwitchTime:
    """What the testbed's switch has of the processors while ranks follow a plan."""

    def __init__(self, bed: RunningTestbed, plan: Plan, ranks: int) -> None:
        (switch,) = bed.state["switches"].values()
        self._threads = Path("/proc", str(switch["pid"]), "task")
        self._plan = plan
        self._ranks = ranks
        self._said = 0
        self._marks: list[float] = []

    def on_message(self, rank: int, message: Message) -> None:
        """Take a rank's message; a round is over when every rank has said so."""
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
        return sum(int(each.read_text().split()[0]) for each in self._threads.glob("*/schedstat")) / 1e9


def _sent_by_hosts(bed: RunningTestbed) -> list[int]:
    """Return how many bytes have come in on each port of the testbed's switch."""
    (switch,) = bed.state["switches"]
    with OperatorClient(bed.controller_address) as client:
        return [port.rx_bytes for port in client.switch(switch).ports]


def gloo_rows(bed: RunningTestbed, plan: Plan, folder: Path, per_host: int = 1) -> list[Row]:
    """Measure what torch's Gloo does of a plan on a testbed; logs go to `folder`."""
    rounds: list[list[Message]] = [[] for _ in range(per_host * len(bed.state["hosts"]))]

    def take(rank: int, message: Message) -> None:
        if message["event"] == "round":
            rounds[rank].append(message)

    run_ranks("gloo_rank", plan.to_json(), bed, folder, silence_of(plan), take, per_host)
    return make_rows(plan, rounds)


def _table(results: Sequence[Result]) -> list[list[str]]:
    gloo = {
        (one.switch == "bmv2", one.rate, one.loss_percent, one.row.bytes): one
        for one in results
        if one.contender == GLOO
    }
    lines = []
    for one in results:
        peer = gloo.get((one.switch == "bmv2", one.rate, one.loss_percent, one.row.bytes))
        rate = one.row.elements_per_s
        ratio = theory = ""
        if peer is not None and peer is not one:
            ratio = f"{rate.median / peer.row.elements_per_s.median:.2f}"
            theory = f"{one.bound / peer.bound:.2f}"
        lines.append(
            [
                one.switch,
                one.rate,
                f"{one.loss_percent} %",
                size_text(one.row.bytes),
                one.contender,
                f"{rate.median / 1e6:.3f} ({rate.least / 1e6:.3f} … {rate.most / 1e6:.3f})",
                f"{one.share:.1%}",
                ratio,
                theory,
                "" if one.row.retransmissions is None else f"{one.row.retransmissions:,}",
                one.us_per_packet(one.row.processor_seconds),
                one.us_per_packet(one.switch_seconds),
                "yes" if one.row.correct and one.row.same_bits else "NO",
            ]
        )
    return lines


HEADINGS = (
    "switch",
    "rate",
    "loss",
    "size",
    "contender",
    "M elements/s per worker",
    "of its bound",
    "x Gloo",
    "bounds' ratio",
    "resent",
    "host µs/packet",
    "switch µs/packet",
    "right, same bits",
)


def run(
    *,
    topology: str,
    rate: str,
    sizes: str,
    lossy_sizes: str,
    loss: str,
    lanes: str,
    switches: str,
    repeats: int,
    slots: str | None,
    bmv2_rate: str,
    bmv2_sizes: str,
    per_host: int = 1,
) -> None:
    """Measure netsum and Gloo on one topology and print the table; JSON, Markdown and plots go to a run folder."""
    from netsum.bench.plots import plot_allreduce

    plans = {
        loses: Plan.of(each, repeats=repeats, timeout_s=120.0)
        for loses, each in ((False, sizes), (True, lossy_sizes))
    }
    losses, lane_counts = loss.split(","), lanes.split(",")
    small = Plan.of(bmv2_sizes, repeats=repeats, timeout_s=120.0)
    lossy = {each: loss_of(each) > 0 for each in losses}
    rate_of(rate)
    if bmv2_rate != "0":
        rate_of(bmv2_rate, "--bmv2-rate")
    parse_slots(slots)
    load_topology(topology)
    if unknown := [each for each in lane_counts if each not in map(str, LANES)]:
        raise PlanError(f"--lanes: expected {' or '.join(map(str, LANES))}, not {unknown[0]!r}")
    if unknown := [each for each in switches.split(",") if each not in ("embedded", "xdp")]:
        raise PlanError(f"--switches: expected embedded or xdp, not {unknown[0]!r}")
    folder = new_run_folder(Path("runs"), "bench-allreduce")
    load = f"load before: {os.getloadavg()[0]:.1f}; float32, sum"
    header = f"{machine_and_date()}\n{command_line()}\n{load}"
    print(header, flush=True)
    with ending_in_order(), console(stderr=True).status("bringing up the testbed") as status:
        bench = _Bench(topology, slots, folder, status.update, per_host)
        for percent in losses:
            plan = plans[lossy[percent]]
            for number, (switch, count) in enumerate(product(switches.split(","), lane_counts)):
                bench.compare(switch, int(count), rate, percent, plan, with_gloo=number == 0)
        lacking = missing_for_switch("bmv2") if bmv2_rate != "0" else "--bmv2-rate is 0"
        if lacking is None:
            for switch in ("bmv2", "embedded"):
                bench.compare(switch, 64, bmv2_rate, "0", small, with_gloo=True)
    lines = _table(bench.results)
    text = print_table(HEADINGS, lines, key=5)
    for line in bench.uplinks:
        print(line)
    if lacking is not None:
        print(f"without BMv2: {lacking}")
    (folder / "table.md").write_text(f"{header}\n\n{text}", encoding="utf-8")
    plot_allreduce(bench.results, folder)
    print(f"results.json, table.md, allreduce.png, allreduce.svg: {os.path.relpath(folder)}")
