"""Recursive halving and doubling.

Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 2005. Pairs at distances
n/2, n/4, … 1 exchange halves of the part that they still have to add; then they give the sums back over distances 1, 2, … n/2.
If n is no power of two, the first 2 r workers (r = n − 2^k) form pairs before that, of which one stays out and is given the
result afterwards.
"""

from collections.abc import Callable

from sim.peers.group import PeerGroup, Tokens


def halving_doubling(group: PeerGroup, size: int, ready: Tokens) -> Tokens:
    """Write down an all-reduce by recursive halving and doubling; each worker sends 2 (n − 1) / n of the array if n = 2^k."""
    workers, messages = group.workers, group.messages
    count = len(workers)
    if count == 1:
        return ready
    steps = count.bit_length() - 1
    core = 1 << steps
    extra = count - core
    have = [list(tokens) for tokens in ready]

    def exchange(source: int, target: int, amount: int) -> list[int]:
        pieces = group.cut(amount) or [0]
        return [messages.send(workers[source], workers[target], piece, have[source]) for piece in pieces]

    for odd in range(1, 2 * extra, 2):
        have[odd - 1] = have[odd - 1] + exchange(odd, odd - 1, size)
    members = [*range(0, 2 * extra, 2), *range(2 * extra, count)]
    amount = size
    amounts = []
    for step in reversed(range(steps)):
        amount = -(-amount // 2)
        amounts.append(amount)
        _step(members, have, 1 << step, amount, exchange)
    for step in range(steps):
        _step(members, have, 1 << step, amounts.pop(), exchange)
    for odd in range(1, 2 * extra, 2):
        have[odd] = exchange(odd - 1, odd, size)
    return have


def _step(
    members: list[int],
    have: Tokens,
    distance: int,
    amount: int,
    exchange: Callable[[int, int, int], list[int]],
) -> None:
    came: dict[int, list[int]] = {}
    for place, worker in enumerate(members):
        other = members[place ^ distance]
        came[other] = exchange(worker, other, amount)
    for worker, tokens in came.items():
        # The next block is ready only when the own block and the received one are added.
        have[worker] = have[worker] + tokens
