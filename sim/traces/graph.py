"""A trace as a graph: the nodes of each rank, their dependencies, and the nodes of different ranks that are one communication.

A collective is the k-th of its ranks, in the order in which each rank's trace lists its own; a send belongs to the k-th receive
with its source, target and tag. If a rank has places (processors and interfaces), nodes take turns at a place: a node ends when
its turn has come, and another node that waits for it ends the turn.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Final, Literal

from sim.errors import SettingError

Kind = Literal[
    "compute",
    "send",
    "receive",
    "turn",
    "all-reduce",
    "reduce",
    "broadcast",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
]

MOST_NODES: Final = 2_000_000
"""Nodes of all ranks together: about 2 GB of memory."""
_NAMED: Final = 6  # How many nodes of a cycle an error names.
_MESSAGES: Final = ("send", "receive")
_OF_ONE: Final = ("compute", "turn")  # Kinds of nodes of one rank.
_ALONE: Final = (*_OF_ONE, *_MESSAGES)  # Kinds of nodes that are no collective.

NodeId = int | str


class TraceError(SettingError):
    """A trace is wrong; the message names the node."""


@dataclass(slots=True)
class TraceNode:
    """One step of a rank's trace."""

    id: NodeId  # As the trace has it.
    kind: Kind = "compute"
    after: list[NodeId] = field(default_factory=list)  # Nodes that must have ended before.
    duration_ns: int = 0  # Duration of computing.
    size: int = 0
    """Bytes: of a message; of a rank's array, and of an all-gather the array that all ranks have in the end."""
    ranks: tuple[
        int, ...
    ] = ()  # A collective's ranks, of which the lowest is the root; a message's source and target.
    tag: int = 0  # A message's tag.
    density: float = 1.0  # A sum's share of blocks that are not zero at some rank.
    # The place at which a turn begins; at another node, the place at which a turn ends, with the last byte that is sent.
    place: str = ""
    free: str = ""  # The one where nobody may have a turn when a turn begins, or when a receive ends.

    def __str__(self) -> str:
        return f"node {self.id} ({self.kind})"


@dataclass(frozen=True, slots=True)
class GraphStep:
    """A collective of all its ranks, or another node by itself; a receive waits for its send, too."""

    node: TraceNode  # The first of them.
    ranks: tuple[int, ...]
    members: tuple[int, ...]  # The number of each rank's node, over all ranks.
    after: tuple[tuple[int, ...], ...]  # For each member, the numbers of the nodes that it waits for.


@dataclass(frozen=True)
class Trace:
    """A trace whose nodes can run, one after the other, in the order of `steps`."""

    nodes: int
    steps: tuple[GraphStep, ...]

    def computing_ns(self, factor: float) -> int:
        """Return how long an iteration takes at least, if communication takes no time; `factor`: on all durations.

        The duration is that of the longest chain of nodes, or of the busiest processor with turns.
        """
        ended = [0] * self.nodes
        busy: Counter[object] = Counter()
        for step in self.steps:
            took_ns = round(step.node.duration_ns * factor)
            start = max((ended[each] for after in step.after for each in after), default=0)
            for member in step.members:
                ended[member] = start + took_ns
            if step.node.place:
                busy[step.ranks, step.node.place] += took_ns
        return max([*ended, *busy.values()], default=0)


def link(ranks: list[list[TraceNode]]) -> Trace:
    """Join the nodes of all ranks.

    Raises TraceError if a node waits for one that is not there, or for itself, or communicates with ranks that do not with it.
    """
    if (count := sum(map(len, ranks))) > MOST_NODES:
        raise TraceError(f"expected at most {MOST_NODES:,} nodes of all ranks together, found {count:,}")
    numbers: list[dict[NodeId, int]] = []  # For each rank, the numbers of its nodes.
    after: list[list[int]] = []
    for rank, nodes in enumerate(ranks):
        number_of = {node.id: len(after) + at for at, node in enumerate(nodes)}
        numbers.append(number_of)
        if len(number_of) < len(nodes):
            twice = next(node for at, node in enumerate(nodes) if number_of[node.id] != len(after) + at)
            raise TraceError(f"rank {rank} has {twice} twice")
        for node in nodes:
            if missing := [each for each in node.after if each not in number_of]:
                raise TraceError(f"{node} of rank {rank} waits for node {missing[0]}, which is not there")
            after.append([number_of[each] for each in dict.fromkeys(node.after)])
    steps: list[GraphStep] = []
    step_of = [0] * count
    for joined in _joined(ranks):
        members = [numbers[rank][node.id] for rank, node in joined]
        # A rank may send before it receives, so a send and its receive are two steps, which a collective is not.
        message = joined[0][1].kind in _MESSAGES
        if message:
            after[members[1]].append(members[0])
        for part in (slice(0, 1), slice(1, 2)) if message else (slice(None),):
            places = tuple(rank for rank, _ in joined[part])
            waits = tuple(tuple(after[each]) for each in members[part])
            for member in members[part]:
                step_of[member] = len(steps)
            steps.append(GraphStep(joined[part][0][1], places, tuple(members[part]), waits))
    return Trace(count, tuple(_in_order(steps, step_of)))


def _joined(ranks: list[list[TraceNode]]) -> Iterator[list[tuple[int, TraceNode]]]:
    """Iterate over the nodes that are one communication, each with its rank; the sender of a message is the first."""
    found: dict[tuple[object, ...], list[tuple[int, TraceNode]]] = {}
    counts: defaultdict[tuple[object, ...], int] = defaultdict(int)
    all_ranks = set(range(len(ranks)))
    for rank, nodes in enumerate(ranks):
        for node in nodes:
            if node.kind in _OF_ONE:
                yield [(rank, node)]
                continue
            members = set(node.ranks)
            if rank not in members or len(members) < len(node.ranks) or not members <= all_ranks:
                expected = f"expected this rank and others from 0 to {len(ranks) - 1}"
                raise TraceError(f"{node} of rank {rank}: {expected}, found {list(node.ranks)}")
            key = rank, node.kind in _MESSAGES, node.ranks, node.tag
            found.setdefault((*key[1:], counts[key]), []).append((rank, node))
            counts[key] += 1
    for joined in found.values():
        rank, first = joined[0]
        if missing := set(first.ranks) - {each for each, _ in joined}:
            raise TraceError(f"{first} of rank {rank}: rank {min(missing)} does not take part in it")
        for other, node in joined:
            if node.size != first.size or (node.kind != first.kind and first.kind not in _MESSAGES):
                what = f"{node} of rank {other} has {node.size:,} bytes"
                raise TraceError(f"{what}, but {first} of rank {rank}, which belongs to it, {first.size:,}")
        yield joined[::-1] if first.kind == "receive" else joined


def _in_order(steps: list[GraphStep], step_of: list[int]) -> list[GraphStep]:
    """Return the steps so that each follows those it waits for, and collectives of the same ranks in the order of the trace."""
    before: dict[int, set[int]] = {}
    latest: dict[tuple[int, ...], int] = {}
    for number, step in enumerate(steps):
        before[number] = {step_of[each] for after in step.after for each in after}
        if step.node.kind not in _ALONE:
            before[number] |= {latest[step.ranks]} if step.ranks in latest else set()
            latest[step.ranks] = number
    try:
        return [steps[number] for number in TopologicalSorter(before).static_order()]
    except CycleError as error:
        names = [f"{steps[each].node} of rank {steps[each].ranks[0]}" for each in error.args[1][::-1]]
        raise TraceError(f"a cycle: each waits for the next one: {', '.join(names[:_NAMED])}") from None
