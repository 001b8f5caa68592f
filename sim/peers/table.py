"""All peers, by the names that experiments use; a new one is a new file and its line here.

Servers are hosts of their own (`SERVED`) or the workers' hosts (`COLOCATED`).
"""

from typing import Final

from sim.peers.group import Peer
from sim.peers.halving_doubling import halving_doubling
from sim.peers.omnireduce import omnireduce
from sim.peers.parameter_server import parameter_server
from sim.peers.ring import ring
from sim.peers.tree import tree

PEERS: Final[dict[str, Peer]] = {
    "ring": ring,
    "halving-doubling": halving_doubling,
    "tree": tree,
    "ps": parameter_server,
    "ps-colocated": parameter_server,
    "omnireduce": omnireduce,
}
PIECES: Final = {"ring": 8, "halving-doubling": 8}
"""Pieces of a step with which a peer is fastest, at 10 Gbit/s with 1 and 4 MiB and 4 to 16 workers; 32 of the others."""
COLOCATED: Final = ("ps-colocated",)
SERVED: Final = ("ps", "omnireduce")


def server_count(peer: str, servers: int, workers: int) -> int:
    """Return how many hosts of their own a peer's servers take; 0 servers: one, or, of OmniReduce, one for each worker.

    OmniReduce is evaluated with as many aggregators as workers in its paper (section 6.1).
    """
    default = workers if peer == "omnireduce" else 1
    return (servers or default) if peer in SERVED else 0
