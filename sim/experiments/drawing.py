"""A topology as a drawing."""

from collections import defaultdict
from html import escape
from typing import Final

from host_agent.words import plural
from sim.experiments.plot import figure, svg_of
from sim.experiments.scenario import topology_of
from sim.experiments.settings import Settings
from topologies.paths import shortest_paths
from topologies.topology import Topology
from topologies.units import rate_text

_MOST_HOSTS: Final = 64


def draw(settings: Settings) -> str:
    """Return a drawing of the topology of a point: hosts below, switches in the order of their distance from them."""
    topology = topology_of(settings)
    table = settings.topology
    switches = "1 switch" if len(topology.switches) == 1 else f"{len(topology.switches)} switches"
    text = (
        f"{topology.name}: {plural(len(topology.hosts), 'host')}, {switches}, {plural(len(topology.links), 'link')} of "
        f"{rate_text(table.rate)}/s and {table.latency / 1e3:g} µs; {topology.aggregator} adds."
    )
    if len(topology.hosts) > _MOST_HOSTS:
        return f"<p>{escape(text)}</p>"
    levels = _levels(topology)
    made, axes = figure(8, 1 + len(levels))
    places = {
        name: ((at + 0.5) / len(names), level)
        for level, names in enumerate(levels)
        for at, name in enumerate(names)
    }
    for link in topology.links:
        axes.plot(*zip(*(places[end.node] for end in link.ends), strict=True), color="0.7", lw=0.8, zorder=1)
    for name, (x, y) in places.items():
        fill = "C0" if name == topology.aggregator else "0.9" if y else "white"
        box = {"boxstyle": "round", "fc": fill, "ec": "0.6"}
        axes.text(x, y, name, ha="center", va="center", fontsize=8 if len(levels[y]) <= 16 else 5, bbox=box)
    axes.set(xlim=(0, 1), ylim=(-0.5, len(levels) - 0.5))
    axes.set_axis_off()
    return f"{svg_of(made)}<p>{escape(text)}</p>"


def _levels(topology: Topology) -> list[list[str]]:
    """Return hosts, then switches by their distance from the nearest host."""
    beside: defaultdict[str, list[tuple[str, None]]] = defaultdict(list)
    for link in topology.links:
        one, other = (end.node for end in link.ends)
        beside[one].append((other, None))
        beside[other].append((one, None))
    level: dict[str, int] = {}
    for name, before in shortest_paths(topology.hosts, beside.__getitem__).items():
        level[name] = level[before[0]] + 1 if before else 0
    levels: list[list[str]] = [[] for _ in range(max(level.values()) + 1)]
    for name in (*topology.hosts, *topology.switches):
        levels[level.get(name, 0)].append(name)
    return levels
