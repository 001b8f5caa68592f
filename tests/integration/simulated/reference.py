"""Expected results of collectives, bit for bit, computed from the definition with NumPy's 64-bit integers.

Nothing of the code under test is used: exponents come from frexp, scaling is ldexp, sums are int64.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def expected(op: str, parts: list[Array], lanes: int) -> Array:
    """The result of reducing `parts`, one array per worker."""
    dtype = parts[0].dtype
    flat: npt.NDArray[Any]
    stack = np.stack([part.reshape(-1) for part in parts])
    if op == "bor":
        flat = np.bitwise_or.reduce(stack)
    elif op in ("min", "max"):
        flat = _extreme(op, stack)
    elif dtype == np.int32:
        flat = np.clip(stack.sum(axis=0, dtype=np.int64), -(2**31), 2**31 - 1).astype(np.int32)
    elif dtype == np.float16:
        with np.errstate(over="ignore"):
            flat = _block_sum(stack.astype(np.float32), op, lanes).astype(np.float16)
    else:
        flat = _block_sum(stack, op, lanes)
    return flat.reshape(parts[0].shape)


def _extreme(op: str, stack: Array) -> Array:
    if stack.dtype == np.int32:
        return (np.min if op == "min" else np.max)(stack, axis=0)  # type: ignore[no-any-return]
    # Order by value, then -0.0 before +0.0; a NaN anywhere wins.
    flat = np.empty(stack.shape[1], stack.dtype)
    for i, column in enumerate(stack.T):
        if np.isnan(column).any():
            flat[i] = np.nan
        else:
            ordered = sorted(column, key=lambda value: (value, not np.signbit(value)))
            flat[i] = ordered[0 if op == "min" else -1]
    return flat


def _block_sum(stack: Array, op: str, lanes: int) -> Array:
    workers, size = stack.shape
    headroom = int(np.ceil(np.log2(workers)))
    flat = np.empty(size, stack.dtype)
    for start in range(0, size, lanes):
        block = stack[:, start : start + lanes].astype(np.float64)
        if not np.isfinite(block).all():
            flat[start : start + lanes] = np.nan
            continue
        largest = np.abs(block).max()
        if largest == 0:
            flat[start : start + lanes] = 0
            continue
        shift = 30 - headroom - int(np.frexp(largest)[1])
        integers = np.rint(np.ldexp(block, shift)).astype(np.int64)
        assert np.abs(integers).max() <= 2 ** (30 - headroom)
        total = integers.sum(axis=0).astype(np.float64)
        if op == "mean":
            total = total / workers
        with np.errstate(over="ignore"):
            flat[start : start + lanes] = np.ldexp(total, -shift).astype(stack.dtype)
    return flat


def packed_sum(parts: list[Array], lanes: int, bits: int) -> Array:
    """The sum of float32 arrays in fields of few bits, rounded to the nearest, from the definition."""
    workers = len(parts)
    levels = 1 if bits == 2 else (2 ** (bits - 1) - 1) // workers
    field_bits = workers.bit_length() + 1 if bits == 2 else bits
    flat: npt.NDArray[Any]
    stack = np.stack([part.reshape(-1) for part in parts])
    flat = np.empty(stack.shape[1], np.float32)
    elements = lanes * (32 // field_bits)
    for start in range(0, flat.size, elements):
        block = stack[:, start : start + elements].astype(np.float64)
        part = flat[start : start + elements]
        if not np.isfinite(block).all():
            part[:] = np.nan
            continue
        largest = np.abs(block).max()
        # Up to a number of 8 significant bits; subnormal bfloat16s are multiples of 2^-133.
        unit = np.ldexp(1.0, max(int(np.frexp(largest)[1]) - 8, -133))
        scale = np.ceil(largest / unit) * unit
        if scale == 0:
            part[:] = 0
            continue
        integers = np.rint(block * (levels / scale)).astype(np.int64)
        assert np.abs(integers.sum(axis=0)).max() < 2 ** (field_bits - 1)
        with np.errstate(over="ignore"):
            part[:] = (integers.sum(axis=0) * (scale / levels)).astype(np.float32)
    return flat


def same_bits(left: Array, right: Array) -> bool:
    """Equal to the bit, but for the payload of NaN."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if left.dtype.kind == "f":
        nan = np.isnan(left)
        if not np.array_equal(nan, np.isnan(right)):
            return False
        left, right = np.where(nan, 0, left), np.where(nan, 0, right)
    return left.tobytes() == right.tobytes()
