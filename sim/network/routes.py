"""Shortest paths through a network, with all links among which a router can choose.

A node with one link each way, as most hosts have, is reached through its neighbour. So paths are kept only between the other
nodes, the routers, and each set of links that a router may choose from is kept once for all targets that share it. A table of
all nodes would need 40 GB for 100,000 hosts.
"""

# mypy: disable-error-code="no-any-return"

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from netsum_common.compiled import compiled

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Routes:
    """Tables for `sim.network.engine.ways`. Nodes, routers and links are numbers; −1 is none.

    Attributes
    ----------
    router
        int64 array (nodes,). A router's number among the routers; for another node, that of its neighbour.
    out_link, in_link
        int64 arrays (nodes,). The only link from and to a node that is not a router.
    ways
        int32 array (routers, routers). The row of `choices` for the path from a router to another.
    choices
        int64 array (rows, 2). The index in `links` of the first link to choose from, and the number of such links.
    links
        int32 array. Numbers of links.
    """

    router: npt.NDArray[np.int64]
    out_link: npt.NDArray[np.int64]
    in_link: npt.NDArray[np.int64]
    ways: npt.NDArray[np.int32]
    choices: npt.NDArray[np.int64]
    links: npt.NDArray[np.int32]


def find_routes(count: int, sources: Array, targets: Array) -> Routes:
    """Find the shortest paths between `count` nodes; link k leads from node ``sources[k]`` to node ``targets[k]``."""
    sources, targets = np.asarray(sources, np.int64), np.asarray(targets, np.int64)
    numbers = np.arange(len(sources))
    out_link, in_link = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    out_link[sources], in_link[targets] = numbers, numbers
    single = (np.bincount(sources, minlength=count) == 1) & (np.bincount(targets, minlength=count) == 1)
    behind = np.zeros(count, np.bool_)
    at = np.flatnonzero(single)
    neighbour = targets[out_link[at]]
    behind[at] = (neighbour == sources[in_link[at]]) & ~single[neighbour]
    out_link[~behind], in_link[~behind] = -1, -1
    router = np.cumsum(~behind) - 1
    router[behind] = router[targets[out_link[behind]]]
    between = np.flatnonzero(~behind[sources] & ~behind[targets])
    routers = count - int(behind.sum())
    ways = np.full((routers, routers), -1, np.int32)
    choices, links = fill_ways(ways, router[sources[between]], router[targets[between]], between)
    return Routes(router, out_link, in_link, ways, choices, links)


def fill_ways(ways: Array, sources: Array, targets: Array, links: Array) -> tuple[Array, Array]:
    """Fill `ways` and return `Routes.choices`, `Routes.links`; ``links[k]`` leads from ``sources[k]`` to ``targets[k]``."""
    numbers = np.arange(len(ways) + 1)
    into = np.argsort(targets, kind="stable")
    first_into = np.searchsorted(targets[into], numbers)
    first_out = np.concatenate([[0], np.cumsum(np.bincount(sources, minlength=len(ways)))])
    return search(ways, first_into, sources[into], links[into], first_out)


@compiled
def search(ways: Array, first: Array, sources: Array, links: Array, first_out: Array) -> Any:
    """Search breadth first from every router, against the direction of the links.

    `first`: the index, in `sources` and `links`, of the first link that ends at each router. `first_out`: the index, in an array
    of all links by source, of each router's first link.
    """
    count = len(ways)
    distance = np.zeros(count, np.int64)
    order = np.zeros(count, np.int64)
    options = np.zeros(len(links), np.int32)
    found_options = np.zeros(count, np.int64)
    newest = np.full(
        count, -1, np.int64
    )  # The newest choice of each router; `older` links it to the earlier ones.
    choices, older, kept = np.zeros((64, 2), np.int64), np.zeros(64, np.int64), np.zeros(64, np.int32)
    choice_count, kept_count = 0, 0
    for target in range(count):
        distance[:] = -1
        found_options[:] = 0
        distance[target] = 0
        order[0] = target
        found = 1
        at = 0
        while at < found:
            node = order[at]
            at += 1
            for place in range(first[node], first[node + 1]):
                source = sources[place]
                if distance[source] < 0:
                    distance[source] = distance[node] + 1
                    order[found] = source
                    found += 1
                if distance[source] == distance[node] + 1:
                    options[first_out[source] + found_options[source]] = links[place]
                    found_options[source] += 1
        for at in range(1, found):
            source = order[at]
            size = found_options[source]
            mine = options[first_out[source] : first_out[source] + size]
            choice = newest[source]
            while choice >= 0:
                begin = choices[choice, 0]
                if choices[choice, 1] == size and (kept[begin : begin + size] == mine).all():
                    break
                choice = older[choice]
            if choice < 0:
                if choice_count == len(choices):
                    choices = np.concatenate((choices, np.zeros_like(choices)))
                    older = np.concatenate((older, np.zeros_like(older)))
                while kept_count + size > len(kept):
                    kept = np.concatenate((kept, np.zeros_like(kept)))
                choice = choice_count
                choices[choice, 0], choices[choice, 1] = kept_count, size
                kept[kept_count : kept_count + size] = mine
                older[choice], newest[source] = newest[source], choice
                choice_count += 1
                kept_count += size
            ways[source, target] = choice
    return choices[: max(choice_count, 1)].copy(), kept[: max(kept_count, 1)].copy()
