"""Reductions over all workers, element by element."""

from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from host_agent.arrays import flat_source, flat_target
from host_agent.codecs.accumulator import Accumulator
from host_agent.codecs.codec import NOTHING
from host_agent.codecs.exponent import INT32_BITS
from host_agent.codecs.halves import INT32, INT32_HIGH
from host_agent.codecs.packed import BITS, Bits, packed_codec
from host_agent.codecs.table import CODEC_OF
from host_agent.collectives.collective import OPS, Array, Collective, OnOverflow, Op, Passes, check_choice
from host_agent.collectives.int64 import AllReduceInt64Request
from host_agent.collectives.sparse import SPARSE, BlockSparse, Sparse, is_sparse
from host_agent.errors import MisuseError, SumOverflowError, UnsupportedTypeError
from host_agent.protocol.passes import ALL_BLOCKS, NO_BLOCKS, Pass
from host_agent.statistics import Statistics
from host_agent.wire import Admission, describe_dtype, fingerprint
from host_agent.wire.constants import EXPONENT_BIAS, OP_SUM

Rounding = Literal["nearest", "stochastic"]
ROUNDINGS: Final[tuple[Rounding, ...]] = ("nearest", "stochastic")

_PHASE_HIGH: Final = 255
_DTYPES: Final = ("float32", "float64", "float16", "int32")
_PACKED_DTYPES: Final = ("float32", "float16")


@dataclass(frozen=True, eq=False)
class AllReduceRequest:
    """A reduction over all workers; most fields are the arguments of `Communicator.allreduce`."""

    array: npt.ArrayLike | Accumulator
    op: Op = "sum"
    out: Array | None = None
    on_overflow: OnOverflow = "raise"
    sparse: Sparse = "auto"
    bits: Bits = "full"
    rounding: Rounding = "nearest"
    seed: int = 0
    divisor: int = 0  # Divisor of a mean; 0: the number of workers.
    root: int | None = None  # The only rank that needs the result; None: all ranks do.
    reserve: int = 0  # Bits of a lane beside those that sums of int32 need.

    @property
    def approximation(self) -> tuple[object, ...]:
        """The fields that an exact sum does not take: `on_overflow`, `sparse`, `bits`, `rounding` and `seed`."""
        return self.on_overflow, self.sparse, self.bits, self.rounding, self.seed

    def plan(self, admission: Admission, sequence: int) -> Collective[Array]:
        """Plan the reduction; see `Request.plan`."""
        if isinstance(self.array, Accumulator):
            raise MisuseError("an Accumulator requires exact=True")
        values = np.asarray(self.array)
        dtype = values.dtype.newbyteorder("=")
        _check_choices(self, dtype)
        if dtype == np.int64:
            wide = AllReduceInt64Request(values, self.op, self.out, self.on_overflow, self.sparse)
            return wide.plan(admission, sequence)
        _check_type(dtype, self.op)
        sums_integers = dtype == np.int32 and self.op == "sum"
        # The pass over the high halves of int32 sums reads the source again.
        target, deliver = flat_target(values, dtype, self.out, may_be_source=not sums_integers)
        source = flat_source(values, dtype)
        if dtype == np.float16:
            # The wider copy is both source and target; the result is rounded to float16 once, on delivery.
            source = target = source.astype(np.float32)
            deliver = deliver.after_rounding(target)

        what = f"allreduce number {sequence} ({self.op} of {values.size} {dtype})"
        whole = _whole_pass(self, admission, sequence, source, target)
        leaves_out = is_sparse(self.sparse, whole, self.op, admission.lanes)
        mark = partial(
            fingerprint,
            kind="sparse allreduce" if leaves_out else "allreduce",
            op=self.op,
            dtype=describe_dtype(dtype),
            count=values.size,
            on_overflow=self.on_overflow,
            sequence=sequence,
            # A worker that packs otherwise, or rounds otherwise, would contribute other numbers.
            bits=self.bits,
            stochastic=_is_stochastic(self),
            root=-1 if self.root is None else self.root,
        )
        blocks = BlockSparse(admission, whole, lambda phase: mark(phase=phase)) if leaves_out else None
        whole.fingerprint = mark(phase=0)
        passes: Passes = blocks.passes() if blocks else iter((whole,))
        if whole.codec is INT32:
            data = blocks.data if blocks else [whole]
            passes = chain(
                passes, _high_halves(admission, self.reserve, data, mark(phase=_PHASE_HIGH), source, target)
            )

        def finish(statistics: Statistics) -> Array:
            if blocks is not None:
                blocks.count(statistics)
            if statistics.overflowed and self.on_overflow == "raise":
                raise SumOverflowError(
                    f"{what}: {statistics.overflowed} sums do not fit int32. Convert to float, or pass on_overflow='saturate'.",
                    statistics.overflowed,
                )
            return deliver()

        return Collective(what, values.size, passes, finish)


