"""All peers, by the names that experiments use; a new one is a new file and its line here."""

from __future__ import annotations

from typing import Final

from sim.peers.group import Peer
from sim.peers.halving_doubling import halving_doubling
from sim.peers.omnireduce import omnireduce
from sim.peers.parameter_server import parameter_server
from sim.peers.ring import ring
from sim.peers.tree import tree

__all__ = ["PEERS"]

PEERS: Final[dict[str, Peer]] = {
    "ring": ring,
    "halving-doubling": halving_doubling,
    "tree": tree,
    "ps": parameter_server,
    "ps-colocated": parameter_server,
    "omnireduce": omnireduce,
}
