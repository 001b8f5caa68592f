"""The report of an experiment: one HTML page that needs nothing else."""

from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from string import Template
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
_PAGE: Final = Path(__file__).with_name("files") / "report.html"  # The page with places for its parts.


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
    plots = _plots(experiment, summaries)
    texts = (experiment.question, *experiment.about.split("\n\n"))
    overrides = f"<p class=soft>Set on the command line: {escape(str(dict(experiment.overrides)))}</p>"
    page = Template(_PAGE.read_text(encoding="utf-8")).substitute(
        name=escape(experiment.name),
        about="\n".join(f"<p>{escape(text)}</p>" for text in texts if text),
        state="bad" if missing else "soft",
        computed=f"{len(found)} of {len(experiment.points)} points are computed.",
        plots="\n".join(f"<h2>{escape(title)}</h2>{svg}" for title, svg in plots),
        checked=" ".join(checked(rows)),
        results=_table(experiment.varies, summaries),
        whys="\n".join(_whys(found)),
        topology=draw(found[0][0].settings),
        text=escape(experiment.text),
        overrides=overrides if experiment.overrides else "",
        stamp=store.stamp[:16],
    )
    path = store.folder / "report.html"
    try:
        for at, (_, svg) in enumerate(plots):
            (store.folder / f"plot{at + 1}.svg").write_text(svg, encoding="utf-8")
        path.write_text(page, encoding="utf-8")
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
