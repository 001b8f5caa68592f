"""`netsum sim`: experiments in virtual time."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netsum.cli.parameters import Commands
from netsum.cli.texts import epilog
from netsum.command_errors import CommandError, UsageError, kept_when_interrupted
from netsum.options import json_option
from netsum_common.options import argument, option

if TYPE_CHECKING:
    from sim.experiments.experiment import Experiment
    from sim.experiments.store import ResultStore
    from sim.experiments.sweeping import Executor, Finished, Swept

sim_app = Commands(
    help="Run packet-level experiments in virtual time, with the real P4 program and worker core."
)

_LONG_S = 20  # A run that takes longer says before it begins how long.


@dataclass(frozen=True)
class Chosen:
    """An experiment, values in place of its file's, and the folder of its results."""

    experiment: str = argument("An experiment's file (.toml), or the name of a shipped one.", metavar="FILE")
    settings: tuple[str, ...] = option(
        'A value in place of the file\'s, as TOML: --set job.workers=8, --set \'topology.rate=["1gbit", "10gbit"]\'.',
        (),
        "--set",
        metavar="KEY=VALUE",
    )
    folder: Path | None = option("Folder of the results. Default: runs/sim/NAME, with --set a folder in it.")


@sim_app.command("list", epilog=epilog("netsum sim list  # the experiments and models that come with netsum"))
def sim_list(as_json: bool = json_option()) -> None:
    """List the experiments that come with netsum, and the models that jobs can train."""
    from netsum.terminal import ProgressRows, print_json
    from sim.experiments.experiment import load_experiment, shipped_experiments
    from sim.experiments.models import load_model, shipped_models

    experiments = [(name, load_experiment(name)) for name in shipped_experiments()]
    models = [(name, load_model(name)) for name in shipped_models()]
    if as_json:
        print_json(
            {
                "experiments": [
                    {"name": name, "points": len(read.points), "question": read.question}
                    for name, read in experiments
                ],
                "models": [
                    {
                        "name": name,
                        "parameters": model.parameters,
                        "forward_ns": model.forward_ns,
                        "backward_ns": model.backward_ns,
                    }
                    for name, model in models
                ],
            }
        )
        return
    made = ProgressRows("experiment", ">points", "~question")
    for name, read in experiments:
        made.add(name, str(len(read.points)), read.question)
    made.print()
    print()
    made = ProgressRows("model", ">parameters", ">forward and backward")
    for name, model in models:
        made.add(name, f"{model.parameters:,}", f"{(model.forward_ns + model.backward_ns) / 1e6:.1f} ms")
    made.print()


@sim_app.command(
    "run",
    epilog=epilog(
        "netsum sim run workers  # a shipped experiment, all its points one after the other",
        "netsum sim run mine.toml --set job.workers=8  # a file of your own, with another value",
        "netsum sim run workers --set run.seeds=1 --trace  # and a trace of the first point for Perfetto",
        "netsum sim run workers --json | jq '.rows[] | {varied, limited_by}'  # for a script",
        ok="all points were computed, and every sum was right",
    ),
)
def sim_run(
    *,
    chosen: Chosen,
    pcap: tuple[str, ...] = option(
        "Capture a link of the first point: h1>s1; * matches any name.", (), metavar="LINK"
    ),
    trace: bool = option(
        "Write a trace of the first point for ui.perfetto.dev, and a page of its packets.", False
    ),
    as_json: bool = json_option(),
) -> None:
    """Run an experiment in this process; points that are in its folder already are skipped."""
    from netsum.terminal import print_result
    from sim.experiments.sweeping import here

    read, store = _open(chosen)

    def run() -> dict[str, Any]:
        found = _compute(read, store, here)
        _print_usage()
        return {**found, "written": _record(read, store, pcap, trace) if pcap or trace else []}

    print_result(as_json, run)


