"""The report of an experiment: one HTML page that needs nothing else."""

from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from sim.experiments.drawing import draw
from sim.experiments.experiment import Experiment
from sim.experiments.limits import Limit
from sim.experiments.plot import Mark, line_plot
from sim.experiments.store import ResultStore, ResultStoreError
from sim.experiments.summary import MEASURES, Median, Summary, checked, commonest, summarize, trains
from topologies.units import quantity

_NAMES: Final = {
    "job.contender": "reduced by",
    "job.copies": "jobs",
    "job.compute": "computing before each all-reduce",
    "job.late": "delay of one worker",
    "job.size": "array of each worker",
    "job.slower": "one worker is slower, times",
    "topology.rate": "rate of the hosts' links",
    "topology.latency": "latency of each link",
    "fault.loss": "packets lost on each link",
    "fault.to_bad": "chance that a burst of losses begins, per packet",
    "background.rate": "background traffic of each sender",
}
"""Names of settings where the last part of their key does not say it."""
_UNITS: Final = {
    "ns": ((1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")),
    "bit/s": ((1.0, "bit/s"), (1e3, "kbit/s"), (1e6, "Mbit/s"), (1e9, "Gbit/s")),
    "%": ((0.01, "%"),),
}
_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1d2430; max-width: 1040px; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.7rem; margin-bottom: 0 } h2 { margin-top: 2.2rem; border-bottom: 1px solid #d8dee6 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 14px }
th, td { padding: 3px 12px 3px 0; text-align: left; white-space: nowrap } td.n, th.n { text-align: right }
tr:nth-child(even) td { background: #f5f7fa } .wide { overflow-x: auto } .soft { color: #5b6675 }
svg { width: 100%; height: auto; max-width: 760px } pre { background: #f5f7fa; padding: 1rem; overflow-x: auto }
.bar { display: inline-block; width: 100px; height: 9px; background: #e3e8ee; vertical-align: middle }
.bar span { display: block; height: 9px; background: #0b6e99 } details { margin: .4rem 0 } .bad { color: #b3261e }
"""


def write_report(store: ResultStore) -> Path:
    """Write ``report.html``, and its plots as SVG files, into the folder of the results; returns the page.

    Raises ResultStoreError if there are no results, or it cannot be written.
    """
    experiment = store.experiment
    found = [(point, *store.get(point)) for point in store.computed()]
    if not found:
        raise ResultStoreError(f"{store.folder} holds no results yet: run the experiment first")
    rows = [row for _, those, _ in found for row in those]
    summaries = summarize(rows, experiment.varies)
    missing = len(experiment.points) - len(found)
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        f"<title>{escape(experiment.name)}: netsum sim</title>",
        '<meta name=viewport content="width=device-width"><style>' + _STYLE + "</style>",
        f"<h1>{escape(experiment.name)}</h1>",
        f"<p>{escape(experiment.question)}</p>" if experiment.question else "",
        *(f"<p>{escape(part)}</p>" for part in experiment.about.split("\n\n") if part),
        f'<p class="{"bad" if missing else "soft"}">{len(found)} of {len(experiment.points)} points are computed.</p>',
        *(f"<h2>{escape(title)}</h2>{svg}" for title, svg in _plots(experiment, summaries)),
        "<h2>Results</h2>",
        f"<p class=soft>{' '.join(checked(rows))} Medians over seeds, with 95 % bootstrap intervals from three seeds on. "
        "The bound is the time that the packets of in-network aggregation take on one link.</p>",
        _table(experiment.varies, summaries),
        "<h2>Why not faster</h2>",
        "<p class=soft>What can limit each job, from what was counted with one seed; what explains most first.</p>",
        *_whys(found),
        "<h2>Topology</h2>",
        draw(found[0][0].settings),
        "<h2>The experiment's file</h2>",
        f"<pre>{escape(experiment.text)}</pre>",
        f"<p class=soft>Set on the command line: {escape(str(dict(experiment.overrides)))}</p>"
        if experiment.overrides
        else "",
        f"<p class=soft>Programs and sources: {store.stamp[:16]}. What the simulator leaves out: docs/simulator.md.</p></html>",
    ]
    path = store.folder / "report.html"
    try:
        for at, (_, svg) in enumerate(_plots(experiment, summaries)):
            (store.folder / f"plot{at + 1}.svg").write_text(svg, encoding="utf-8")
        path.write_text("\n".join(part for part in parts if part) + "\n", encoding="utf-8")
    except OSError as error:
        raise ResultStoreError(f"cannot write {path}: {error.strerror or error}") from None
    return path


def _plots(experiment: Experiment, summaries: Sequence[Summary]) -> list[tuple[str, str]]:
    """Return titles and plots."""
    if not experiment.varies:
        return []
    x = experiment.x or next(
        (
            name
            for name in experiment.varies
            if all(_number(each.varied.get(name)) is not None for each in summaries)
        ),
        experiment.varies[0],
    )
    others = [name for name in experiment.lines.split() or experiment.varies if name != x]
    values = list(dict.fromkeys(each.varied.get(x) for each in summaries))
    if len(values) < 2:
        return []
    numbers = [_number(value) for value in values]
    ordered = None not in numbers and len(set(numbers)) == len(numbers)
    places = {
        value: number if ordered and number is not None else float(at)
        for at, (value, number) in enumerate(zip(values, numbers, strict=True))
    }
    names = {place: str(value) for value, place in places.items()}
    plots = []
    for measure in dict.fromkeys([*experiment.y.replace(",", " ").split(), "duration_ns"]):
        title, unit = MEASURES.get(measure, (measure, ""))
        lines: dict[str, list[Mark]] = {}
        for each in summaries:
            median = each.medians.get(measure)
            if median is not None:
                mark = Mark(places[each.varied[x]], median.value, median.low, median.high)
                lines.setdefault(_line_name(each, others), []).append(mark)
        if lines:
            scale, unit = _unit(unit, max(mark.y for marks in lines.values() for mark in marks))
            scaled = {name: [mark.over(scale) for mark in marks] for name, marks in lines.items()}
            axis = f"{title}, {unit}" if unit else title
            plots.append(
                (title, line_plot(scaled, title.capitalize(), _name(x), axis, names, ordered=ordered))
            )
    return plots


def _unit(unit: str, largest: float) -> tuple[float, str]:
    """Return a factor and its unit in which the largest value has one to three digits before the point, if there is one."""
    units = _UNITS.get(unit, ((1.0, unit),))
    return max((each for each in units if each[0] <= largest), default=units[0])


def _line_name(summary: Summary, others: Iterable[str]) -> str:
    shown = [str(summary.varied[name]) for name in others]
    if summary.contender not in shown:
        shown.insert(0, summary.contender)
    if summary.job != "job":
        shown.insert(0, summary.job)
    return " ".join(shown)


def _number(value: Any) -> float | None:
    """Return a value as a number, in the unit of its kind; None: it is none."""
    return None if isinstance(value, bool) else quantity(str(value))


def _name(key: str) -> str:
    """Return the name of a setting."""
    return _NAMES.get(key, key.rpartition(".")[2].replace("_", " "))


def _cell(median: Median | None, scale: float, digits: int) -> str:
    if median is None:
        return "<td class=n>"
    interval = ""
    if median.low is not None and median.high is not None:
        interval = f" <span class=soft>({median.low / scale:,.{digits}f} to {median.high / scale:,.{digits}f})</span>"
    return f"<td class=n>{median.value / scale:,.{digits}f}{interval}"


def _table(varies: Sequence[str], summaries: Sequence[Summary]) -> str:
    heads = "".join(f"<th>{escape(_name(name))}" for name in varies)
    # Columns that are equal in all rows, or follow from another column, would only make the table wider.
    by_title: dict[str, Callable[[Summary], str]] = {
        "job": lambda each: each.job,
        "contender": lambda each: each.contender,
    }
    texts = [
        (title, value)
        for title, value in by_title.items()
        if f"job.{title}" not in varies and len({value(each) for each in summaries}) > 1
    ]
    numbers = [
        ("duration_ns", "time, µs", 1e3, 1),
        *(
            (("goodput_bps", "goodput, Mbit/s", 1e6, 1), ("share_of_bound", "of the bound, %", 0.01, 1))
            if any("goodput_bps" in each.medians for each in summaries)
            else ()
        ),
        *(
            (("iteration_ns", "iteration, ms", 1e6, 3), ("waiting_share", "waiting, %", 0.01, 1))
            if trains(summaries)
            else ()
        ),
        *(
            (name, title, 1, 0)
            for name, title in (("resent", "sent again"), ("lost", "lost"))
            if any(each.medians[name].value for each in summaries if name in each.medians)
        ),
    ]
    heads += "".join(f"<th>{title}" for title, _ in texts)
    heads += "".join(f"<th class=n>{title}" for _, title, _, _ in numbers) + "<th>limited by<th>"
    body = []
    for each in summaries:
        cells = "".join(f"<td>{escape(str(each.varied[name]))}" for name in varies)
        cells += "".join(f"<td>{escape(value(each))}" for _, value in texts)
        for name, _, scale, digits in numbers:
            cells += _cell(each.medians.get(name), scale, digits)
        failed = (
            f"<td class=bad>{each.failed} failed: {escape(str(each.first['error']))}"
            if each.failed
            else "<td>"
        )
        body.append(f"<tr>{cells}<td>{escape(each.limited_by)}{failed}")
    return f"<div class=wide><table><thead><tr>{heads}</thead><tbody>{''.join(body)}</tbody></table></div>"


def _bar(share: float) -> str:
    """Return a small bar that is filled up to a share."""
    width = max(0.0, min(share, 1.0)) * 100
    return f'<span class="bar"><span style="width:{width:.0f}%"></span></span>'


def _whys(found: Sequence[Any]) -> Iterable[str]:
    by_setting: dict[Any, list[dict[str, list[Limit]]]] = {}
    for point, _, limits in found:
        by_setting.setdefault(point.varied, []).append(limits)
    for varied, of_seeds in by_setting.items():
        for job in of_seeds[0]:
            # The seed whose limit is the one that the table names.
            those = next(
                each[job]
                for each in of_seeds
                if each[job][0].what == commonest(each[job][0].what for each in of_seeds)
            )
            where = ", ".join(f"{name} = {value}" for name, value in varied if name)
            items = "".join(
                f"<tr><td>{escape(limit.what)}<td>{_bar(limit.share)}<td>{escape(limit.text)}"
                for limit in those
            )
            head = f"{escape(where or 'all')}, {escape(job)}: <b>{escape(those[0].what)}</b>"
            yield f"<details><summary>{head}</summary><div class=wide><table>{items}</table></div></details>"
