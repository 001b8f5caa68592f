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
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

from controller.service.client import OperatorClient
from host_agent.codecs.packed import BITS, packed_codec
from host_agent.joining.leaf import LEAF_VARIABLE
from host_agent.wire.constants import HEADER_BYTES
from host_agent.wire.header import FRAME_HEADERS_BYTES
from netsum.allreduce.launch import silence_of
from netsum.allreduce.plan import CHOICES, Exchange, Plan, PlanError, parse_size, size_text
from netsum.allreduce.report import Message, Row, make_rows
from netsum.allreduce.session import run_between, testbed_sites
from netsum.bench.machine import command_line, machine_and_date
from netsum.bench.results import print_table
from netsum.bench.testbeds import run_ranks, testbed
from netsum.option_values import loss_of, rate_of
from netsum.programs import LANES
from netsum.terminal import console
from topologies.children import ending_in_order
from topologies.run_folder import RunningTestbed, new_run_folder
from topologies.switch_process import missing_for_switch
from topologies.topology_file import load_topology
from topologies.units import parse_rate_bps

TCP_FRAME_BYTES, TCP_PAYLOAD_BYTES = 14 + 1500, 1500 - 20 - 20 - 12
"""A full segment on a link with an MTU of 1500, with timestamps."""
GLOO = "Gloo (TCP)"


