"""Shortest ways through a network, and which of several equal ones is taken."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["next_links"]


def next_links(count: int, sources: npt.NDArray[Any], targets: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """Return, for each node and each other one, the link to take first on a shortest way; −1 if there is none.

    Where several are equally short, the target's number chooses among them, so that all packets for one host go one way, and
    those for different hosts spread (ECMP by destination).

    Parameters
    ----------
    count : int
        Number of nodes.
    sources, targets : int arrays
        Where each link begins and ends.
    """
    towards: list[list[tuple[int, int]]] = [
        [] for _ in range(count)
    ]  # links into a node, and where they come from
    for link, (source, target) in enumerate(zip(sources.tolist(), targets.tolist(), strict=True)):
        towards[target].append((link, source))
    table = np.full((count, count), -1, np.int32)
    for target in range(count):
        distance = np.full(count, -1, np.int64)
        distance[target] = 0
        queue = deque([target])
        choices: dict[int, list[int]] = {}
        while queue:
            node = queue.popleft()
            for link, source in towards[node]:
                if distance[source] < 0:
                    distance[source] = distance[node] + 1
                    queue.append(source)
                if distance[source] == distance[node] + 1:
                    choices.setdefault(source, []).append(link)
        for source, links in choices.items():
            table[source, target] = links[target % len(links)]
    return table
