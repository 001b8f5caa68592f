"""Shortest paths in a network, found breadth first."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

Link = TypeVar("Link")


def shortest_paths(
    roots: Iterable[str], neighbours: Callable[[str], Iterable[tuple[str, Link]]]
) -> dict[str, tuple[str, Link] | None]:
    """Find a shortest path from one of several roots to every node that can be reached.

    `neighbours`: called with a node, returns the nodes next to it, each with the link to it. Of several shortest paths, the one
    is found that the order of the neighbours puts first. Returns for each node the node before it and the link between them,
    None for a root, in the order of the distances.
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