def _is_stochastic(request: AllReduceRequest) -> bool:
    return request.bits != "full" and request.rounding == "stochastic"


def _whole_pass(
    request: AllReduceRequest, admission: Admission, sequence: int, source: Array, target: Array
) -> Pass:
    """Return the pass over all blocks, without its fingerprint."""
    op, bits, root = request.op, request.bits, request.root
    codec = CODEC_OF[target.dtype.name, op] if bits == "full" else packed_codec(bits, admission.world_size)
    # Sums that do not fit int32 are an error at all workers, and codecs of several rounds need the result of the first.
    is_header_only = root not in (None, admission.rank) and codec is not INT32 and codec.rounds == 1
    seed = _seed_of(request.seed, sequence, admission.rank) if _is_stochastic(request) else None
    return Pass(
        codec if target.size else NOTHING,
        codec.switch_op,
        0,
        source,
        target,
        flip=-1 if op == "min" else 0,
        divisor=request.divisor or admission.world_size if op == "mean" else 1,
        seed=seed,
        header_only=ALL_BLOCKS if is_header_only else NO_BLOCKS,
    )


def _high_halves(
    admission: Admission, reserve: int, data: list[Pass], mark: int, source: Array, target: Array
) -> Passes:
    """Yield the pass over the high halves of the blocks whose int32 sums may not fit, when `data` has been reduced."""
    while not all(work.done for work in data):
        yield None
    # Read the limit as in codecs.exponent.may_overflow; every worker sees the same exponents.
    headroom = (admission.world_size - 1).bit_length() + reserve
    limit = EXPONENT_BIAS + INT32_BITS - headroom
    high = [_numbers_of(work)[work.exponents > limit] for work in data]
    listed = np.concatenate(high) if high else np.empty(0, np.int64)
    if listed.size:
        yield Pass(INT32_HIGH, OP_SUM, mark, source, target, blocks=listed)


def _numbers_of(work: Pass) -> npt.NDArray[np.int64]:
    """Return which blocks of the array those of a pass are."""
    return np.arange(work.exponents.size) if work.blocks is None else work.blocks


def _seed_of(seed: int, sequence: int, worker_id: int) -> int:
    """Return a seed of this worker's own rounding in this collective: errors that were alike would add up."""
    return int(np.random.SeedSequence((seed, sequence, worker_id)).generate_state(1, np.uint64)[0] >> 1)


def _check_choices(request: AllReduceRequest, dtype: np.dtype[Any]) -> None:
    check_choice("on_overflow", request.on_overflow, ("raise", "saturate"))
    check_choice("sparse", request.sparse, SPARSE)
    check_choice("bits", request.bits, BITS)
    check_choice("rounding", request.rounding, ROUNDINGS)
    if request.bits != "full" and (dtype.name not in _PACKED_DTYPES or request.op not in ("sum", "mean")):
        raise UnsupportedTypeError(
            f"bits={request.bits} takes the sum and mean of {' and '.join(_PACKED_DTYPES)}, not {request.op!r} of {dtype}"
        )


def _check_type(dtype: np.dtype[Any], op: str) -> None:
    if op not in OPS:
        raise MisuseError(f"op must be one of {', '.join(OPS)}, got {op!r}")
    if dtype.name not in _DTYPES:
        raise UnsupportedTypeError(
            f"allreduce takes {', '.join(_DTYPES)} and int64, not {dtype}: convert the array first, for instance with "
            ".astype(np.float32)"
        )
    if op == "bor" and dtype != np.int32:
        raise UnsupportedTypeError(f"op 'bor' takes int32 and int64, not {dtype}: view the array as int32")
    if op == "mean" and dtype == np.int32:
        raise UnsupportedTypeError(
            "op 'mean' takes floats, not int32: convert the array, or divide the sum yourself"
        )
