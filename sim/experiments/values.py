"""Contributions of workers and expected results, computed from the definition with NumPy alone.

Nothing of the code under test is used: exponents come from frexp, scales are powers of two, sums are of whole numbers.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

_HEADROOM_BITS = 30
_WINDOW_STEP = 67  # Elements between the windows of two workers: no two see the same block.
_FIRST = 1 << 14  # Elements of a sum that are computed when its first block is needed.
_AT_A_TIME = 1 << 16  # Elements whose sums are computed together, so that they stay in the cache.
_FLOAT32_POWERS: Final = 126  # Powers of two with smaller exponents are normal numbers of float32.
Floats = npt.NDArray[np.float32]


def contributions(
    seeds: tuple[int, int, int],
    workers: int,
    size: int,
    density: float = 1.0,
    lanes: int = 64,
    *,
    common: bool = False,
) -> list[Floats]:
    """Return each worker's contribution: blocks of values of different magnitudes, the same in every run.

    Contributions are windows at different offsets of one array, so a thousand workers need little more memory than one.

    `seeds`: of the run, and the numbers of job and collective. `density`: share of the blocks of `lanes` elements that are not
    zero, at random at each worker, which then has an array of its own. `common`: at random, but the same at all of them.
    """
    generator = np.random.Generator(np.random.Philox(key=[seeds[0], seeds[1] << 32 | seeds[2]]))
    whole = size + _WINDOW_STEP * (workers - 1)
    bits = generator.integers(-(1 << 23), 1 << 23, whole, dtype=np.int32)
    magnitudes = generator.integers(-12, 13, whole // 64 + 1)
    values = bits.view(np.float32)  # In the same memory, a part after the other.
    for at in range(0, whole, _AT_A_TIME):
        part = slice(at, at + _AT_A_TIME)
        powers = magnitudes[at // 64 : (at + _AT_A_TIME) // 64].repeat(64)[: whole - at] - 23
        values[part] = np.ldexp(bits[part].astype(np.float32), powers)
    values.flags.writeable = False
    windows = [values[first : first + size] for first in range(0, _WINDOW_STEP * workers, _WINDOW_STEP)]
    if density == 1:
        return windows
    blocks = -(-size // lanes)
    drawn = [generator.random(blocks) < density for _ in (windows[:1] if common else windows)]
    return [
        np.where(drawn[0 if common else at].repeat(lanes)[:size], window, np.float32(0))
        for at, window in enumerate(windows)
    ]


class ExpectedSum:
    """The sum that a job must get, computed when it is needed: what fast-forward leaves out is not compared."""

    def __init__(self, parts: list[Floats], lanes: int) -> None:
        self._parts, self._lanes, self._done = parts, lanes, 0
        self.values: Floats = np.empty(parts[0].size, np.float32)

    def compute(self, elements: int) -> int:
        """Compute at least this many elements, from the first on, and half as many again as before; returns how many it has."""
        blocks = -(-max(elements, self._done * 3 // 2, _FIRST) // self._lanes)
        last = min(blocks * self._lanes, self.values.size)
        parts = [part[self._done : last] for part in self._parts]
        self.values[self._done : last] = expected_sum(parts, self._lanes)
        self._done = last
        return last


def expected_sum(parts: list[Floats], lanes: int, workers: int = 0) -> Floats:
    """Return the sum that a job must get: in blocks of `lanes`, with ceil(log2 n) bits of headroom below 2^30.

    `workers` is n; 0: as many as there are parts.
    """
    step = max(_AT_A_TIME // lanes, 1) * lanes
    size = parts[0].size
    headroom = int(np.ceil(np.log2(workers or len(parts))))
    sums = [_sum_of([part[at : at + step] for part in parts], lanes, headroom) for at in range(0, size, step)]
    return np.concatenate(sums) if sums else np.zeros(0, np.float32)


def _sum_of(parts: list[Floats], lanes: int, headroom: int) -> Floats:
    size = parts[0].size
    blocks = -(-size // lanes)
    largest = np.zeros((blocks, lanes), np.float32)
    magnitude = np.empty((blocks, lanes), np.float32)
    for part in parts:
        np.abs(_blocks(part, blocks, lanes), out=magnitude)
        np.maximum(largest, magnitude, out=largest)
    shifts = (_HEADROOM_BITS - headroom - np.frexp(largest.max(axis=1))[1])[:, None]
    # A power of two: the product with it is exact, or so small that it is rounded to 0 anyway.
    precision = np.float32 if np.abs(shifts).max(initial=0) < _FLOAT32_POWERS else np.float64
    scales = np.ldexp(1.0, shifts).astype(precision)
    scaled = np.empty((blocks, lanes), precision)
    total = np.zeros((blocks, lanes), np.float64)
    for part in parts:
        np.multiply(_blocks(part, blocks, lanes), scales, out=scaled)
        np.rint(scaled, out=scaled)
        total += scaled  # Whole numbers below 2^53: exact, too.
    sums: Floats = np.ldexp(total, -shifts).astype(np.float32)
    return sums.reshape(-1)[:size]


def _blocks(part: Floats, blocks: int, lanes: int) -> Floats:
    if part.size == blocks * lanes:
        return part.reshape(blocks, lanes)
    padded = np.zeros(blocks * lanes, np.float32)
    padded[: part.size] = part
    return padded.reshape(blocks, lanes)
