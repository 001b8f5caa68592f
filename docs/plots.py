"""Draws the plots of allreduce.md and sparse.md: ``python -m docs.plots RUN``, where `netsum bench allreduce` left results."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import pyplot as plt

from netsum.allreduce.plan import size_text
from netsum.allreduce.report import ReportRow, Spread
from netsum.bench.allreduce_results import AllReduceResult

matplotlib.use("Agg")


def load(folder: Path) -> list[AllReduceResult]:
    """Read the results of a run."""
    found = []
    for each in json.loads((folder / "results.json").read_text(encoding="utf-8")):
        row = each["row"]
        row |= {name: Spread(**row[name]) for name in ("seconds", "elements_per_s")}
        found.append(AllReduceResult(**{**each, "row": ReportRow(**row)}))
    return found


def save(figure: Any, folder: Path, name: str) -> None:
    """Write a figure as PNG and SVG."""
    for kind in ("png", "svg"):
        figure.savefig(folder / f"{name}.{kind}", dpi=150)
    plt.close(figure)


def plot_allreduce(results: Sequence[AllReduceResult], folder: Path) -> None:
    """Draw elements/s over the array's size, a panel for each loss; a dashed line is a contender's bound."""
    rate, switch = results[0].rate, results[0].switch
    drawn = [one for one in results if (one.rate, one.switch, one.array) == (rate, switch, "dense")]
    losses = list(dict.fromkeys(one.loss_percent for one in drawn))
    contenders = list(dict.fromkeys(one.contender for one in drawn))
    figure, panels = plt.subplots(
        1,
        len(losses),
        figsize=(1.5 + 3.7 * len(losses), 3.8),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for panel, loss in zip(panels[0], losses, strict=True):
        for number, contender in enumerate(contenders):
            found = [one for one in drawn if one.loss_percent == loss and one.contender == contender]
            rates = [one.row.elements_per_s for one in found]
            medians = [each.median / 1e6 for each in rates]
            below = [(each.median - each.least) / 1e6 for each in rates]
            above = [(each.most - each.median) / 1e6 for each in rates]
            sizes = [one.row.bytes for one in found]
            panel.errorbar(
                sizes,
                medians,
                [below, above],
                marker="o",
                ms=4,
                capsize=3,
                color=f"C{number}",
                label=contender,
            )
            if found:
                panel.axhline(found[0].bound / 1e6, color=f"C{number}", ls="--", lw=0.8)
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_formatter(lambda size, _: size_text(round(size)))
        panel.set_title(f"{loss} % loss each way")
        panel.set_xlabel("bytes of each worker's array")
        panel.grid(alpha=0.3)
    panels[0][0].set_ylabel("million float32 elements/s per worker")
    panels[0][0].set_ylim(bottom=0)
    panels[0][-1].legend(fontsize=8)
    title = f"All-reduce of {results[0].workers} workers, links of {rate}; dashed: the links' bound"
    figure.suptitle(title, fontsize="medium")
    save(figure, folder, "allreduce")


def plot_sparse(results: Sequence[AllReduceResult], folder: Path) -> None:
    """Draw the time over the share of blocks that are not zero, a panel for each size; a dashed line is the links' bound."""
    first = results[0]
    same = [one for one in results if (one.rate, one.loss_percent) == (first.rate, first.loss_percent)]
    sizes = list(dict.fromkeys(one.row.bytes for one in same))
    overlaps = list(dict.fromkeys(one.row.overlap for one in same if one.row.density < 1))
    figure, panels = plt.subplots(
        1, len(sizes), figsize=(1.5 + 4.2 * len(sizes), 4), squeeze=False, layout="constrained"
    )
    for panel, size in zip(panels[0], sizes, strict=True):
        here = [one for one in same if one.row.bytes == size]
        ours = [one for one in here if one.contender == first.contender and one.row.bits == "full"]
        for number, one in enumerate(each for each in here if each.array == "dense"):
            label = f"{one.contender}, dense"
            panel.axhline(one.row.seconds.median * 1e3, color=f"C{6 + number % 3}", lw=1, label=label)
        for number, overlap in enumerate(overlaps):
            found = [one for one in ours if one.row.overlap == overlap or one.row.density == 1]
            found.sort(key=lambda one: one.row.density)
            densities = [one.row.density * 100 for one in found]
            times = [one.row.seconds.median * 1e3 for one in found]
            bounds = [one.row.elements / one.bound * 1e3 for one in found]
            color = f"C{number}"
            panel.plot(densities, times, marker="o", ms=4, color=color, label=f"netsum, overlap {overlap}")
            panel.plot(densities, bounds, ls="--", lw=0.8, color=color)
        panel.set(xscale="log", yscale="log", title=size_text(size), xlabel="% of a worker's blocks not zero")
        panel.grid(alpha=0.3)
    panels[0][0].set_ylabel("ms")
    panels[0][-1].legend(fontsize=8)
    title = f"Block-sparse all-reduce, {first.workers} workers, links of {first.rate}; dashed: the bound"
    figure.suptitle(title, fontsize="medium")
    save(figure, folder, "sparse")


if __name__ == "__main__":
    if len(sys.argv) != 2 or not (Path(sys.argv[1]) / "results.json").is_file():
        sys.exit("expected the folder of a run of netsum bench allreduce, which has a results.json")
    run = Path(sys.argv[1])
    results = load(run)
    plot_allreduce(results, run)
    if any(one.row.density < 1 for one in results):
        plot_sparse(results, run)
