"""``netsum bench sparse``: all-reduces of arrays with zeros, and of few bits, on limited links, beside dense ones and Gloo's.

On one Mininet testbed, one after the other: netsum with dense arrays, with arrays of which a rank has 0.1 to 100 % of the blocks,
and with elements of few bits; then torch's Gloo. All results are checked bit for bit, those of few bits against the bound of
their error. The bound of a time is that of the links: of U, the share of the blocks that any rank has, each link carries every
frame down to the worker, and no more than that up.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from host_agent.codecs.packed import BITS, packed_codec
from host_agent.wire.constants import HEADER_BYTES
from host_agent.wire.header import FRAME_HEADERS_BYTES
from netsum.allreduce.plan import CHOICES, Exchange, Plan, PlanError, parse_size, size_text
from netsum.allreduce.report import Row
from netsum.allreduce.session import run_between, testbed_sites
from netsum.bench.allreduce import gloo_rows
from netsum.bench.machine import command_line, machine_and_date
from netsum.bench.results import print_table
from netsum.bench.testbeds import testbed
from netsum.links_text import loss_of, rate_of
from netsum.slots_text import parse_slots
from netsum.terminal import console
from topologies.children import ending_in_order
from topologies.run_folder import new_run_folder
from topologies.topology_file import load_topology
from topologies.units import parse_rate_bps

ITEM_BYTES = 4
GLOO = "Gloo"


def seconds_bound(rate_bps: int, lanes: int, elements: int, per_lane: int, union_share: float) -> float:
    """Return how long a link carries the frames of the blocks that travel, in seconds."""
    frame_bytes = FRAME_HEADERS_BYTES + HEADER_BYTES + lanes * ITEM_BYTES
    return union_share * -(-elements // (lanes * per_lane)) * frame_bytes * 8 / rate_bps


@dataclass(frozen=True)
class Result:
    """One exchange, its bound, and how many times as fast it was as the dense one and as Gloo's of the same size."""

    contender: str
    workers: int
    lanes: int
    rate: str
    loss_percent: str
    row: Row
    bound_seconds: float | None
    times_dense: float | None
    times_gloo: float | None

    @property
    def share(self) -> float | None:
        """Of the bound, the median."""
        return None if self.bound_seconds is None else self.bound_seconds / self.row.seconds.median


def plan_of(
    sizes: Sequence[str],
    densities: Sequence[float],
    overlaps: Sequence[str],
    bits: Sequence[int],
    workers: int,
) -> list[Exchange]:
    """Return the exchanges: for each size the dense one first."""
    exchanges = []
    for size in sizes:
        elements = parse_size(size) // ITEM_BYTES
        exchanges.append(Exchange("float32", "sum", elements, sparse="never"))
        exchanges += [
            Exchange("float32", "sum", elements, density, overlap)
            for overlap in overlaps
            for density in densities
            # Without zeros all overlap alike; without overlap there must be room for all.
            if (density < 1 or overlap == overlaps[0]) and (overlap != "none" or density * workers <= 1)
        ]
        exchanges += [Exchange("float32", "sum", elements, sparse="never", bits=each) for each in bits]
    return exchanges


def _results(
    rows: Sequence[Row], gloo: Sequence[Row], *, workers: int, lanes: int, rate: str, loss: str
) -> list[Result]:
    of_gloo = {row.bytes: row.seconds.median for row in gloo}
    dense: dict[int, float] = {}
    results = []
    for row in rows:
        seconds = row.seconds.median
        dense.setdefault(row.bytes, seconds)
        per_lane = 1 if isinstance(row.bits, str) else packed_codec(row.bits, workers).per_lane
        bound = seconds_bound(
            parse_rate_bps(rate),
            lanes,
            row.elements,
            per_lane,
            1.0 if row.union_share is None else row.union_share,
        )
        peer = of_gloo.get(row.bytes)
        times_gloo = None if peer is None else peer / seconds
        results.append(
            Result("netsum", workers, lanes, rate, loss, row, bound, dense[row.bytes] / seconds, times_gloo)
        )
    results += [Result(GLOO, workers, lanes, rate, loss, row, None, None, None) for row in gloo]
    return results


HEADINGS = (
    *(">size", "array", "?>own", ">union", ">ms", "?>least", "?>most", ">bound\nms", ">of\nbound"),
    *(">times\ndense", ">times\nGloo", "right", "?>MB\nup", "?>MB\ndown"),
)


