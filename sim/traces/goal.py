"""GOAL text, as LogGOPSim and ATLAHS write it.

Source: LogGOPSim, `src/LogGOPSim/txt2bin.re`. After `num_ranks N` each rank has a block of operations, `LABEL: calc NS`, `LABEL:
send BYTESb to RANK tag T` and `LABEL: recv BYTESb from RANK tag T`, each of which may end with `cpu C nic N`, and of `LABEL
requires LABEL`; one that `irequires` another may begin when that one begins. Operations that do not wait for each other overlap,
whatever their `cpu`.
"""

import re
from pathlib import Path
from typing import Final

from sim.traces.graph import MOST_NODES, NodeId, TraceError, TraceNode

_OPERATION: Final = re.compile(
    r"(?:(\w+)\s*:\s*)?(?:(calc)\s+(\d+)|(send|recv)\s+(\d+)b\s+(?:to|from)\s+(\d+)(?:\s+tag\s+(\d+))?)(?:\s+(?:cpu|nic)\s+\d+)*"
)
_REQUIRES: Final = re.compile(r"(\w+)\s+(i?requires)\s+(\w+)")
_COMMENT: Final = re.compile(r"//.*|/\*.*?\*/")


def read_goal(path: Path) -> list[list[TraceNode]]:
    """Read the nodes of all ranks; comments end in the line in which they begin. Raises TraceError and OSError."""
    ranks: dict[int, list[TraceNode]] = {}
    labels: dict[NodeId, TraceNode] = {}
    count, rank, last = 0, -1, "at its beginning"
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            text = _COMMENT.sub("", line).strip()
            where = f"line {number}, {last}"
            if number > 2 * MOST_NODES:
                raise TraceError(f"{where}: expected at most {2 * MOST_NODES:,} lines")
            if match := re.fullmatch(r"num_ranks\s+(\d+)", text):
                count = int(match[1])
            elif match := re.fullmatch(r"rank\s+(\d+)\s*\{", text):
                rank, labels = int(match[1]), {}
                if rank in ranks or rank >= count:
                    raise TraceError(
                        f"{where}: expected one block for each of {count} ranks, found rank {rank}"
                    )
                ranks[rank] = []
            elif rank >= 0 and text == "}":
                rank = -1
            elif rank >= 0 and (match := _OPERATION.fullmatch(text)):
                node = _operation(match, number, rank)
                ranks[rank].append(node)
                labels[node.id] = node
                last = f"after {node} of rank {rank}"
            elif rank >= 0 and (match := _REQUIRES.fullmatch(text)):
                if unknown := {match[1], match[3]} - set(labels):
                    raise TraceError(f"{where}: {text}: there is no node {unknown.pop()}")
                labels[match[1]].after += labels[match[3]].after if match[2] == "irequires" else [match[3]]
            elif text:
                raise TraceError(f"{where}: expected a line of GOAL, found {text[:60]!r}")
    if rank >= 0:
        raise TraceError(f"the file is cut off in rank {rank}, {last}")
    for missing in set(range(count)) - set(ranks):
        raise TraceError(f"rank {missing} is missing: expected {count} ranks")
    return [ranks[each] for each in range(count)]


def _operation(match: re.Match[str], line: int, rank: int) -> TraceNode:
    label, calc, ns, kind, size, other, tag = match.groups()
    node = TraceNode(label or f"in line {line}")
    if calc:
        node.duration_ns = int(ns)
    else:
        node.kind = "send" if kind == "send" else "receive"
        node.ranks = (rank, int(other)) if kind == "send" else (int(other), rank)
        node.size, node.tag = int(size), int(tag or 0)
    return node
