"""Writes small traces of several ranks."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sim.traces.chakra import file_bytes as chakra_bytes
from sim.traces.chakra import made_node as chakra_node

__all__ = ["chakra_bytes", "chakra_node", "write_chakra"]


def write_chakra(folder: Path, ranks: Iterable[Iterable[Any]], name: str = "trace") -> str:
    """Write a file for each rank, and return their pattern."""
    for rank, nodes in enumerate(ranks):
        (folder / f"{name}.{rank}.et").write_bytes(chakra_bytes(nodes))
    return str(folder / f"{name}.%d.et")
