"""Writes small traces of several ranks."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from sim.traces.chakra import file_bytes as chakra_bytes
from sim.traces.chakra import made_node as chakra_node

__all__ = ["FORMATS", "chakra_bytes", "chakra_node", "training", "write_chakra"]


def write_chakra(folder: Path, ranks: Iterable[Iterable[Any]], name: str = "trace") -> str:
    """Write a file for each rank, and return their pattern."""
    for rank, nodes in enumerate(ranks):
        (folder / f"{name}.{rank}.et").write_bytes(chakra_bytes(nodes))
    return str(folder / f"{name}.%d.et")


def training(rank: int, workers: int = 4, size: int = 1 << 18) -> list[Any]:
    """Return a step: a gradient is reduced while the next one is computed, and what each rank has is passed on at the end."""
    right, left = (rank + 1) % workers, (rank - 1) % workers
    return [
        chakra_node(10, "compute", micros=100),
        chakra_node(11, "all-reduce", [10], comm_size=size),
        chakra_node(12, "compute", [10], micros=150),
        chakra_node(13, "reduce-scatter", [12], comm_size=size),
        chakra_node(14, "all-gather", [13], comm_size=size // workers),
        chakra_node(15, "all-to-all", [11, 14], comm_size=size),
        chakra_node(16, "broadcast", [15], comm_size=size),
        chakra_node(17, "reduce", [16], comm_size=size),
        chakra_node(18, "send", [17], comm_size=size, comm_dst=right, comm_tag=3),
        chakra_node(19, "receive", [17], comm_size=size, comm_src=left, comm_tag=3),
        chakra_node(20, "compute", [19], micros=20),
    ]


def _goal(folder: Path) -> str:
    """Write a message that goes round four ranks, each of which computes meanwhile."""
    blocks = []
    for rank in range(4):
        right, left = (rank + 1) % 4, (rank - 1) % 4
        lines = [
            f"l1: send 65536b to {right} tag 1",
            f"l2: recv 65536b from {left} tag 1",
            "l3: calc 9000",
            "l3 requires l2",
        ]
        blocks += [f"rank {rank} {{", *lines, "}"]
    (folder / "ring.goal").write_text("\n".join(["num_ranks 4", *blocks, ""]))
    return str(folder / "ring.goal")


def _aicb(folder: Path) -> str:
    """Write two layers, with pairs of tensor parallelism and two of data parallelism."""
    (folder / "layers.txt").write_text(
        "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: 1 all_gpus: 4 checkpoints: 0\n2\n"
        "first -1 1000 ALLREDUCE 4096 2000 ALLGATHER 8192 3000 REDUCESCATTER 16384 1\n"
        "second -1 100 NONE 0 200 NONE 0 300 ALLREDUCE 65536 1\n"
    )
    return str(folder / "layers.txt")


FORMATS: Final[dict[str, Callable[[Path], str]]] = {
    "chakra": lambda folder: write_chakra(folder, map(training, range(4))),
    "goal": _goal,
    "aicb": _aicb,
}
"""Write a trace of four ranks, by format, and return its place."""
