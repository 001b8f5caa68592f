"""Random numbers by counter: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).

A number depends only on the run's seed, its purpose and the count of earlier numbers for the same purpose: events on one
link do not change another link's numbers.
"""

# mypy: disable-error-code="no-any-return,return-value"

from typing import Final

import numpy as np

from netsum_common.compiled import Integer, compiled

LOSS, DUPLICATE, JITTER, STRAGGLE, TO_CHANGE, TRAFFIC = range(6)  # Purposes.

CHANCES: Final = 1 << 32  # Number of values of a random number.

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ROUNDS: Final = 10


def chance_of(probability: float) -> int:
    """Return how many values of a random number have a probability together."""
    return round(probability * CHANCES)


@compiled
def philox(seed: Integer, purpose: Integer, owner: Integer, number: Integer) -> Integer:
    """Return the `number`-th random number, 0 to 2^32 − 1, of a purpose and its owner, such as a link.

    The counter of the generator is (number, owner, purpose) with 64, 32 and 32 bits, its key the seed of 64 bits.
    """
    c0 = np.uint64(number) & _LOW
    c1 = np.uint64(number) >> _HALF
    c2 = np.uint64(owner) & _LOW
    c3 = np.uint64(purpose) & _LOW
    k0 = np.uint64(seed) & _LOW
    k1 = np.uint64(seed) >> _HALF
    for _ in range(_ROUNDS):
        p0 = _M0 * c0
        p1 = _M1 * c2
        c0 = (p1 >> _HALF) ^ c1 ^ k0
        c1 = p1 & _LOW
        c2 = (p0 >> _HALF) ^ c3 ^ k1
        c3 = p0 & _LOW
        k0 = (k0 + _W0) & _LOW
        k1 = (k1 + _W1) & _LOW
    return np.int64(c0)
