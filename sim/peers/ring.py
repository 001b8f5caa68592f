"""Ring all-reduce: Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 2009.

The array is cut into as many segments as there are workers. In n − 1 steps each worker passes a segment to its right
neighbour, which adds its own; in n − 1 more the sums go round. A segment goes in pieces, each passed on when it is there, as
NCCL and Gloo do, so that steps overlap.
"""

from sim.peers.group import PeerGroup, Tokens, split


def ring(group: PeerGroup, size: int, ready: Tokens) -> Tokens:
    """Write down a ring all-reduce; each worker sends 2 (n − 1) / n of the array."""
    steps = 2 * (len(group.workers) - 1)
    return go_round(group, size, ready, range(steps), steps // 2)


def go_round(group: PeerGroup, size: int, ready: Tokens, steps: range, last: int) -> Tokens:
    """Write down steps of a ring all-reduce.

    Parameters
    ----------
    steps
        In the first n − 1 of an all-reduce sums are made, in the others they go round.
    last
        The first step whose received block a worker needs.
    """
    workers, messages = group.workers, group.messages
    count = len(workers)
    if count == 1:
        return ready
    segments = split(size, count)
    segments += [0] * (count - len(segments))
    done: Tokens = [[] for _ in workers]
    # For each worker and segment: the pieces that have come, which the next step passes on.
    came: dict[tuple[int, int], list[int]] = {}
    for step in steps:
        arrived: dict[tuple[int, int], list[int]] = {}
        for worker in range(count):
            segment = (worker - step) % count
            right = (worker + 1) % count
            pieces = group.cut(segments[segment]) or [0]
            before = came.get((worker, segment))
            arrived[right, segment] = [
                messages.send(
                    workers[worker],
                    workers[right],
                    piece,
                    ready[worker] if before is None else [before[at], *ready[worker]],
                )
                for at, piece in enumerate(pieces)
            ]
            if step >= last:
                done[right] += arrived[right, segment]
        came = arrived
    return done
