"""Block floating point: a block of floats becomes integers that share one exponent.

With E the exponent of the largest block of all n workers and h = ceil(log2 n), each worker sends q = rint(x * 2^(30 -
h - E)). As |x| < 2^E, |q| <= 2^(30 - h), so the sum of n stays within 2^30 and the switch's adder never saturates.
Each q is off by at most 1/2, so a sum is off by at most n/2 * 2^(E + h - 30), and by the rounding of the result to
its own type.

Scaling by a power of two is exact, so the only rounding is the one that is wanted. Where the power itself is beyond
float32, the block goes through float64; float64 is scaled in two steps, as 2^1103 and 2^-1103 are needed beside its
subnormals.
"""

import math
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from host_agent.codecs.codec import Codec, decoder, encoder, exponent_finder
from host_agent.codecs.exponent import float32_exponent, float64_exponent
from host_agent.codecs.payload import known_exponent, source_of, target_of
from host_agent.wire.constants import EXPONENT_BIAS, EXPONENT_NON_FINITE
from host_agent.wire.header import swap
from netsum_common.compiled import Integer, Record, Words, compiled, compiled_inline

SUM_BITS: Final = 30  # A sum of quantized values is within ±2^30.


@compiled_inline
def scale_bits(exponent: int, headroom: int) -> int:
    """Return the power of two by which a block with this wire exponent is multiplied before rounding."""
    return SUM_BITS - headroom - (exponent - EXPONENT_BIAS)


@compiled_inline
def _power(bits: int) -> Any:
    """Return 2^bits as float32, for -126 to 127, without a call of C's ldexp: its 9 ns are a quarter of a block's."""
    return np.int32((bits + 127) << 23).view(np.float32)


@compiled
def quantize(values: npt.NDArray[Any], exponent: int, headroom: int, lanes: Words) -> None:
    """Write a block of float32 or float64 as lanes.

    `values` (float32 or float64 array): at most as many as lanes; the other lanes become 0. `exponent`: wire exponent of all
    workers' blocks, neither *all zero* nor *non-finite*, not below that of `values`. `headroom`: ceil(log2 n). `lanes`
    (uint32 array): filled in network byte order.
    """
    bits = scale_bits(exponent, headroom)
    if values.itemsize == 4 and -126 <= bits <= 127:
        scale = _power(bits)
        for i in range(values.size):
            lanes[i] = swap(np.uint32(np.int32(np.rint(values[i] * scale))))
    else:
        first = math.ldexp(1.0, bits // 2)
        second = math.ldexp(1.0, bits - bits // 2)
        for i in range(values.size):
            lanes[i] = swap(np.uint32(np.int32(np.rint(np.float64(values[i]) * first * second))))
    for i in range(values.size, lanes.size):
        lanes[i] = np.uint32(0)


@compiled
def dequantize(lanes: Words, exponent: int, headroom: int, divisor: int, out: npt.NDArray[Any]) -> None:
    """Read the sum of quantized blocks, divided by `divisor`, into `out`.

    `lanes` (uint32 array): as received; at least as many as `out` has elements. `exponent`, `headroom`: as they were for
    `quantize`. `divisor`: 1 for the sum, the number of workers for the mean. `out` (float32 or float64 array): rounded once
    to this type (a mean over a number of workers that is no power of two, and a subnormal one, twice).
    """
    bits = -scale_bits(exponent, headroom)
    power_of_two = divisor & (divisor - 1) == 0
    if power_of_two:
        while divisor > 1:
            divisor >>= 1
            bits -= 1
    if out.itemsize == 4 and power_of_two and -126 <= bits <= 127:
        # The smallest magnitude but 0 is then a normal number, so the scaling is exact.
        scale = _power(bits)
        for i in range(out.size):
            out[i] = np.float32(np.int32(swap(lanes[i]))) * scale
    else:
        first = math.ldexp(1.0, bits // 2)
        second = math.ldexp(1.0, bits - bits // 2)
        for i in range(out.size):
            out[i] = np.float64(np.int32(swap(lanes[i]))) / divisor * first * second


@compiled
def read_sum(payload: Record, block: int, headroom: int, lanes: Words, out: npt.NDArray[Any]) -> None:
    """Read a block of the result, which comes without lanes if it is zero or not finite."""
    exponent = known_exponent(payload, block)
    if lanes.size != 0:
        dequantize(lanes, exponent, headroom, payload.divisor, out)
    elif exponent == EXPONENT_NON_FINITE:
        payload.non_finite += 1
        out[:] = np.nan
    else:
        out[:] = 0.0


@exponent_finder
def _exponent32(payload: Record, block: int, lane_count: int) -> Integer:
    return float32_exponent(source_of(payload, block, lane_count, np.uint32))


@encoder
def _encode32(payload: Record, block: int, lane_count: int, headroom: int, lanes: Words) -> None:
    values = source_of(payload, block, lane_count, np.float32)
    quantize(values, known_exponent(payload, block), headroom, lanes)


@decoder
def _decode32(payload: Record, block: int, lane_count: int, headroom: int, lanes: Words) -> None:
    read_sum(payload, block, headroom, lanes, target_of(payload, block, lane_count, np.float32))


@exponent_finder
def _exponent64(payload: Record, block: int, lane_count: int) -> Integer:
    return float64_exponent(source_of(payload, block, lane_count, np.uint64))


@encoder
def _encode64(payload: Record, block: int, lane_count: int, headroom: int, lanes: Words) -> None:
    values = source_of(payload, block, lane_count, np.float64)
    quantize(values, known_exponent(payload, block), headroom, lanes)


@decoder
def _decode64(payload: Record, block: int, lane_count: int, headroom: int, lanes: Words) -> None:
    read_sum(payload, block, headroom, lanes, target_of(payload, block, lane_count, np.float64))


def error_bound(exponent: int, workers: int) -> Fraction:
    """Return n/2 * 2^(E + h - 30): by how much an element of a sum may be off before it is rounded to its type."""
    headroom = (workers - 1).bit_length()
    return Fraction(workers, 2) * Fraction(2) ** -(SUM_BITS - headroom - (exponent - EXPONENT_BIAS))


FLOAT32: Final = Codec(
    "float32",
    _encode32,
    _decode32,
    _exponent32,
    exponents=(EXPONENT_BIAS - 148, EXPONENT_BIAS + 128),
    non_finite=True,
    reduces=(("float32", "sum"), ("float32", "mean")),
    error_bound=error_bound,
)
FLOAT64: Final = Codec(
    "float64",
    _encode64,
    _decode64,
    _exponent64,
    exponents=(EXPONENT_BIAS - 1073, EXPONENT_BIAS + 1024),
    non_finite=True,
    reduces=(("float64", "sum"), ("float64", "mean")),
    error_bound=error_bound,
)
