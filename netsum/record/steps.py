"""A training's step as nodes of a Chakra trace, from PyTorch's profiler and ExecutionTraceObserver.

MLCommons Chakra's trace linker joins the two by the numbers of operators; here the order of communications does, as they are of
different steps: the observer has kind and bytes of a communication, the profiler its begin and end. Operators do not
name the ranks, so a training with process groups of some of the ranks is refused.

A rank computes, and waits for communications. It waits for one that ends while no operator runs, from the last operator or launch
before on. Time without an operator in which none ends is Python's, and counts as computing. Communications that were never
waited for have ended when the optimizer's step begins.
"""

import itertools
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from netsum_common.errors import NetsumError
from sim.traces.chakra import DENSITY, made_node
from sim.traces.graph import Kind

MARK: Final = "## netsum: step ##"
"""Name of the range that ends a step."""
BLOCK: Final = 256  # Elements that are searched together for zeros: those of a packet.
_OPTIMIZER: Final = "Optimizer.step"
_NETSUM: Final = re.compile(r"netsum:(\w+).*?, (\d+) bytes")
_OURS: Final[dict[str, Kind]] = {
    "all_reduce": "all-reduce",
    "exact": "all-reduce",
    "reduce": "reduce",
    "reduce_scatter": "reduce-scatter",
    "broadcast": "broadcast",
    "all_gather": "all-gather",
    "barrier": "all-reduce",
}
# By the operator's name without underscores at its ends: its kind, and the argument with the bytes that the rank contributes.
_OPERATORS: Final[dict[str, tuple[Kind, int]]] = {
    "allreduce": ("all-reduce", 0),
    "allreduce_coalesced": ("all-reduce", 0),
    "reduce": ("reduce", 0),
    "broadcast": ("broadcast", 0),
    "allgather": ("all-gather", 1),
    "allgather_base": ("all-gather", 1),
    "allgather_coalesced": ("all-gather", 1),
    "allgather_into_tensor_coalesced": ("all-gather", 1),
    "reduce_scatter": ("reduce-scatter", 1),
    "reduce_scatter_base": ("reduce-scatter", 1),
    "reduce_scatter_tensor_coalesced": ("reduce-scatter", 1),
    "alltoall": ("all-to-all", 1),
    "alltoall_base": ("all-to-all", 1),
    "barrier": ("all-reduce", 0),
    "send": ("send", 0),
    "recv": ("receive", 0),
}
_PEER: Final = 2  # The argument of send and recv that is the other rank; the next one is the tag.


class RecordingError(NetsumError):
    """A training cannot be recorded; the message says why."""


@dataclass(frozen=True)
class TraceEvent:
    """An operator, or a range that a program or a communication marked; times in ns."""

    name: str
    start_ns: int
    end_ns: int
    marked: bool
    thread: int

    @property
    def launches(self) -> bool:
        """Whether it begins a communication."""
        return self.name.startswith("c10d::") or _NETSUM.match(self.name) is not None


@dataclass(frozen=True)
class Communication:
    """A communication of a step; `size` in bytes, as Chakra has it: of an all-gather, the contribution of each rank."""

    kind: Kind
    size: int
    peer: int = -1  # Peer of a message.
    tag: int = 0


@dataclass(frozen=True)
class Wait:
    """The rank waits for communications, by their numbers in the step."""

    start_ns: int
    end_ns: int
    those: tuple[int, ...]


@dataclass(frozen=True)
class TraceStep:
    """A step: when it begins and ends, when its communications begin, and where the rank waits for them."""

    start_ns: int
    end_ns: int
    launches: tuple[int, ...]
    waits: tuple[Wait, ...]

    @property
    def length_ns(self) -> int:
        """How long it takes."""
        return self.end_ns - self.start_ns

    @property
    def waiting_ns(self) -> int:
        """How long the rank waits in it."""
        return sum(each.end_ns - each.start_ns for each in self.waits)


