"""The switches between a worker and the root of its job's tree, and which ranks are behind which of their children."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from host_agent.errors import AdmissionError
from host_agent.wire.constants import MAX_CHILDREN, MAX_WORLD_SIZE, TREE_MAX_LEVELS


@dataclass(frozen=True, slots=True)
class Level:
    """One switch on the path."""

    worker_id: int  # Id of the child towards the worker: the worker itself, or the switch above it.
    # The ranks behind each child, by the child's worker id at this switch.
    children: tuple[tuple[int, ...], ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks behind this switch."""
        return tuple(rank for child in self.children for rank in child)

    def behind(self, seen: int) -> tuple[int, ...]:
        """Return the ranks behind the children whose bits are not set in `seen`, in order."""
        missing = (child for bit, child in enumerate(self.children) if not seen >> bit & 1)
        return tuple(sorted(rank for child in missing for rank in child))


Path = tuple[Level, ...]  # From the worker's own switch to the root.


def one_switch(worker_id: int, num_workers: int) -> Path:
    """Return the path of a job on one switch: ranks are worker ids."""
    return (Level(worker_id, tuple((rank,) for rank in range(num_workers))),)


def check_path(path: Path) -> None:
    """Check a path. Raises AdmissionError with the reason if it is invalid."""
    if not 1 <= len(path) <= TREE_MAX_LEVELS:
        raise AdmissionError(f"admission: path must have 1…{TREE_MAX_LEVELS} switches, got {len(path)}")
    for number, level in enumerate(path):
        count = len(level.children)
        if not 1 <= count <= MAX_CHILDREN:
            raise AdmissionError(f"admission: a switch has 1…{MAX_CHILDREN} children, got {count}")
        if not 0 <= level.worker_id < count:
            raise AdmissionError(
                f"admission: path[{number}].worker_id must be 0…{count - 1}, got {level.worker_id}"
            )
        if number and sorted(level.children[level.worker_id]) != sorted(path[number - 1].ranks):
            raise AdmissionError(
                f"admission: child {level.worker_id} of path[{number}] must hold the ranks of path[{number - 1}]"
            )
    if len(path[0].children[path[0].worker_id]) != 1:
        raise AdmissionError("admission: the worker's own child of path[0] must be one worker")
    ranks = sorted(path[-1].ranks)
    if ranks != list(range(len(ranks))) or len(ranks) > MAX_WORLD_SIZE:
        raise AdmissionError(
            f"admission: path must hold ranks 0 to N-1, each once, N at most {MAX_WORLD_SIZE}"
        )


def path_of(members: Any) -> Path:
    """Read a path from JSON: a list of ``{"worker_id": 0, "children": [[0], [1]]}``.

    Raises AdmissionError if it is something else.
    """
    try:
        levels = [(level["worker_id"], [list(child) for child in level["children"]]) for level in members]
    except (TypeError, KeyError, IndexError):
        raise AdmissionError(
            f"admission: path must be a list of {{worker_id, children}}, got {members!r}"
        ) from None
    numbers = [number for worker_id, children in levels for number in (worker_id, *chain(*children))]
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in numbers):
        raise AdmissionError("admission: path must hold integers only")
    return tuple(Level(worker_id, tuple(map(tuple, children))) for worker_id, children in levels)


def masks(path: Sequence[Level]) -> tuple[list[int], list[int], int]:
    """Return the masks of a path for a worker core.

    Returns the worker ids on the path; the bitmaps of all children, each by level; and the highest level that a
    retransmission of this worker reaches: a complete switch passes on those of its worker 0 only.
    """
    own = [level.worker_id for level in path]
    reach = next((number for number, worker_id in enumerate(own) if worker_id), len(own) - 1)
    return own, [(1 << len(level.children)) - 1 for level in path], reach
