"""Collectives in which each worker has a part of an array: reduce-scatter and all-gather.

A reduce-scatter is a reduction of each part of which its worker alone needs the lanes. An all-gather is one pass of bitwise or
over the array: each worker contributes its part and needs the parts of the others. For which parts come back to which worker, see
docs/protocol.md, "Header-only RESULTs".
"""

from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from host_agent.arrays import check_out, check_plain, flat_source
from host_agent.codecs.codec import NOTHING
from host_agent.codecs.raw import WORDS
from host_agent.collectives.allreduce import AllReduceRequest
from host_agent.collectives.collective import Array, Collective, OnOverflow, Op, Passes
from host_agent.collectives.sparse import Sparse
from host_agent.errors import ArrayError, MisuseError
from host_agent.protocol.passes import NO_BLOCKS, Pass
from host_agent.statistics import Statistics
from host_agent.wire import Admission, describe_dtype, fingerprint
from host_agent.wire.constants import LANE_BYTES, OP_BOR


def refuse_quorum(admission: Admission, what: str) -> None:
    """Raise MisuseError in a job with a quorum."""
    if admission.quorum:
        raise MisuseError(f"{what} is unavailable in quorum jobs: all workers need all results")


@dataclass(frozen=True, eq=False)
class ReduceScatterRequest:
    """A reduction of which each worker gets its part; the fields are the arguments of `Communicator.reduce_scatter`."""

    array: npt.ArrayLike
    op: Op = "sum"
    out: Array | None = None
    on_overflow: OnOverflow = "raise"
    sparse: Sparse = "auto"

    def plan(self, admission: Admission, sequence: int) -> Collective[Array]:
        """Plan the reduction; see `Request.plan`."""
        refuse_quorum(admission, "reduce_scatter")
        values, ranks = np.asarray(self.array), admission.world_size
        if values.ndim == 0 or values.shape[0] % ranks:
            raise ArrayError(
                f"reduce_scatter: the first dimension must be a multiple of {ranks}, the number of workers, not of shape "
                f"{list(values.shape)}"
            )
        parts = [
            AllReduceRequest(
                part,
                self.op,
                self.out if rank == admission.rank else None,
                self.on_overflow,
                self.sparse,
                root=rank,
            ).plan(admission, sequence)
            for rank, part in enumerate(np.split(values, ranks))
        ]

        def finish(statistics: Statistics) -> Array:
            results: list[Array] = [part.finish(statistics) for part in parts]
            return results[admission.rank]

        what = f"reduce_scatter number {sequence} ({self.op} of {values.size} {values.dtype})"
        passes: Passes = chain.from_iterable(part.passes for part in parts)
        return Collective(what, values.size, passes, finish)


@dataclass(frozen=True, eq=False)
class AllGatherRequest:
    """The distribution of all workers' arrays; the fields are the arguments of `Communicator.all_gather`."""

    array: npt.ArrayLike
    out: Array | None = None

    def plan(self, admission: Admission, sequence: int) -> Collective[Array]:
        """Plan the distribution; see `Request.plan`."""
        refuse_quorum(admission, "all_gather")
        values, ranks, rank = np.asarray(self.array), admission.world_size, admission.rank
        check_plain(values, "all_gather")
        dtype = values.dtype.newbyteorder("=")
        shape = (ranks, *values.shape)
        if self.out is not None:
            check_out(self.out, shape, dtype)
        result = np.empty(shape, dtype) if self.out is None else self.out
        mark = fingerprint(
            kind="all_gather", dtype=describe_dtype(dtype), count=values.size, sequence=sequence
        )
        what = f"all_gather number {sequence} ({values.size} {dtype} of each worker)"
        if values.nbytes == 0:
            return Collective(what, 0, iter((Pass(NOTHING, OP_BOR, mark),)), lambda statistics: result)
        part_words = -(-values.nbytes // LANE_BYTES)
        in_place = values.nbytes % LANE_BYTES == 0 and result.flags.c_contiguous and result.flags.aligned
        words = result.reshape(-1).view(np.uint32) if in_place else np.zeros(ranks * part_words, np.uint32)

        only = gather_pass(admission, mark, words, words)
        begin, end = rank * part_words, (rank + 1) * part_words
        source = flat_source(values, dtype).view(np.uint8)
        words[begin:end].view(np.uint8)[: source.size] = source
        words[only.data[0] * admission.lanes : begin] = 0
        words[end : only.data[1] * admission.lanes] = 0

        def finish(statistics: Statistics) -> Array:
            if not in_place:
                parts = words.view(np.uint8).reshape(ranks, -1)[:, : values.nbytes]
                result[...] = np.ascontiguousarray(parts).view(dtype).reshape(shape)
            return result

        return Collective(what, ranks * values.size, iter((only,)), finish, disjoint=True)


def gather_pass(admission: Admission, mark: int, source: Array, target: Array) -> Pass:
    """Return the pass of an all-gather of words, of which each worker has as many, from `source` to `target`.

    The blocks that this worker has a part of are contributed whole: where they hold ends of its neighbours' parts, `source` has
    zeros, or what those contribute.
    """
    block, ranks = admission.lanes, admission.world_size
    begin, end = (source.size // ranks * rank for rank in (admission.rank, admission.rank + 1))
    data = begin // block, -(-end // block)
    whole = -(-begin // block), data[1] if end == source.size else end // block
    # Block after block of every worker in turn: all uplinks and all downlinks are busy at any time.
    blocks = -(-source.size // block)
    turns = np.arange(-(-blocks // ranks) * ranks).reshape(ranks, -1).T.reshape(-1)
    return Pass(
        *(WORDS, OP_BOR, mark, source, target),
        blocks=turns[turns < blocks],
        header_only=whole if whole[0] < whole[1] else NO_BLOCKS,
        data=data,
    )