def _line(one: Result) -> list[str]:
    row = one.row
    ms = row.seconds
    if one.contender == GLOO:
        what = "Gloo (TCP)"
    elif row.bits != "full":
        what = f"{row.bits} bits"
    elif row.sparse == "never":
        what = "dense, never"
    elif row.density == 1:
        what = "dense, auto"
    else:
        what = f"{row.density * 100:.4g} %, {row.overlap}"

    def optional(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    each = row.repeats * one.workers * 1e6
    return [
        size_text(row.bytes),
        what,
        optional(row.own_share, ".2%"),
        optional(row.union_share, ".2%"),
        *(f"{seconds * 1e3:.1f}" for seconds in (ms.median, ms.least, ms.most)),
        optional(one.bound_seconds and one.bound_seconds * 1e3, ".1f"),
        optional(one.share, ".1%"),
        optional(one.times_dense, ".2f"),
        optional(one.times_gloo, ".1f"),
        "yes" if row.correct and row.same_bits else "NO",
        "" if row.bytes_sent is None else f"{row.bytes_sent / each:.2f}",
        "" if row.bytes_received is None else f"{row.bytes_received / each:.2f}",
    ]


def _numbers(text: str, option: str, most: float) -> list[float]:
    try:
        numbers = [float(each) for each in text.split(",") if each.strip()]
    except ValueError:
        numbers = [-1.0]
    if any(not 0 <= each <= most for each in numbers):
        raise PlanError(f"{option}: expected numbers from 0 to {most:g} with commas between, not {text!r}")
    return numbers


def run(
    *,
    topology: str,
    rate: str,
    loss: str,
    sizes: str,
    densities: str,
    overlaps: str,
    bits: str,
    lanes: int,
    switch: str,
    repeats: int,
    slots: str | None,
    gloo: bool,
) -> None:
    """Measure block-sparse and packed all-reduces on one topology; JSON, a table and a plot go to a run folder."""
    from netsum.bench.plots import plot_sparse

    size_list = [each.strip() for each in sizes.split(",")]
    shares = [each / 100 for each in _numbers(densities, "--densities", 100)]
    widths = [int(each) for each in _numbers(bits, "--bits", 16)]
    overlap_list = overlaps.split(",")
    if unknown := [each for each in overlap_list if each not in CHOICES["overlap"]]:
        raise PlanError(f"--overlaps: expected {', '.join(map(str, CHOICES['overlap']))}, not {unknown[0]!r}")
    if unknown_bits := [each for each in widths if each not in BITS]:
        raise PlanError(f"--bits: expected {', '.join(map(str, BITS[1:]))}, not {unknown_bits[0]}")
    rate_of(rate)
    loss_of(loss)
    parse_slots(slots)
    workers = len(load_topology(topology).hosts)
    plan = Plan(tuple(plan_of(size_list, shares, overlap_list, widths, workers)), repeats, timeout_s=120.0)
    dense = Plan.of(sizes, repeats=repeats, timeout_s=120.0)
    folder = new_run_folder(Path("runs"), "bench-sparse")
    header = (
        f"{machine_and_date()}\n{command_line()}\n"
        f"load before: {os.getloadavg()[0]:.1f}; {workers} workers, {switch} switch, "
        f"{lanes} lanes, {rate}; float32, sum"
    )
    print(header, flush=True)
    results: list[Result] = []
    with ending_in_order(), console(stderr=True).status("bringing up the testbed") as status:
        with testbed(
            topology,
            switch=switch,
            lanes=lanes,
            rate=rate,
            loss_percent=loss,
        ) as bed:
            status.update(f"netsum: {len(plan.exchanges)} exchanges")
            logs = folder / "logs" / "netsum"
            logs.mkdir(parents=True)
            outcome = run_between(
                plan,
                testbed_sites(bed, ()),
                controller=bed.controller_address,
                folder=logs,
                slots=slots,
                on_message=lambda rank, message: status.update(f"netsum: {message}"[:120]),
            )
            of_gloo: list[Row] = []
            if gloo:
                status.update("Gloo")
                (folder / "logs" / "gloo").mkdir()
                of_gloo = gloo_rows(bed, dense, folder / "logs" / "gloo")
        results = _results(outcome.rows, of_gloo, workers=workers, lanes=lanes, rate=rate, loss=loss)
        (folder / "results.json").write_text(
            json.dumps([asdict(one) for one in results], indent=1), encoding="utf-8"
        )
    text = print_table(HEADINGS, [_line(one) for one in results], key=2)
    (folder / "table.md").write_text(f"{header}\n\n{text}", encoding="utf-8")
    plot_sparse(results, folder)
    print(f"results.json, table.md, sparse.png, sparse.svg: {os.path.relpath(folder)}")
