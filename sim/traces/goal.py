"""GOAL text, as LogGOPSim and ATLAHS write it.

Source: LogGOPSim, `src/LogGOPSim/txt2bin.re` and `LogGOPSim.cpp`. After `num_ranks N` each rank has a block of operations,
`LABEL: calc NS`, `LABEL: send BYTESb to RANK tag T` and `LABEL: recv BYTESb from RANK tag T`, each of which may end with `cpu C
nic N`, and of `LABEL requires LABEL`; one that `irequires` another may begin when that one begins. A processor (`cpu`, 0 by
default) computes one `calc` at a time, and begins no send and ends no receive meanwhile; an interface (`nic`) sends the bytes of
one message at a time. Operations begin in the order in which they become ready; at the same time, messages begin before a `calc`.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sim.traces.graph import MOST_NODES, NodeId, TraceError, TraceNode
from sim.traces.values import MOST_BYTES, MOST_NS, lines_of, whole_number

_OPERATION: Final = re.compile(
    r"(?:(\w+)\s*:\s*)?"
    r"(?:calc\s+(\d+)|(send|recv)\s+(\d+)b\s+(?:to|from)\s+(\d+)(?:\s+tag\s+(\d+))?)"
    r"((?:\s+(?:cpu|nic)\s+\d+)*)"
)
_PLACE: Final = re.compile(r"(cpu|nic)\s+(\d+)")
_REQUIRES: Final = re.compile(r"(\w+)\s+(i?requires)\s+(\w+)")
_COMMENT: Final = re.compile(r"//.*|/\*.*?\*/")
_MOST_PLACES: Final = 256  # Processors, or interfaces, of a rank: GOAL's binary form has a byte for them.


@dataclass(slots=True)
class _Operation:
    node: TraceNode
    cpu: str
    nic: str


def read_goal(path: Path) -> list[list[TraceNode]]:
    """Read the nodes of all ranks; comments end in the line in which they begin. Raises TraceError and OSError."""
    ranks: dict[int, list[TraceNode]] = {}
    labels: dict[NodeId, TraceNode] = {}
    operations: list[_Operation] = []
    begun: set[NodeId] = set()  # Labels of operations with which others begin.
    count, rank, last, nodes = 0, -1, "at its beginning", 0
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(lines_of(file), 1):
            text = _COMMENT.sub("", line).strip()
            where = f"line {number}, {last}"
            if match := re.fullmatch(r"num_ranks\s+(\d+)", text):
                count = whole_number(match[1], f"{where}: num_ranks", 1)
            elif match := re.fullmatch(r"rank\s+(\d+)\s*\{", text):
                rank, labels, operations, begun = whole_number(match[1], f"{where}: rank"), {}, [], set()
                if rank in ranks or rank >= count:
                    raise TraceError(
                        f"{where}: expected one block for each of {count} ranks, found rank {rank}"
                    )
            elif rank >= 0 and text == "}":
                ranks[rank] = list(_in_turn(operations, begun))
                nodes += len(ranks[rank])
                rank, operations = -1, []
            elif rank >= 0 and (match := _OPERATION.fullmatch(text)):
                operations.append(_operation(match, number, rank))
                node = operations[-1].node
                labels[node.id] = node
                last = f"after {node} of rank {rank}"
            elif rank >= 0 and (match := _REQUIRES.fullmatch(text)):
                for label in (match[1], match[3]):
                    if label not in labels:
                        raise TraceError(f"{where}: {text}: there is no node {label}")
                waits_for = match[3]
                if match[2] == "irequires":
                    begun.add(match[3])
                    waits_for = _begin_of(match[3])
                labels[match[1]].after.append(waits_for)
            elif text:
                raise TraceError(f"{where}: expected a line of GOAL, found {text[:60]!r}")
            if nodes + len(operations) > MOST_NODES or number > 4 * MOST_NODES:
                raise TraceError(
                    f"{where}: expected at most {MOST_NODES:,} nodes and {4 * MOST_NODES:,} lines, found more"
                )
    if rank >= 0:
        raise TraceError(f"the file is cut off in rank {rank}, {last}")
    if len(ranks) < count:
        missing = next(each for each in range(count) if each not in ranks)
        raise TraceError(f"rank {missing} is missing: expected {count} ranks")
    return [ranks[each] for each in range(count)]


def _operation(match: re.Match[str], line: int, rank: int) -> _Operation:
    label, ns, kind, size, other, tag, places = match.groups()
    node = TraceNode(label or f"in line {line}")
    where = f"line {line}: node {node.id} of rank {rank}"
    if ns:
        node.duration_ns = whole_number(ns, f"{where}: calc", most=MOST_NS)
    else:
        node.kind = "send" if kind == "send" else "receive"
        peer = whole_number(other, f"{where}: rank")
        node.ranks = (rank, peer) if kind == "send" else (peer, rank)
        node.size = whole_number(size, f"{where}: bytes", most=MOST_BYTES)
        node.tag = whole_number(tag or 0, f"{where}: tag")
    found = {"cpu": "0", "nic": "0", **dict(_PLACE.findall(places))}
    cpu, nic = (
        f"{name} {whole_number(found[name], f'{where}: {name}', most=_MOST_PLACES - 1)}" for name in found
    )
    return _Operation(node, cpu, nic)


def _begin_of(label: NodeId) -> str:
    return f"{label} begins"


def _in_turn(operations: list[_Operation], begun: set[NodeId]) -> Iterator[TraceNode]:
    """Iterate over the nodes of a rank: its operations, and before each the turns at its places and its begin.

    Where a processor computes nothing, or an interface sends one message, no turns are needed.
    """
    computing = {each.cpu for each in operations if each.node.duration_ns}
    sends = Counter(each.nic for each in operations if each.node.kind == "send")
    for each in operations:
        node = each.node
        free = each.cpu if each.cpu in computing else ""
        place = {"compute": free, "send": each.nic if sends[each.nic] > 1 else "", "receive": ""}[node.kind]
        if node.kind == "receive":
            node.free, free = free, ""
        if place or free or node.id in begun:
            begin = TraceNode(
                _begin_of(node.id), "turn" if place or free else "compute", node.after, place=place
            )
            begin.free = free if place != free else ""
            node.after, node.place = [begin.id], place
            yield begin
        yield node
