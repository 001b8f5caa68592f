"""The arguments of every peer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sim.network.graph import Node
    from sim.network.messages import Messages

PACKET_BYTES: Final = 1448

Tokens = list[list[int]]  # For each worker, messages: those after which it may begin, or has ended.


@dataclass(frozen=True)
class PeerGroup:
    """Hosts that reduce an array together."""

    messages: Messages
    workers: Sequence[Node]  # The hosts with an array.
    servers: Sequence[Node]  # Hosts that add, for peers that have such.
    pieces: int = 8  # In how many pieces a step's bytes are passed on, each as soon as it is there.
    density: float = 1.0  # Share of the array's blocks that are not zero, at each worker.
    common: bool = False  # Whether the blocks are the same at all workers.
    seed: int = 1  # Seed of a peer's random choices.

    def cut(self, size: int, times: int = 1) -> list[int]:
        """Return a step's bytes in pieces, `times` as many as usual, but none smaller than a packet."""
        return split(size, min(self.pieces * times, -(-size // PACKET_BYTES)))


Peer = Callable[[PeerGroup, int, Tokens], Tokens]
"""A collective, mostly an all-reduce: (group, bytes, when each worker may begin) to when each is done."""


def split(size: int, parts: int) -> list[int]:
    """Return sizes as equal as can be of this many parts, the larger ones first; parts of 0 bytes are left out."""
    share, rest = divmod(size, parts)
    return [share + (part < rest) for part in range(parts) if share or part < rest]
