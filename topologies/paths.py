"""Shortest paths in a network, found breadth first."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

Link = TypeVar("Link")


def shortest_paths(
    roots: Iterable[str], neighbours: Callable[[str], Iterable[tuple[str, Link]]]
) -> dict[str, tuple[str, Link] | None]:
    """Find a shortest path from one of several roots to every node that can be reached.

    `neighbours`: called with a node, returns its neighbours, each with the link to it. Between paths of equal length, the order
    of the neighbours decides. Returns for each node its predecessor and the link between the two, or None for a root; nodes are
    in the order of their distance.
    """
    found: dict[str, tuple[str, Link] | None] = dict.fromkeys(roots)
    frontier = deque(found)
    while frontier:
        here = frontier.popleft()
        for far, link in neighbours(here):
            if far not in found:
                found[far] = (here, link)
                frontier.append(far)
    return found
