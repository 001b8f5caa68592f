"""Plots of what the benchmarks measured, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.allreduce import Result


def plot_allreduce(results: Sequence[Result], folder: Path) -> None:
    """Draw elements/s over the array's size, a panel for each loss; a dashed line is a contender's bound.

    Parameters
    ----------
    results
        Of `bench.allreduce`; those at the rate of the first are drawn.
    folder
        Where ``allreduce.png`` and ``allreduce.svg`` go.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    from netsum.allreduce.plan import size_text

    rate, switch = results[0].rate, results[0].switch
    drawn = [one for one in results if one.rate == rate and one.switch == switch]
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
    figure.suptitle(f"All-reduce of {results[0].workers} workers, links of {rate}; dashed: the links' bound")
    for kind in ("png", "svg"):
        figure.savefig(folder / f"allreduce.{kind}", dpi=150)
    plt.close(figure)
