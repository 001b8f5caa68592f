"""Collectives as the schedule runs them: an iterator of passes and the function that makes their result."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Generic, Literal, Protocol, TypeVar, get_args

import numpy.typing as npt

from host_agent.errors import MisuseError
from host_agent.protocol.passes import Pass
from host_agent.statistics import Statistics
from host_agent.wire import Admission, fingerprint

Op = Literal["sum", "mean", "min", "max", "bor"]
OnOverflow = Literal["raise", "saturate"]
Array = npt.NDArray[Any]

OPS: Final[tuple[Op, ...]] = get_args(Op)


T = TypeVar("T")


class Busy(Enum):
    """Yielded by an iterator of passes in the middle of a computation, so that its driver can poll the network."""

    BUSY = "busy"


BUSY: Final = Busy.BUSY

Passes = Iterator[Pass | Busy | None]


@dataclass
class Collective(Generic[T]):
    """One call under way, with a result of type `T`."""

    what: str  # For messages: "allreduce number 7 (sum of 100 float32)".
    elements: int  # For the statistics.
    # The passes, in the order in which all workers begin them. None means that the next one depends on results that are not
    # there yet: the iterator is asked again when a pass of the collective is done (`Pass.done`). BUSY means that there is
    # more to compute: it is asked again at once, or after a look at the network. Until the iterator is exhausted the next
    # collective waits, as all workers number their chunks in the same order.
    passes: Passes
    finish: Callable[[Statistics], T]  # Returns the result when all passes are done, or raises.
    future: Future[T] = field(default_factory=Future)  # Receives the result.
    label_mark: int = 0  # Becomes part of the fingerprint of every pass.
    # Whether this worker's contribution to its quorum chunk is there, if it has one.
    may_offer: Callable[[], bool] = lambda: False
    disjoint: bool = False  # Whether each lane of the result comes from one worker alone.

    def agree_on(self, label: str, sequence: int) -> None:
        """Add the label to the terms on which the workers must agree, and make it the collective's name."""
        self.label_mark ^= fingerprint(label=label)
        self.what = f"{label}, number {sequence}"


class Request(Protocol[T]):
    """The arguments of one call as a frozen value; a communicator gives it its place in the order and plans it."""

    def plan(self, admission: Admission, sequence: int) -> Collective[T]:
        """Return the collective as the one with number `sequence` in the epoch of `admission`.

        Raises MisuseError, ArrayError or UnsupportedTypeError if the arguments do not fit together.
        """


def check_root(root: object, workers: int, collective: str) -> None:
    """Raise MisuseError if `root` is not the id of one of the workers."""
    if not isinstance(root, int) or not 0 <= root < workers:
        raise MisuseError(f"{collective}: root must be a worker id, 0…{workers - 1}, got {root!r}")


def check_choice(name: str, choice: object, choices: tuple[object, ...]) -> None:
    """Refuse an unknown value of an argument. Raises MisuseError if `choice` is none of `choices`."""
    if choice not in choices:
        expected = (
            " or ".join(map(repr, choices))
            if len(choices) == 2
            else f"one of {', '.join(map(repr, choices))}"
        )
        raise MisuseError(f"{name} must be {expected}, got {choice!r}")