@sim_app.command(
    "sweep",
    epilog=epilog(
        "netsum sim sweep loss  # on all processors of this machine",
        "netsum sim sweep loss --scheduler 10.0.0.1:8786  # on a Dask cluster that spans machines",
        ok="all points were computed, and every sum was right",
        interrupted="Ctrl-C; what was computed is kept, and the same command goes on from there",
    ),
)
def sim_sweep(
    *,
    chosen: Chosen,
    scheduler: str | None = option(
        "Address of a Dask scheduler. Default: a cluster on this machine.", metavar="ADDRESS"
    ),
    workers: int | None = option("Processes on this machine. Default: its processors.", within=(1, 1024)),
    as_json: bool = json_option(),
) -> None:
    """Run an experiment's points on a Dask cluster; points that are in its folder already are skipped."""
    from netsum.terminal import print_result
    from sim.experiments.sweeping import on_dask

    read, store = _open(chosen)
    print_result(as_json, lambda: _compute(read, store, on_dask(scheduler, workers)))


@sim_app.command(
    "report", epilog=epilog("netsum sim report runs/sim/workers  # write the page anew from its results")
)
def sim_report(
    folder: Path = argument("The folder of an experiment's results.", metavar="RUN"),
    as_json: bool = json_option(),
) -> None:
    """Write the HTML report of existing results."""
    from netsum.simulation import programs
    from netsum.terminal import print_result
    from sim.experiments.store import load_store

    store = load_store(folder, programs())
    print_result(as_json, lambda: _report(store))


@sim_app.command(
    "compare",
    epilog=epilog("netsum sim compare runs/sim/a runs/sim/b  # medians of both, and how they differ"),
)
def sim_compare(
    one: Path = argument("The folder of an experiment's results.", metavar="A"),
    other: Path = argument("The folder of the results to compare with.", metavar="B"),
    as_json: bool = json_option(),
) -> None:
    """Compare the results of two runs, combination by combination."""
    from netsum.terminal import print_table
    from sim.experiments.comparing import compare

    compared = compare(one, other)
    rows = [
        (each.name, each.job, each.text(each.one), each.text(each.other), each.ratio_text, each.note)
        for each in compared
    ]
    headings = ("", "job", ">A, us", ">B, us", ">B / A", "")
    print_table(as_json, (each.as_dict() for each in compared), headings, rows)


def _open(chosen: Chosen) -> tuple[Experiment, ResultStore]:
    from netsum.simulation import programs
    from sim.experiments.experiment import load_experiment
    from sim.experiments.store import ResultStore

    settings, folder = chosen.settings, chosen.folder
    read = load_experiment(chosen.experiment, dict(map(_setting, settings)))
    whole = folder or Path("runs") / "sim" / Path(chosen.experiment).stem
    # Other settings have a report of their own; points that both have are computed once.
    own = whole if folder or not settings else whole / re.sub(r"[^\w.=-]+", "_", ",".join(settings))[:100]
    return read, ResultStore(own, read, programs(), points=whole / "points")


