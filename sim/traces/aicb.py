"""Workloads of AICB for SimAI: a text with a layer of a model in each line, which all ranks run alike.

Source: SimAI, `astra-sim/workload/Workload.cc` (`initialize_workload`, `iterate_hybrid_parallel_Transformer_fwd_in_bckwd`). The
first line has how the ranks share the work, the second the number of layers, each other one a layer: its name, a number, and for
the forward pass, the gradients of its input and those of its weights a time in ns, a collective and its bytes; then the time of
an update, which SimAI does not read either. The forward pass goes through all layers, the backward pass back; a rank waits for
each collective but those of the weights, which go on meanwhile. A collective's bytes are a rank's whole array.
"""

from itertools import islice, pairwise
from pathlib import Path
from typing import Final

from sim.traces.graph import MOST_NODES, Kind, TraceError, TraceNode
from sim.traces.values import MOST_BYTES, MOST_NS, lines_of, whole_number

POLICIES: Final = ("MICRO", "DATA", "HYBRID_TRANSFORMER", "HYBRID_TRANSFORMER_FWD_IN_BCKWD")
_COLLECTIVES: Final[dict[str, Kind]] = {
    "NONE": "compute",
    "ALLREDUCE": "all-reduce",
    "ALLGATHER": "all-gather",
    "REDUCESCATTER": "reduce-scatter",
    "ALLTOALL": "all-to-all",
    "BROADCAST": "broadcast",
}
_STAGES: Final = ("forward", "inputs", "weights")
_COLUMNS: Final = 12


def read_aicb(path: Path, workers: int) -> list[list[TraceNode]]:
    """Read the nodes of all ranks; raises TraceError and OSError."""
    with path.open(encoding="utf-8", errors="replace") as file:
        lines = lines_of(file)
        policy, *words = next(lines).split()
        options = {name.rstrip(":"): value for name, value in pairwise(words)}
        tensor, expert, stages, checkpoints = (
            whole_number(options.get(name, default), f"line 1: {name}", least)
            for name, default, least in (
                ("model_parallel_NPU_group", "1", 1),
                ("ep", "1", 1),
                ("pp", "1", 0),
                ("checkpoints", "0", 0),
            )
        )
        if stages > 1 or checkpoints:
            raise TraceError("pp, checkpoints: expected no stages of a pipeline (1) and no checkpoints (0)")
        if workers % (tensor * expert):
            raise TraceError(
                f"expected workers that groups of {tensor} times {expert} divide, found {workers}"
            )
        count, last = (
            whole_number(next(lines, "").strip(), "line 2: the number of layers", 1),
            "at its beginning",
        )
        least = count * workers * (1 if policy == "MICRO" else len(_STAGES))
        if least > MOST_NODES:
            raise TraceError(
                f"expected at most {MOST_NODES:,} nodes of all ranks together, found {least:,} or more"
            )
        layers: list[list[str]] = []
        for line in islice(lines, count):
            columns = line.split()
            if len(columns) != _COLUMNS:
                break
            layers.append(columns)
            last = f"after layer {len(layers)} ({columns[0]})"
    if len(layers) < count:
        raise TraceError(f"the file is cut off {last}: expected {count} layers of {_COLUMNS} columns")
    ranks = [
        _rank(layers, policy == "MICRO", _groups(rank, tensor, expert, workers)) for rank in range(workers)
    ]
    if workers > 1 and all(node.kind == "compute" for nodes in ranks for node in nodes):
        raise TraceError(
            f"nothing is communicated by {workers} workers: expected collectives in a group of more than one rank, "
            f"found model_parallel_NPU_group {tensor} and ep {expert}"
        )
    return ranks


def _groups(rank: int, tensor: int, expert: int, workers: int) -> dict[str, tuple[int, ...]]:
    """Return the ranks with which a rank shares a tensor, the data, an expert's layer, and an expert's data."""
    column, row = rank % tensor, rank // tensor
    block = row // expert * expert
    data = range(column, workers, tensor)
    return {
        "TP": tuple(range(row * tensor, (row + 1) * tensor)),
        "DP": tuple(data),
        "EP": tuple(data[block : block + expert]),
        "DP_EP": tuple(data[row % expert :: expert]),
    }


def _rank(layers: list[list[str]], micro: bool, groups: dict[str, tuple[int, ...]]) -> list[TraceNode]:
    nodes: list[TraceNode] = []
    order = [(at, 0) for at in range(len(layers))]
    order += [(at, stage) for at in reversed(range(len(layers))) for stage in (1, 2)]
    if micro:
        order = [(at, 2) for at in range(len(layers))]
    before: list[int | str] = []
    for at, stage in order:
        name, _, *columns = layers[at]
        time, collective, size = columns[3 * stage : 3 * stage + 3]
        computing = TraceNode(f"{at + 1}.{name}.{_STAGES[stage]}", "compute", before)
        computing.duration_ns = whole_number(time, f"{computing}: ns", most=MOST_NS)
        kind, _, group = collective.partition("_")
        if kind not in _COLLECTIVES or group not in ("", "EP", "DP_EP"):
            raise TraceError(f"{computing}: expected one of {', '.join(_COLLECTIVES)}, found {collective}")
        nodes.append(computing)
        before = [computing.id]
        ranks = groups[group or ("DP" if stage == 2 else "TP")]
        if kind != "NONE" and len(ranks) > 1:
            node = TraceNode(f"{computing.id}.{collective}", _COLLECTIVES[kind], before, ranks=ranks)
            node.size = whole_number(size, f"{node}: bytes", most=MOST_BYTES)
            nodes.append(node)
            before = [node.id] if stage < 2 or micro else before
    return nodes
