"""A topology as a drawing."""

from __future__ import annotations

from html import escape
from typing import Final

from host_agent.words import plural
from sim.experiments.experiment import Settings
from sim.experiments.plot import short
from sim.experiments.scenario import shape_of
from sim.network.shapes import Shape

__all__ = ["draw"]

_WIDTH: Final = 760
_LEVEL: Final = 84
_MOST_HOSTS: Final = 64


def draw(settings: Settings) -> str:
    """Return a drawing of the topology of a point: hosts below, switches in the order of their distance from them."""
    shape = shape_of(settings)
    table = settings.topology
    switches = "1 switch" if len(shape.switches) == 1 else f"{len(shape.switches)} switches"
    text = (
        f"{shape.name}: {plural(len(shape.hosts), 'host')}, {switches}, {plural(len(shape.edges), 'link')} of "
        f"{short(table.rate)}bit/s and {table.latency / 1e3:g} µs; {shape.aggregator} adds."
    )
    if len(shape.hosts) > _MOST_HOSTS:
        return f"<p>{escape(text)}</p>"
    levels = _levels(shape)
    height = _LEVEL * len(levels) + 20
    places = {}
    for level, names in enumerate(levels):
        for at, name in enumerate(names):
            places[name] = (at + 0.5) * _WIDTH / len(names), height - _LEVEL * level - 50
    parts = [f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="topology">']
    for edge in shape.edges:
        (x1, y1), (x2, y2) = places[edge.one], places[edge.other]
        parts.append(f'<line class=edge x1="{x1:.0f}" y1="{y1:.0f}" x2="{x2:.0f}" y2="{y2:.0f}"/>')
    for level, names in enumerate(levels):
        for name in names:
            x, y = places[name]
            fill = "#0b6e99" if name == shape.aggregator else ("#e3e8ee" if level else "#ffffff")
            ink = "#ffffff" if name == shape.aggregator else "#1d2430"
            width = max(min(_WIDTH / len(names) - 4, 70), 10)
            parts.append(
                f'<rect x="{x - width / 2:.0f}" y="{y - 13:.0f}" width="{width:.0f}" height="26" rx="4" fill="{fill}" '
                'stroke="#9aa7b5"/>'
            )
            if width >= 22:
                parts.append(
                    f'<text x="{x:.0f}" y="{y + 4:.0f}" text-anchor="middle" style="fill:{ink}">{escape(name)}</text>'
                )
    return "".join([*parts, f"</svg><p>{escape(text)}</p>"])


def _levels(shape: Shape) -> list[list[str]]:
    """Return hosts, then switches by their distance from the nearest host."""
    level = {place.name: 0 for place in shape.hosts}
    changed = True
    while changed:
        changed = False
        for edge in shape.edges:
            for near, far in ((edge.one, edge.other), (edge.other, edge.one)):
                if near in level and level.get(far, 1 << 30) > level[near] + 1:
                    level[far] = level[near] + 1
                    changed = True
    levels: list[list[str]] = [[] for _ in range(max(level.values()) + 1)]
    for place in (*shape.hosts, *shape.switches):
        levels[level.get(place.name, 0)].append(place.name)
    return levels
