"""Collectives of trainings beside all-reduces, each by one algorithm for all peers.

- reduce-scatter and all-gather: the two halves of the ring all-reduce (Patarasuk, Yuan, JPDC 2009; `sim.peers.ring`);
- all-to-all: pairwise exchange, in step k with the workers k further on and k before (Thakur, Rabenseifner, Gropp, IJHPCA 2005,
  section 4.3, for long messages);
- broadcast and reduce: a chain through all workers, in pieces that follow each other (Patarasuk, Faraj, Yuan, "Pipelined
  broadcast on Ethernet switched clusters", JPDC 2008), from the first one or to it.
"""

from itertools import pairwise
from typing import Final

from sim.peers.group import Peer, PeerGroup, Tokens, split
from sim.peers.ring import go_round
from sim.peers.tree import PIECES_PER_LEVEL


def reduce_scatter(group: PeerGroup, size: int, ready: Tokens) -> Tokens:
    """Write down a reduce-scatter of arrays of `size` bytes; each worker sends (n − 1) / n of it."""
    steps = len(group.workers) - 1
    return go_round(group, size, ready, range(steps), steps - 1)


def all_gather(group: PeerGroup, size: int, ready: Tokens) -> Tokens:
    """Write down an all-gather to `size` bytes at each worker, which sends (n − 1) / n of it."""
    steps = len(group.workers) - 1
    return go_round(group, size, ready, range(steps, 2 * steps), steps)


def all_to_all(group: PeerGroup, size: int, ready: Tokens) -> Tokens:
    """Write down an exchange in which each worker has `size` bytes, 1/n for each worker."""
    workers, count = group.workers, len(group.workers)
    parts = split(size, count) + [0] * count
    done = [list(tokens) for tokens in ready]
    for step in range(1, count):
        before, done = done, [list(tokens) for tokens in ready]
        for worker, source in enumerate(workers):
            target = (worker + step) % count
            came = group.messages.send(source, workers[target], parts[target], before[worker])
            done[target].append(came)
    return done


def broadcast(group: PeerGroup, size: int, ready: Tokens) -> Tokens:
    """Write down a broadcast of the first worker's `size` bytes along a chain."""
    return _along_chain(group, size, ready, list(range(len(ready))))


def reduce(group: PeerGroup, size: int, ready: Tokens) -> Tokens:
    """Write down a reduce of `size` bytes to the first worker along a chain."""
    return _along_chain(group, size, ready, list(range(len(ready)))[::-1])


def _along_chain(group: PeerGroup, size: int, ready: Tokens, chain: list[int]) -> Tokens:
    done = [list(tokens) for tokens in ready]
    pieces = group.cut(size, PIECES_PER_LEVEL)  # Each worker adds the time of one to the whole.
    came: list[list[int]] = [[] for _ in pieces]
    for source, target in pairwise(chain):
        for at, piece in enumerate(pieces):
            after = [*ready[source], *came[at]]
            came[at] = [group.messages.send(group.workers[source], group.workers[target], piece, after)]
            done[target] += came[at]
    return done


COLLECTIVES: Final[dict[str, Peer]] = {
    "reduce-scatter": reduce_scatter,
    "all-gather": all_gather,
    "all-to-all": all_to_all,
    "broadcast": broadcast,
    "reduce": reduce,
}
"""By the names of `sim.traces.graph`."""
