"""Results of trainings with compressed gradients: a table, and a plot with the Pareto front."""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from netsum.bench.compression_points import UNCOMPRESSED, Curve, Point
from netsum.terminal import Rows, echo

WITHIN: Final = 0.01  # How far below the accuracy without compression a run may end to have reached it.
REFERENCE: Final = "netsum"  # The back end without compression that others are compared with.


@dataclass(frozen=True)
class Row:
    """A method on a task over a back end, over all seeds."""

    task: str
    method: str
    backend: str
    runs: int
    # accuracy, spread: mean and standard deviation after all steps.
    accuracy: float
    spread: float
    timed: float  # Mean accuracy after half of the time that uncompressed netsum takes for all steps.
    seconds: float  # Mean time of all steps.
    # Mean time to the final accuracy of uncompressed netsum with the same seed, less `WITHIN`; None if a seed did not reach
    # it.
    to_target: float | None
    # step_ms, compress_ms: mean time of a step, and in the compressor.
    step_ms: float
    compress_ms: float
    # sent_kb, received_kb: a step, on the wire.
    sent_kb: float
    received_kb: float
    front: bool = False  # Whether no other row of the task is faster and at least as accurate.


def rows_of(found: Mapping[Point, Curve]) -> list[Row]:
    """Return a row for each task, method and back end of some results."""
    groups: dict[tuple[str, str, str], list[tuple[Point, Curve]]] = defaultdict(list)
    for point, curve in found.items():
        groups[point.task, point.method, point.backend].append((point, curve))
    rows = []
    for (task, method, backend), runs in groups.items():
        references = [_reference(found, point) for point, _ in runs]
        pairs = [(curve, other) for (_, curve), other in zip(runs, references, strict=True) if other]
        to_target = [_time_to(curve, other.accuracies[-1] - WITHIN) for curve, other in pairs]
        reached = [each for each in to_target if each is not None]
        finals = [curve.accuracies[-1] for _, curve in runs]
        mean = {
            name: statistics.fmean(getattr(curve, name) for _, curve in runs)
            for name in ("compress_ms", "sent_bytes", "received_bytes")
        }
        rows.append(
            Row(
                task,
                method,
                backend,
                len(runs),
                statistics.fmean(finals),
                statistics.stdev(finals) if len(finals) > 1 else 0.0,
                statistics.fmean(_accuracy_at(curve, other.seconds[-1] / 2) for curve, other in pairs)
                if pairs
                else float("nan"),
                statistics.fmean(curve.seconds[-1] for _, curve in runs),
                statistics.fmean(reached) if reached and len(reached) == len(runs) else None,
                statistics.fmean(1e3 * curve.seconds[-1] / curve.steps[-1] for _, curve in runs),
                mean["compress_ms"],
                mean["sent_bytes"] / 1e3,
                mean["received_bytes"] / 1e3,
            )
        )
    return [Row(**{**vars(row), "front": row in pareto_front(rows, row.task)}) for row in rows]


def pareto_front(rows: Sequence[Row], task: str) -> list[Row]:
    """Return the rows of a task than which none is both faster and more accurate, the fastest first."""
    front: list[Row] = []
    for row in sorted(
        (row for row in rows if row.task == task), key=lambda row: (row.seconds, -row.accuracy)
    ):
        if not front or row.accuracy > front[-1].accuracy:
            front.append(row)
    return front


def report(found: Mapping[Point, Curve], folder: Path) -> None:
    """Print the table, and draw ``compression.svg`` and ``compression.png`` in a folder."""
    if not found:
        echo("no results so far")
        return
    rows = rows_of(found)
    table = Rows(
        "task", "method", "over", ">?runs", ">accuracy", ">half time", ">to target", ">ms/step", ">?compress", ">kB sent",
        ">?kB received", "front",
        key=3,
    )  # fmt: skip
    for row in rows:
        table.add(
            row.task,
            row.method,
            row.backend,
            str(row.runs),
            f"{row.accuracy:.1%} ± {100 * row.spread:.1f}",
            f"{row.timed:.1%}",
            "-" if row.to_target is None else f"{row.to_target:.1f} s",
            f"{row.step_ms:.1f}",
            f"{row.compress_ms:.1f}",
            f"{row.sent_kb:,.1f}",
            f"{row.received_kb:,.1f}",
            "*" if row.front else "",
        )
    table.print()
    echo(
        "accuracy after all steps ± standard deviation over seeds; half time: after half of the time that uncompressed netsum "
        f"takes; to target: until {100 * WITHIN:.0f} point below its final accuracy; *: Pareto front of time and accuracy"
    )
    echo(f"plot: {_draw(rows, folder)}")


def _reference(found: Mapping[Point, Curve], point: Point) -> Curve | None:
    wanted = Point(**{**vars(point), "method": UNCOMPRESSED, "backend": REFERENCE})
    return found.get(wanted)


def _time_to(curve: Curve, accuracy: float) -> float | None:
    return next(
        (seconds for seconds, each in zip(curve.seconds, curve.accuracies, strict=True) if each >= accuracy),
        None,
    )


def _accuracy_at(curve: Curve, seconds: float) -> float:
    """Return the accuracy of the last look before a time; 0 before the first."""
    before = [each for when, each in zip(curve.seconds, curve.accuracies, strict=True) if when <= seconds]
    return before[-1] if before else 0.0


def _draw(rows: Sequence[Row], folder: Path) -> Path:
    from netsum.bench.plots import plt, save

    tasks = list(dict.fromkeys(row.task for row in rows))
    figure, panels = plt.subplots(
        1, len(tasks), figsize=(1 + 4.5 * len(tasks), 4.2), squeeze=False, layout="constrained"
    )
    for panel, task in zip(panels[0], tasks, strict=True):
        shown = [row for row in rows if row.task == task]
        for row in shown:
            ours = row.backend == REFERENCE
            panel.errorbar(
                row.seconds, 100 * row.accuracy, 100 * row.spread,
                marker="o" if ours else "s", ms=6, mfc="C0" if ours else "white", color="C0" if ours else "C1", capsize=2,
            )  # fmt: skip
            panel.annotate(
                row.method, (row.seconds, 100 * row.accuracy), (4, 4), textcoords="offset points", fontsize=7
            )
        front = pareto_front(rows, task)
        panel.plot([row.seconds for row in front], [100 * row.accuracy for row in front], "k--", lw=0.8)
        panel.set_xscale("log")
        panel.set_title(task)
        panel.set_xlabel("seconds for all steps")
        panel.grid(alpha=0.3, which="both")
    panels[0][0].set_ylabel("accuracy, %")
    figure.suptitle("Filled: over netsum; hollow: over Gloo; dashed: Pareto front")
    return save(figure, folder, "compression")
