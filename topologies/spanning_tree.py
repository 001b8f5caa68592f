"""The links of a network by which every node is reached once: flooded packets must not circulate."""

from collections import deque
from collections.abc import Iterable, Sequence


def spanning_tree(nodes: Iterable[str], links: Sequence[tuple[str, str]]) -> frozenset[int]:
    """Return which links form a spanning tree, found breadth first from the first node.

    `nodes`: all nodes. Each part of a network that is not connected gets a tree of its own. `links`: both ends of each link;
    several links may join the same two nodes. Returns indices of `links`. The same network gives the same tree.
    """
    touching: dict[str, list[tuple[int, str]]] = {}
    for number, (one, other) in enumerate(links):
        touching.setdefault(one, []).append((number, other))
        touching.setdefault(other, []).append((number, one))
    chosen: set[int] = set()
    seen: set[str] = set()
    for root in nodes:
        if root in seen:
            continue
        seen.add(root)
        frontier = deque([root])
        while frontier:
            for number, far in touching.get(frontier.popleft(), ()):
                if far not in seen:
                    seen.add(far)
                    chosen.add(number)
                    frontier.append(far)
    return frozenset(chosen)
