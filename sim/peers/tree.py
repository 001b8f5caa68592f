"""Binary tree.

The array is added on its way up a binary tree of the workers and the sum sent down it, in pieces that follow each other: the
single tree of Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel
Computing 2009.
"""

from sim.peers.group import PeerGroup, Tokens

PIECES_PER_LEVEL = 4
"""A tree's pieces must be small against the array, as every level adds one of them to the time."""


def tree(group: PeerGroup, size: int, ready: Tokens) -> Tokens:
    """Write down an all-reduce over a binary tree; an inner worker receives the array twice and sends it three times."""
    workers, messages = group.workers, group.messages
    count = len(workers)
    if count == 1:
        return ready
    done: Tokens = [[] for _ in workers]
    for piece in group.cut(size, PIECES_PER_LEVEL):
        up: dict[int, int] = {}
        for worker in range(count - 1, 0, -1):
            children = [up[child] for child in (2 * worker + 1, 2 * worker + 2) if child < count]
            up[worker] = messages.send(
                workers[worker], workers[(worker - 1) // 2], piece, [*ready[worker], *children]
            )
        root = [*ready[0], *(up[child] for child in (1, 2) if child < count)]
        down: dict[int, list[int]] = {0: root}
        for worker in range(1, count):
            parent = (worker - 1) // 2
            down[worker] = [messages.send(workers[parent], workers[worker], piece, down[parent])]
            done[worker] += down[worker]
        done[0] += root
    return done
