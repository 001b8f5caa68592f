"""Reductions over all workers, element by element."""

from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from host_agent.arrays import flat_source, flat_target
from host_agent.codecs.codec import NOTHING
from host_agent.codecs.exponent import INT32_BITS
from host_agent.codecs.halves import INT32, INT32_HIGH
from host_agent.codecs.packed import BITS, Bits, packed_codec
from host_agent.codecs.table import CODEC_OF
from host_agent.collectives.collective import OPS, Array, Collective, OnOverflow, Op, Passes, check_choice
from host_agent.collectives.int64 import plan_allreduce_int64
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


def plan_allreduce(
    admission: Admission,
    sequence: int,
    array: npt.ArrayLike,
    op: Op,
    out: Array | None,
    on_overflow: OnOverflow,
    sparse: Sparse = "auto",
    bits: Bits = "full",
    rounding: Rounding = "nearest",
    seed: int = 0,
    divisor: int = 0,
    root: int | None = None,
) -> Collective:
    """Plan the reduction of `array` over all workers; the arguments are those of `Communicator.allreduce`.

    `divisor` is what a mean divides by; 0: by the number of workers. `root` is the rank that needs the result; None: all do.
    """
    values = np.asarray(array)
    dtype = values.dtype.newbyteorder("=")
    name = dtype.name  # NumPy computes it each time.
    check_choice("on_overflow", on_overflow, ("raise", "saturate"))
    check_choice("sparse", sparse, SPARSE)
    check_choice("bits", bits, BITS)
    check_choice("rounding", rounding, ROUNDINGS)
    if bits != "full" and (name not in _PACKED_DTYPES or op not in ("sum", "mean")):
        raise UnsupportedTypeError(
            f"bits={bits} takes the sum and mean of {' and '.join(_PACKED_DTYPES)}, not {op!r} of {dtype}"
        )
    if dtype == np.int64:
        return plan_allreduce_int64(admission, sequence, values, op, out, on_overflow, sparse)
    _check(dtype, name, op)
    # The pass over the high halves of int32 sums reads the source again.
    target, deliver = flat_target(values, dtype, out, may_be_source=not (dtype == np.int32 and op == "sum"))
    source = flat_source(values, dtype)
    working = source
    if dtype == np.float16:
        # The wider copy is both source and target; the result is rounded to float16 once, on delivery.
        working = source.astype(np.float32)
        target, deliver = working, deliver.after_rounding(working)
        name = "float32"

    what = f"allreduce number {sequence} ({op} of {values.size} {dtype})"
    codec = CODEC_OF[name, op] if bits == "full" else packed_codec(bits, admission.world_size)
    stochastic = bits != "full" and rounding == "stochastic"
    # Sums that do not fit int32 are an error at all workers, and codecs of several rounds need what the first came to.
    spares = root not in (None, admission.rank) and codec is not INT32 and codec.rounds == 1
    whole = Pass(
        codec if values.size else NOTHING,
        codec.switch_op,
        0,
        working,
        target,
        flip=-1 if op == "min" else 0,
        divisor=divisor or admission.world_size if op == "mean" else 1,
        seed=_seed_of(seed, sequence, admission.rank) if stochastic else None,
        spare=ALL_BLOCKS if spares else NO_BLOCKS,
    )
    left_out = is_sparse(sparse, whole, op, admission.lanes)

    def mark(phase: int) -> int:
        return fingerprint(
            kind="sparse allreduce" if left_out else "allreduce",
            op=op,
            dtype=describe_dtype(dtype),
            count=values.size,
            on_overflow=on_overflow,
            sequence=sequence,
            # A worker that packs otherwise, or rounds otherwise, would contribute other numbers.
            bits=bits,
            stochastic=stochastic,
            phase=phase,
            root=-1 if root is None else root,
        )

    blocks = BlockSparse(admission, whole, mark) if left_out else None
    whole.fingerprint = mark(0)
    passes: Passes = blocks.passes() if blocks else iter((whole,))

    def with_high_halves() -> Passes:
        yield from passes
        data = blocks.data if blocks else [whole]
        while not all(work.done for work in data):
            yield None
        # Read the limit as in codecs.exponent.may_overflow; every worker sees the same exponents.
        headroom = (admission.world_size - 1).bit_length()
        limit = EXPONENT_BIAS + INT32_BITS - headroom
        high = [_numbers_of(work)[work.exponents > limit] for work in data]
        listed = np.concatenate(high) if high else np.empty(0, np.int64)
        if listed.size:
            yield Pass(INT32_HIGH, OP_SUM, mark(_PHASE_HIGH), source, target, blocks=listed)

    def finish(statistics: Statistics) -> Array:
        if blocks is not None:
            blocks.count(statistics)
        if statistics.overflowed and on_overflow == "raise":
            raise SumOverflowError(
                f"{what}: {statistics.overflowed} sums do not fit int32. Convert to float, or pass on_overflow='saturate'.",
                statistics.overflowed,
            )
        return deliver()

    return Collective(what, values.size, with_high_halves() if whole.codec is INT32 else passes, finish)


def _numbers_of(work: Pass) -> npt.NDArray[np.int64]:
    """Return which blocks of the array those of a pass are."""
    return np.arange(work.exponents.size) if work.blocks is None else work.blocks


def _seed_of(seed: int, sequence: int, worker_id: int) -> int:
    """Return a seed of this worker's own rounding in this collective: errors that were alike would add up."""
    return int(np.random.SeedSequence((seed, sequence, worker_id)).generate_state(1, np.uint64)[0] >> 1)


def _check(dtype: np.dtype[Any], name: str, op: str) -> None:
    if op not in OPS:
        raise MisuseError(f"op must be one of {', '.join(OPS)}, got {op!r}")
    if name not in _DTYPES:
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