def _setting(text: str) -> tuple[str, Any]:
    import tomllib

    from sim.errors import SettingError
    from topologies.fields import FieldError, parse_toml

    key, separator, value = text.partition("=")
    if not separator:
        raise UsageError(f"--set: expected KEY=VALUE, found {text!r}")
    try:
        return key.strip(), parse_toml(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()  # A text needs no quotes.
    except FieldError as error:
        raise SettingError(f"--set {key}: {error}") from None


def _compute(read: Experiment, store: ResultStore, executor: Executor) -> dict[str, Any]:
    from netsum.simulation import programs
    from sim.experiments.estimate import Estimate, estimate
    from sim.experiments.sweeping import sweep

    missing = [point for point in read.points if not store.has(point)]
    needed = sum((estimate(point.settings) for point in missing), Estimate())
    if needed.seconds > _LONG_S:
        print(needed, file=sys.stderr)
    with kept_when_interrupted("what was computed is", store.folder):
        swept = sweep(read, store, programs(), executor, _progress())
    from host_agent.words import plural

    for finished in swept.failed:
        print(f"failed: {finished.point}: {finished.error or 'no reason given'}", file=sys.stderr)
    found = _report(store) if swept.done > len(swept.failed) else {}
    if swept.left_out:
        once = (
            f"; {swept.equal_jobs:,} jobs are equal: one was run, and its sums stand for all"
            if swept.equal_jobs
            else ""
        )
        print(
            f"packets: {swept.packets:,} on links, of which {swept.left_out:,} repeat and were left out "
            f"({swept.left_out / swept.packets:.1%}){once}"
        )
    if swept.failed:
        raise CommandError(
            f"{len(swept.failed)} of {plural(swept.total, 'point')} failed; the others are in {store.folder}"
        )
    return {**found, "packets": swept.packets, "left_out": swept.left_out}


def _print_usage() -> None:
    """Print what this process has needed so far, all points together."""
    from netsum_common.memory_used import most_bytes

    print(
        f"used:    {most_bytes() / 1e6:,.0f} MB of memory at most, {time.process_time():,.0f} s of processor time"
    )


def _progress() -> Callable[[Swept, Finished | None], None]:
    started = time.monotonic()
    shown = [0.0]

    def show(swept: Swept, finished: Finished | None) -> None:
        from host_agent.words import plural

        now = time.monotonic()
        fresh = swept.computed + len(swept.failed)
        last = swept.done == swept.total
        if finished is None:
            kept = f", {swept.kept} of them computed before" if swept.kept else ""
            print(f"{plural(swept.total, 'point')}{kept}", file=sys.stderr)
        elif last or now - shown[0] >= 1.0:
            shown[0] = now
            left = (now - started) / fresh * (swept.total - swept.done)
            print(f"{swept.done} of {plural(swept.total, 'point')}, {left:.0f} s left", file=sys.stderr)

    return show


def _report(store: ResultStore) -> dict[str, Any]:
    from netsum.terminal import ProgressRows
    from sim.experiments.report import write_report
    from sim.experiments.store import read_rows
    from sim.experiments.summary import checked, summarize, trains

    rows, _ = read_rows(store.collect())
    varies = store.experiment.varies
    summaries = summarize(rows, varies)
    named = len({each.job for each in summaries}) > 1
    contending = "job.contender" not in varies and len({each.contender for each in summaries}) > 1
    first = (
        ("iteration_ns", "waiting_share", 1e6)
        if trains(summaries)
        else ("duration_ns", "share_of_bound", 1e3)
    )
    digits = 2 if trains(summaries) else 1
    heads = (">iteration, ms", ">waiting") if trains(summaries) else (">time, us", ">of the bound")
    rated = any("goodput_bps" in each.medians for each in summaries)  # Iterations of traces have none.
    made = ProgressRows(
        *varies,
        *["job"] * named,
        *["contender"] * contending,
        *(heads[0], *[">goodput, Mbit/s"] * rated, heads[1], "limited by"),
        key=len(varies) + named + contending,
    )
    for each in summaries:
        took, goodput, share = (each.medians.get(name) for name in (first[0], "goodput_bps", first[1]))
        made.add(
            *(str(each.varied[name]) for name in varies),
            *[each.job] * named,
            *[each.contender] * contending,
            f"{took.value / first[2]:,.{digits}f}" if took else "failed",
            *[f"{goodput.value / 1e6:,.1f}" if goodput else ""] * rated,
            f"{share.value:.1%}" if share else "",
            each.limited_by,
        )
    made.print()
    for line in checked(rows):
        print(line)
    results, report = store.folder / "results.parquet", write_report(store)
    print(f"results: {results}")
    print(f"report:  {report}")
    # A summary's first row is among the results.
    made_of = [{name: value for name, value in asdict(each).items() if name != "first"} for each in summaries]
    return {"results": str(results), "report": str(report), "rows": made_of}


def _record(read: Experiment, store: ResultStore, captured: tuple[str, ...], traced: bool) -> list[str]:
    from netsum.simulation import programs
    from sim.experiments.recording import record

    written = list(map(str, record(read.points[0], programs(), store.folder, captured, traced)))
    for path in written:
        print(f"written: {path}")
    return written