def communications(observed: Any, ranks: int) -> list[Communication]:
    """Return the communications of a step, from an execution trace of it.

    Raises RecordingError if it communicates nothing, or something that no trace can hold.
    """
    found = []
    for node in sorted(observed["nodes"], key=lambda node: int(node["id"])):
        name = node["name"]
        if name == "## process_group:init ##":
            groups = json.loads(node["inputs"]["values"][0])
            if small := [each for each in groups if each["ranks"] and len(each["ranks"]) < ranks]:
                raise RecordingError(
                    f"the training has a process group of {len(small[0]['ranks'])} of its {ranks} ranks: "
                    "expected one that all ranks are in, as operators do not name theirs"
                )
        elif ours := _NETSUM.match(name):
            found.append(_ours(ours[1], int(ours[2]), ranks))
        elif name.startswith("c10d::"):
            found.append(_operator(name, node["inputs"]["values"]))
    if not any(each.size for each in found):
        raise RecordingError(
            "a step of the training communicates nothing: expected collectives of torch.distributed"
        )
    return found


def _ours(name: str, written: int, ranks: int) -> Communication:
    """Return a collective of netsum's process group; `written`: bytes of a rank's outputs."""
    kind = _OURS[name]
    size = (
        written * ranks if kind == "reduce-scatter" else written // ranks if kind == "all-gather" else written
    )
    return Communication(kind, size)


def _operator(name: str, values: Sequence[Any]) -> Communication:
    short = name.removeprefix("c10d::").strip("_")
    if short not in _OPERATORS:
        raise RecordingError(
            f"the training calls {name}, which no trace holds: expected {', '.join(_OPERATORS)}"
        )
    kind, at = _OPERATORS[short]
    size = 0 if short == "barrier" else _bytes(values[at])
    if kind in ("send", "receive"):
        return Communication(kind, size, values[_PEER], values[_PEER + 1])
    return Communication(kind, size)


def _bytes(value: Any) -> int:
    """Return the bytes of a tensor as the observer writes it (id, storage, offset, elements, bytes, device), or of several."""
    if not isinstance(value, list) or not value:
        return 0
    if isinstance(value[0], list):
        return sum(map(_bytes, value))
    return int(value[3]) * int(value[4])


