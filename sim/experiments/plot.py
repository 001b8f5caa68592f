"""Line plots as SVG, for a page that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

__all__ = ["Mark", "bar", "line_plot", "short"]

_WIDTH, _HEIGHT = 720, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 170, 20, 56
_COLOURS: Final = ("#0b6e99", "#d1495b", "#3a7d44", "#8f6fb5", "#e08e0b", "#5b5b5b", "#1aa39a", "#a0522d")
_TICKS: Final = 6


@dataclass(frozen=True)
class Mark:
    """A point of a line: where, how much, and its interval."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None

    def over(self, factor: float) -> Mark:
        """Return the mark in another unit of y."""
        bounds = (None if bound is None else bound / factor for bound in (self.low, self.high))
        return Mark(self.x, self.y / factor, *bounds)


def short(value: float) -> str:
    """Write a number as an axis does: 25, 1.5k, 10G."""
    size = abs(value)
    for unit, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if size >= factor:
            return f"{value / factor:.3g}{unit}"
    return f"{value:.3g}"


def _ticks(low: float, high: float) -> list[float]:
    span = high - low or 1.0
    step = 10 ** math.floor(math.log10(span / _TICKS))
    step = next(step * times for times in (1, 2, 5, 10) if span / (step * times) <= _TICKS)
    first = math.ceil(low / step - 1e-9)
    return [at * step for at in range(first, math.floor(high / step + 1e-9) + 1)]


def line_plot(
    lines: Mapping[str, Sequence[Mark]],
    x_title: str,
    y_title: str,
    x_names: Mapping[float, str] | None = None,
    *,
    joined: bool = True,
) -> str:
    """Return a plot of lines by name.

    Parameters
    ----------
    x_names
        What the places on the x axis are called, if they are no numbers.
    joined
        Whether lines join the marks; between names that have no order they would mean nothing.
    """
    marks = [mark for line in lines.values() for mark in line]
    xs = sorted({mark.x for mark in marks})
    scaled = not x_names and xs[0] > 0 and xs[-1] / xs[0] >= 8
    top = max(mark.high if mark.high is not None else mark.y for mark in marks) or 1.0
    y_ticks = _ticks(0, top)

    def at_x(x: float) -> float:
        low, high, here = xs[0], xs[-1], x
        if scaled:
            low, high, here = math.log(low), math.log(high), math.log(x)
        share = 0.5 if high == low else (here - low) / (high - low)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def at_y(y: float) -> float:
        return _HEIGHT - _BOTTOM - y / (top * 1.05) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(y_title)} over {escape(x_title)}">'
    ]
    for tick in y_ticks:
        y = at_y(tick)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{short(tick)}</text>')
    shown = xs if len(xs) <= 12 else xs[:: -(-len(xs) // 12)]
    for x in shown:
        text = escape(x_names[x] if x_names else short(x))
        parts.append(
            f'<text x="{at_x(x):.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{text}</text>'
        )
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{_HEIGHT - 12}" text-anchor="middle">{escape(x_title)}</text>')
    parts.append(
        f'<text transform="rotate(-90)" x="{-(_TOP + _HEIGHT - _BOTTOM) / 2}" y="16" '
        f'text-anchor="middle">{escape(y_title)}</text>'
    )
    for number, (name, line) in enumerate(lines.items()):
        parts += _line(name, sorted(line, key=lambda mark: mark.x), number, at_x, at_y, joined)
    return "".join([*parts, "</svg>"])


def _line(
    name: str,
    line: Sequence[Mark],
    number: int,
    at_x: Callable[[float], float],
    at_y: Callable[[float], float],
    joined: bool,
) -> list[str]:
    colour = _COLOURS[number % len(_COLOURS)]
    path = " ".join(f"{at_x(mark.x):.1f},{at_y(mark.y):.1f}" for mark in line)
    # Colours come again with broken lines.
    dashes = ' stroke-dasharray="6 4"' if number >= len(_COLOURS) else ""
    drawn = f'<polyline fill="none" stroke="{colour}" stroke-width="2"{dashes} points="{path}"/>'
    parts = [drawn] if joined else []
    for mark in line:
        x, y = at_x(mark.x), at_y(mark.y)
        title = f"<title>{escape(name)}: {mark.y:,.6g}</title>"
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}">{title}</circle>')
        if mark.low is not None and mark.high is not None:
            parts.append(
                f'<line stroke="{colour}" x1="{x:.1f}" x2="{x:.1f}" y1="{at_y(mark.low):.1f}" y2="{at_y(mark.high):.1f}"/>'
            )
    y = _TOP + 14 + 20 * number
    parts.append(f'<rect x="{_WIDTH - _RIGHT + 14}" y="{y - 9}" width="12" height="12" fill="{colour}"/>')
    parts.append(f'<text x="{_WIDTH - _RIGHT + 32}" y="{y + 2}">{escape(name)}</text>')
    return parts


def bar(share: float) -> str:
    """Return a small bar that is filled up to a share."""
    width = max(0.0, min(share, 1.0)) * 100
    return f'<span class="bar"><span style="width:{width:.0f}%"></span></span>'
