"""Reductions over the workers that are ready first: a quorum of them, the same at every worker.

A quorum chunk, a chunk that the job's quorum of contributions completes, settles whose arrays are reduced. All workers learn
the same set from its RESULT. Then follows an ordinary all-reduce, in which those that are not in the set take part with what
is neutral to the operation. So every data chunk has a contribution of every worker, and only the quorum chunk does without
those that are late.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from host_agent.codecs.codec import NOTHING
from host_agent.collectives.allreduce import AllReduceRequest
from host_agent.collectives.collective import Array, Collective, Op, Passes, check_choice
from host_agent.errors import MisuseError
from host_agent.protocol.passes import Pass
from host_agent.statistics import Statistics
from host_agent.wire import Admission, describe_dtype, fingerprint
from host_agent.wire.constants import OP_SUM

QUORUM_OPS = ("sum", "mean", "min", "max", "bor")


@dataclass(frozen=True)
class Reduced:
    """Result of a round, the same at every worker."""

    value: Array  # The reduction over the workers in `ranks`.
    ranks: tuple[int, ...]  # The contributors, ascending: as many as the job's quorum.

    @property
    def added(self) -> int:
        """How many arrays are in it."""
        return len(self.ranks)


class Offer:
    """A worker's array for a round, which may come after the round has begun."""

    def __init__(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.array: Array | None = None
        self.decided = False  # Whether it is settled whose arrays are reduced.

    @property
    def made(self) -> bool:
        """Whether the array is there."""
        return self.array is not None

    def make(self, array: npt.ArrayLike) -> None:
        """Hand in the array, which may not be changed until the round has ended.

        Raises MisuseError if it is another shape or type than was said, or there was one before.
        """
        values = np.asarray(array)
        if self.made:
            raise MisuseError("this round already has this worker's array")
        if values.shape != self.shape or values.dtype != self.dtype:
            raise MisuseError(
                f"the round is one of {self.shape} {self.dtype}, and the array is {values.shape} {values.dtype}"
            )
        self.array = values


def neutral(shape: tuple[int, ...], dtype: np.dtype[Any], op: str) -> Array:
    """Return an array that changes no result of an operation."""
    if op not in ("min", "max"):
        return np.zeros(shape, dtype)
    if dtype.kind == "f":
        return np.full(shape, np.inf if op == "min" else -np.inf, dtype)
    limits = np.iinfo(dtype)
    return np.full(shape, limits.max if op == "min" else limits.min, dtype)


@dataclass(frozen=True)
class RoundRequest:
    """The reduction over the workers whose offers complete the quorum."""

    offer: Offer
    op: Op

    def plan(self, admission: Admission, sequence: int) -> Collective[Reduced]:
        """Plan the round; see `Request.plan`. Raises MisuseError if the job has no quorum."""
        offer, op = self.offer, self.op
        if not admission.quorum:
            raise MisuseError(
                "the job has no quorum: have it created with one (netsum job create --quorum), or call allreduce"
            )
        check_choice("op", op, QUORUM_OPS)
        count = int(np.prod(offer.shape, dtype=np.int64))
        what = f"round number {sequence} ({op} of {count} {offer.dtype} of {admission.quorum} workers)"
        mark = fingerprint(
            kind="roll call", op=op, dtype=describe_dtype(offer.dtype), count=count, sequence=sequence
        )
        quorum_chunk = Pass(NOTHING, OP_SUM, mark, offered=offer.made)

        def reduction(values: Array) -> Collective[Array]:
            return AllReduceRequest(values, op, divisor=admission.quorum).plan(admission, sequence)

        reduction(np.zeros(0, offer.dtype))  # for its checks of type and operation
        planned: list[Collective[Array]] = []

        def passes() -> Passes:
            yield quorum_chunk
            while not quorum_chunk.done:
                yield None
            offer.decided = True
            mine = quorum_chunk.added >> admission.worker_id & 1
            values = offer.array if mine else neutral(offer.shape, offer.dtype, op)
            assert values is not None, "the switch added a contribution that this worker has not sent"
            planned.append(reduction(values))
            yield from planned[0].passes

        def finish(statistics: Statistics) -> Reduced:
            value = planned[0].finish(statistics)
            ranks = tuple(rank for rank in range(admission.world_size) if quorum_chunk.added >> rank & 1)
            return Reduced(value, ranks)

        return Collective(what, count, passes(), finish, may_offer=lambda: offer.made)