def median_step(events: Iterable[TraceEvent], called: Sequence[Communication]) -> TraceStep:
    """Return the profiled step whose waits take the median; the first is not counted.

    Its computing is scaled to the steps without the profiler (`nodes_of`), so its waits alone must be common.

    Raises RecordingError if steps communicate differently, or do not say when communications end.
    """
    ordered = sorted(events, key=lambda event: event.start_ns)
    marks = [each.end_ns for each in ordered if each.name == MARK]
    trains = next(each.thread for each in ordered if each.name == MARK)
    # Other threads end communications: Gloo's, and PyTorch's for the end of netsum's ranges ("<forked function>").
    ordered = [each for each in ordered if each.thread == trains or each.marked or each.launches]
    steps = []
    of_profile = list(itertools.pairwise(marks))[1:-1]  # The last one was observed, too.
    for start_ns, end_ns in of_profile:
        within = [each for each in ordered if start_ns <= each.start_ns < end_ns and each.name != MARK]
        steps.append(_step(start_ns, end_ns, within, len(called)))
    steps.sort(key=lambda step: step.waiting_ns)
    return steps[len(steps) // 2]


def _step(start_ns: int, end_ns: int, events: Sequence[TraceEvent], expected: int) -> TraceStep:
    launches = [each for each in events if each.launches]
    # A backend in C++ marks a communication by itself, from the call to the end.
    ranges = [each for each in events if each.name.startswith("gloo:")]
    ends = iter(ranges)
    ended = [each.end_ns if each.marked else getattr(next(ends, None), "end_ns", -1) for each in launches]
    if len(launches) != expected:
        raise RecordingError(
            f"steps of the training differ: one has {expected} communications, another {len(launches)}"
        )
    if -1 in ended or next(ends, None) is not None:
        raise RecordingError(
            "expected the end of each communication in the profile, as the backends gloo and netsum write it"
        )
    busy = _union(
        [(start_ns, start_ns), *((each.start_ns, each.end_ns) for each in events if not each.marked)]
    )
    gaps = zip([end for _, end in busy], [*(start for start, _ in busy[1:]), end_ns], strict=True)
    starts = [each.start_ns for each in launches]
    waits = [wait for gap in gaps for wait in _waits(*gap, starts, ended)]
    seen = {number for wait in waits for number in wait.those}
    if unseen := tuple(number for number in range(len(launches)) if number not in seen):
        begins = [each.start_ns for each in events if each.name.startswith(_OPTIMIZER)]
        at_ns = next((each for each in begins if each > starts[-1]), end_ns)
        waits.append(Wait(at_ns, at_ns, unseen))
    return TraceStep(start_ns, end_ns, tuple(starts), tuple(sorted(waits, key=lambda wait: wait.start_ns)))


def _union(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _waits(start_ns: int, end_ns: int, launches: Sequence[int], ended: Sequence[int]) -> Iterable[Wait]:
    """Iterate over the waits within a time in which no operator runs: a rank that begins a communication does not wait."""
    inside = [start_ns, *(each for each in launches if start_ns < each < end_ns), end_ns]
    for first, last in itertools.pairwise(inside):
        those = [
            number for number, each in enumerate(ended) if first < each <= last and launches[number] < last
        ]
        if those:
            yield Wait(first, max(ended[number] for number in those), tuple(those))


def nodes_of(
    step: TraceStep, called: Sequence[Communication], length_ns: int, density: float = 1.0
) -> list[Any]:
    """Return the nodes of a step.

    `length_ns`: duration of the step without the profiler, to which computing is scaled; waits keep their lengths.
    `density`: the share of blocks of all-reduces that are not zero. Raises RecordingError if the waits alone take longer.
    """
    if length_ns <= step.waiting_ns:
        raise RecordingError(
            f"a profiled step waits {step.waiting_ns / 1e6:.2f} ms for communications, but one without the profiler takes only "
            f"{length_ns / 1e6:.2f} ms, so its computing is not known: record again with other programs stopped"
        )
    scale = (length_ns - step.waiting_ns) / max(step.length_ns - step.waiting_ns, 1)
    cuts: list[tuple[int, int, int | Wait]] = [
        *((at, at, number) for number, at in enumerate(step.launches)),
        *((each.start_ns, each.end_ns, each) for each in step.waits),
    ]
    nodes: list[Any] = []
    number_of: dict[int, int] = {}
    before: list[int] = []
    at_ns = step.start_ns
    for start_ns, end_ns, what in sorted(cuts, key=lambda cut: cut[:2]):
        before = _compute(nodes, before, (start_ns - at_ns) * scale)
        at_ns = end_ns
        if isinstance(what, Wait):
            before = [*before, *(number_of[each] for each in what.those)]
            continue
        number_of[what] = len(nodes)
        nodes.append(_communicate(len(nodes), called[what], before, density))
    _compute(nodes, before, (step.end_ns - at_ns) * scale)
    return nodes


def _compute(nodes: list[Any], after: Sequence[int], ns: float) -> list[int]:
    nodes.append(made_node(len(nodes), "compute", after, name="computing", micros=round(ns / 1000)))
    return [len(nodes) - 1]


def _communicate(number: int, what: Communication, after: Sequence[int], density: float) -> Any:
    attributes: dict[str, Any] = {"comm_size": what.size}
    if what.kind == "all-reduce" and density < 1:
        attributes[DENSITY] = density
    if what.peer >= 0:
        attributes |= {"comm_dst" if what.kind == "send" else "comm_src": what.peer, "comm_tag": what.tag}
    return made_node(number, what.kind, after, name=what.kind, **attributes)
