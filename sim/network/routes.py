"""Shortest ways through a network, and which of several equal ones is taken."""

# mypy: disable-error-code="no-any-return"

from typing import Any

import numpy as np
import numpy.typing as npt

from host_agent.compiled import Integer
from netsum_common.compiled import compiled

Array = npt.NDArray[Any]


def next_links(count: int, sources: Array, targets: Array) -> npt.NDArray[np.int32]:
    """Return, for each node and each other one, the link to take first on a shortest way; −1 if there is none.

    Where several are equally short, the target's number chooses among them, so that all packets for one host go one way, and
    those for different hosts spread (ECMP by destination).

    Returns numbers of links; the first index is where a packet is, the second where it is bound (int32 array (count,
    count)).
    """
    table = np.full((count, count), -1, np.int32)
    into = np.argsort(targets, kind="stable").astype(np.int64)
    first = np.searchsorted(np.asarray(targets)[into], np.arange(count + 1)).astype(np.int64)
    fill_table(table, into, first, np.ascontiguousarray(sources, np.int64))
    return table


@compiled
def fill_table(table: Array, into: Array, first: Array, sources: Array) -> Integer:
    """Search from every node against the links' direction, breadth first.

    `into`, `first`: links by the node where they end, and where those of each node begin in `into`.
    """
    count = len(table)
    distance = np.zeros(count, np.int64)
    choices = np.zeros(count, np.int64)
    passed = np.zeros(count, np.int64)
    order = np.zeros(count, np.int64)
    for target in range(count):
        distance[:] = -1
        choices[:] = 0
        passed[:] = 0
        distance[target] = 0
        order[0] = target
        found = 1
        at = 0
        while at < found:
            node = order[at]
            at += 1
            for place in range(first[node], first[node + 1]):
                source = sources[into[place]]
                if distance[source] < 0:
                    distance[source] = distance[node] + 1
                    order[found] = source
                    found += 1
                if distance[source] == distance[node] + 1:
                    choices[source] += 1
        for at in range(found):
            node = order[at]
            for place in range(first[node], first[node + 1]):
                source = sources[into[place]]
                if distance[source] == distance[node] + 1:
                    if passed[source] == target % choices[source]:
                        table[source, target] = into[place]
                    passed[source] += 1
    return np.int64(count)
