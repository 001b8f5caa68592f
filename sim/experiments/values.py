"""What workers reduce, and what must come out, computed from the definition with NumPy alone.

Nothing of the code under test is used: exponents come from frexp, scaling is ldexp, sums are int64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["contribution", "expected_sum"]

_HEADROOM_BITS = 30
Floats = npt.NDArray[np.float32]


def contribution(seed: int, job: int, collective: int, worker: int, size: int) -> Floats:
    """Return what a worker contributes: values of blocks of different magnitudes, the same in every run.

    Parameters
    ----------
    size : int
        Elements.
    """
    generator = np.random.Generator(np.random.Philox(key=[seed, job << 32 | collective << 8 | worker]))
    bits = generator.integers(-(1 << 23), 1 << 23, size, dtype=np.int32)
    magnitudes = generator.integers(-12, 13, size // 64 + 1).repeat(64)[:size]
    return np.ldexp(bits.astype(np.float32), magnitudes - 23).astype(np.float32)


def expected_sum(parts: list[Floats], lanes: int) -> Floats:
    """Return the sum that a job must get: in blocks of `lanes`, with ceil(log2 n) bits of headroom below 2^30."""
    size, workers = parts[0].size, len(parts)
    blocks = -(-size // lanes)
    largest = np.zeros(blocks, np.float64)
    for part in parts:
        np.maximum(largest, np.abs(_blocks(part, blocks, lanes)).max(axis=1), out=largest)
    headroom = int(np.ceil(np.log2(workers)))
    shifts = (_HEADROOM_BITS - headroom - np.frexp(largest)[1])[:, None]
    total = np.zeros((blocks, lanes), np.int64)
    for part in parts:
        total += np.rint(np.ldexp(_blocks(part, blocks, lanes), shifts)).astype(np.int64)
    sums: Floats = np.ldexp(total.astype(np.float64), -shifts).astype(np.float32)
    return sums.reshape(-1)[:size]


def _blocks(part: Floats, blocks: int, lanes: int) -> npt.NDArray[Any]:
    padded = np.zeros(blocks * lanes, np.float64)
    padded[: part.size] = part
    return padded.reshape(blocks, lanes)
