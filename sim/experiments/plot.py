"""Plots of experiments as SVG, by matplotlib, for a page that needs nothing else."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_COLOURS: Final = 10  # Colours of matplotlib's cycle; they are used again with dashed lines.


@dataclass(frozen=True)
class Mark:
    """A point of a line: where, how much, and its interval."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None

    def over(self, factor: float) -> "Mark":
        """Return the mark in another unit of y."""
        bounds = (None if bound is None else bound / factor for bound in (self.low, self.high))
        return Mark(self.x, self.y / factor, *bounds)


def figure(width: float = 7.6, height: float = 4.0) -> tuple[Any, Any]:
    """Return a matplotlib figure of a size in inches, and its axes."""
    from matplotlib.figure import Figure  # Takes a second; needed for reports alone.

    made = Figure(figsize=(width, height), layout="constrained")
    return made, made.subplots()


def svg_of(made: Any) -> str:
    """Return a figure as SVG, the same text for the same figure."""
    import matplotlib

    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "netsum", "svg.fonttype": "none"}):
        made.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    found = text.getvalue()
    return found[found.index("<svg") :]


def line_plot(
    lines: Mapping[str, Sequence[Mark]],
    title: str,
    x_title: str,
    y_title: str,
    x_names: Mapping[float, str],
    *,
    ordered: bool,
) -> str:
    """Return a plot of lines by name.

    `x_names`: labels of the places on the x axis. `ordered`: whether they are numbers; lines between other labels would mean
    nothing.
    """
    made, axes = figure()
    xs = sorted({mark.x for line in lines.values() for mark in line})
    for number, (name, marks) in enumerate(lines.items()):
        line = sorted(marks, key=lambda mark: mark.x)
        below = [mark.y - (mark.y if mark.low is None else mark.low) for mark in line]
        above = [(mark.y if mark.high is None else mark.high) - mark.y for mark in line]
        style = ("-" if number < _COLOURS else "--") if ordered else "none"
        axes.errorbar(
            [mark.x for mark in line],
            [mark.y for mark in line],
            [below, above],
            ls=style,
            marker="o",
            ms=4,
            capsize=3,
            label=name,
        )
    if ordered and xs[0] > 0 and xs[-1] / xs[0] >= 8:
        axes.set_xscale("log", base=2)
    shown = xs if len(xs) <= 12 else xs[:: -(-len(xs) // 12)]
    axes.set_xticks(shown, [x_names[x] for x in shown])
    axes.minorticks_off()
    axes.set(title=title, xlabel=x_title, ylabel=y_title, ylim=(0, None))
    axes.grid(alpha=0.3)
    made.legend(loc="outside right upper", fontsize=8)
    return svg_of(made)