def netsum_bound(rate_bps: int, lanes: int, elements_per_lane: int = 1, union_share: float = 1.0) -> float:
    """Return the elements/s that a link carries, where a share of the array's chunks travels."""
    frame_bits = 8 * (FRAME_HEADERS_BYTES + HEADER_BYTES + lanes * 4)
    return rate_bps * lanes * elements_per_lane / frame_bits / union_share


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

    @property
    def array(self) -> str:
        """What was reduced: a dense array, one with zeros, or elements of few bits."""
        row = self.row
        if row.bits != "full":
            return f"{row.bits} bits"
        return "dense" if row.density == 1 else f"{row.density * 100:.4g} %, {row.overlap}"

    def us_per_packet(self, seconds: float | None) -> str:
        """Return processor time over the packets that hosts sent and received, in microseconds; empty if not known."""
        return "" if seconds is None or not self.row.packets else f"{seconds / self.row.packets * 1e6:.2f}"

    @property
    def share(self) -> float:
        """The median as a share of the links' bound."""
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
        """Measure netsum, and Gloo if chosen, on one testbed."""
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
                sharing = 1 if leaves == "1" else self._per_host
                for row, seconds in zip(outcome.rows, spent.of_exchanges(), strict=True):
                    per_lane = 1 if isinstance(row.bits, str) else packed_codec(row.bits, workers).per_lane
                    bound = netsum_bound(rate_bps, lanes, per_lane, row.union_share or 1.0) / sharing
                    self._keep([Result(name, switch, rate, loss, workers, bound, row, seconds)])
            if with_gloo:
                self._echo(f"{GLOO} on {bed.state['topology']}, {where}")
                logs = self._logs(f"{switch}-gloo-{rate}-{loss}")
                rows = gloo_rows(bed, dense_part(plan), logs, self._per_host)
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
    """What the testbed's switches have of the processors while ranks follow a plan."""

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
) -> tuple[Exchange, ...]:
    """Return the exchanges: for each size the dense one first, then those with zeros and those of few bits."""
    exchanges = []
    for size in sizes.split(","):
        elements = -(-parse_size(size.strip()) // 4)
        exchanges.append(Exchange("float32", "sum", elements))
        exchanges += [
            Exchange("float32", "sum", elements, density, overlap)
            for overlap in overlaps
            for density in densities
            # Without overlap there must be room for all.
            if density < 1 and (overlap != "none" or density * workers <= 1)
        ]
        exchanges += [Exchange("float32", "sum", elements, sparse="never", bits=each) for each in bits]
    return tuple(exchanges)


def dense_part(plan: Plan) -> Plan:
    """Return a plan without arrays with zeros and without few bits: what Gloo is measured with."""
    dense = (each for each in plan.exchanges if each.density == 1 and each.bits == "full")
    return replace(plan, exchanges=tuple(dense))


def gloo_rows(bed: RunningTestbed, plan: Plan, folder: Path, per_host: int = 1) -> list[Row]:
    """Measure what torch's Gloo does of a plan on a testbed; logs go to `folder`."""
    rounds: list[list[Message]] = [[] for _ in range(per_host * len(bed.state["hosts"]))]

    def take(rank: int, message: Message) -> None:
        if message["event"] == "round":
            rounds[rank].append(message)

    run_ranks("gloo_rank", plan.to_json(), bed, folder, silence_of(plan), take, per_host)
    return make_rows(plan, rounds)


HEADINGS = (
    *("switch", "rate", "loss", ">size", "array", "contender", "?>union", ">M elements/s\nper worker"),
    *(">of its\nbound", ">x dense", ">x Gloo", "?>bounds'\nratio", "?>resent", "?>host\nµs/packet"),
    *(">ms, median\n(99th %)", "?>switch\nµs/packet", "?>MB\nup", "?>MB\ndown", "right,\nsame bits"),
)


def _table(results: Sequence[Result]) -> list[list[str]]:
    gloo: dict[object, Result] = {}
    dense: dict[object, Result] = {}
    for one in results:
        where = (one.switch == "bmv2", one.rate, one.loss_percent, one.row.bytes)
        if one.contender == GLOO:
            gloo[where] = one
        dense.setdefault((one.contender, one.switch, *where), one)
    lines = []
    for one in results:
        row, rate = one.row, one.row.elements_per_s
        where = (one.switch == "bmv2", one.rate, one.loss_percent, row.bytes)
        peer, plain = gloo.get(where), dense[one.contender, one.switch, *where]
        rates = [each / 1e6 for each in (rate.median, rate.least, rate.most)]
        ratio = theory = ""
        if peer is not None and peer is not one:
            ratio = f"{rate.median / peer.row.elements_per_s.median:.2f}"
            theory = f"{one.bound / peer.bound:.2f}"
        a_rank = row.repeats * one.workers * 1e6
        lines.append(
            [
                *(
                    one.switch,
                    one.rate,
                    f"{one.loss_percent} %",
                    size_text(row.bytes),
                    one.array,
                    one.contender,
                ),
                "" if row.union_share is None else f"{row.union_share:.2%}",
                f"{rates[0]:.3f} ({rates[1]:.3f} … {rates[2]:.3f})",
                f"{one.share:.1%}",
                "" if plain is one else f"{rate.median / plain.row.elements_per_s.median:.2f}",
                *(ratio, theory, "" if row.retransmissions is None else f"{row.retransmissions:,}"),
                one.us_per_packet(row.processor_seconds),
                f"{row.seconds.median * 1e3:.2f} ({row.seconds.p99 * 1e3:.2f})",
                one.us_per_packet(one.switch_seconds),
                *(
                    "" if each is None else f"{each / a_rank:.2f}"
                    for each in (row.bytes_sent, row.bytes_received)
                ),
                "yes" if row.correct and row.same_bits else "NO",
            ]
        )
    return lines


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


def run(
    *,
    topology: str,
    rate: str,
    sizes: str,
    lossy_sizes: str,
    loss: str,
    densities: str,
    overlaps: str,
    bits: str,
    lanes: str,
    switches: str,
    repeats: int,
    slots: str | None,
    gloo: bool,
    bmv2_rate: str,
    bmv2_sizes: str,
    per_host: int,
) -> None:
    """Measure netsum and Gloo on one topology and print the table; JSON, Markdown and plots go to a run folder."""
    from netsum.bench.plots import plot_allreduce, plot_sparse

    rate_of(rate)
    if bmv2_rate != "0":
        rate_of(bmv2_rate, "--bmv2-rate")
    losses = loss.split(",")
    lossy = {each: loss_of(each) > 0 for each in losses}
    lane_counts = _chosen("--lanes", lanes, LANES)
    switch_kinds = _chosen("--switches", switches, ("embedded", "xdp"))
    workers = per_host * len(load_topology(topology).hosts)
    variants = (
        [each / 100 for each in _numbers("--densities", densities, 100)],
        _chosen("--overlaps", overlaps, CHOICES["overlap"]),
        [int(each) for each in _numbers("--bits", bits, 16)],
    )
    if unknown := [each for each in variants[2] if each not in BITS]:
        raise PlanError(f"--bits: expected {', '.join(map(str, BITS[1:]))}, not {unknown[0]}")
    plans = {
        loses: Plan(exchanges_of(each, workers, *variants), repeats, timeout_s=120.0)
        for loses, each in ((False, sizes), (True, lossy_sizes))
    }
    small = Plan.of(bmv2_sizes, repeats=repeats, timeout_s=120.0)
    folder = new_run_folder(Path("runs"), "bench-allreduce")
    load = f"load before: {os.getloadavg()[0]:.1f}; float32, sum"
    header = f"{machine_and_date()}\n{command_line()}\n{load}"
    print(header, flush=True)
    with ending_in_order(), console(stderr=True).status("bringing up the testbed") as status:
        bench = _Bench(topology, slots, folder, status.update, per_host)
        for percent in losses:
            plan = plans[lossy[percent]]
            for number, (switch, count) in enumerate(product(switch_kinds, lane_counts)):
                bench.compare(switch, int(count), rate, percent, plan, with_gloo=gloo and number == 0)
        lacking = missing_for_switch("bmv2") if bmv2_rate != "0" else "--bmv2-rate is 0"
        if lacking is None:
            for switch in ("bmv2", "embedded"):
                bench.compare(switch, 64, bmv2_rate, "0", small, with_gloo=True)
    text = print_table(HEADINGS, _table(bench.results), key=6)
    for line in bench.uplinks:
        print(line)
    if lacking is not None:
        print(f"without BMv2: {lacking}")
    (folder / "table.md").write_text(f"{header}\n\n{text}", encoding="utf-8")
    plot_allreduce(bench.results, folder)
    if densities:
        plot_sparse(bench.results, folder)
    print(f"results.json, table.md, and plots as PNG and SVG: {os.path.relpath(folder)}")
