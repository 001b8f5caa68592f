"""A topology as a drawing."""

from html import escape
from typing import Final

from host_agent.words import plural
from sim.experiments.plot import figure, svg_of
from sim.experiments.scenario import shape_of
from sim.experiments.settings import Settings
from sim.network.shapes import Shape
from topologies.units import rate_text

_MOST_HOSTS: Final = 64


def draw(settings: Settings) -> str:
    """Return a drawing of the topology of a point: hosts below, switches in the order of their distance from them."""
    shape = shape_of(settings)
    table = settings.topology
    switches = "1 switch" if len(shape.switches) == 1 else f"{len(shape.switches)} switches"
    text = (
        f"{shape.name}: {plural(len(shape.hosts), 'host')}, {switches}, {plural(len(shape.edges), 'link')} of "
        f"{rate_text(table.rate)}/s and {table.latency / 1e3:g} µs; {shape.aggregator} adds."
    )
    if len(shape.hosts) > _MOST_HOSTS:
        return f"<p>{escape(text)}</p>"
    levels = _levels(shape)
    made, axes = figure(8, 1 + len(levels))
    places = {
        name: ((at + 0.5) / len(names), level)
        for level, names in enumerate(levels)
        for at, name in enumerate(names)
    }
    for edge in shape.edges:
        axes.plot(*zip(places[edge.one], places[edge.other], strict=True), color="0.7", lw=0.8, zorder=1)
    for name, (x, y) in places.items():
        fill = "C0" if name == shape.aggregator else "0.9" if y else "white"
        box = {"boxstyle": "round", "fc": fill, "ec": "0.6"}
        axes.text(x, y, name, ha="center", va="center", fontsize=8 if len(levels[y]) <= 16 else 5, bbox=box)
    axes.set(xlim=(0, 1), ylim=(-0.5, len(levels) - 0.5))
    axes.set_axis_off()
    return f"{svg_of(made)}<p>{escape(text)}</p>"


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
