"""Statistics that tell masked lanes from plain ones."""

from typing import Any, Final

import numpy as np

SECRET: Final = b"a secret that all workers share "
WORST: Final = 5.0  # Standard deviations.


def chi_square(lanes: Any, bits: int) -> float:
    """Return how far the upper byte's distribution is from uniform, in standard deviations."""
    counts = np.bincount(lanes >> (bits - 8) & 0xFF, minlength=256)
    expected = lanes.size / 256
    return float((((counts - expected) ** 2 / expected).sum() - 255) / np.sqrt(2 * 255))


def monobit(lanes: Any, bits: int) -> float:
    """Return the largest deviation of a bit's frequency from a half, in standard deviations (NIST SP 800-22, 2.1)."""
    ones = np.array([(lanes >> bit & 1).sum() for bit in range(bits)])
    return float(np.abs((ones - lanes.size / 2) / np.sqrt(lanes.size / 4)).max())


def correlation(one: Any, other: Any) -> float:
    """Return how far two series are from uncorrelated, in standard deviations."""
    return float(abs(np.corrcoef(one, other)[0, 1]) * np.sqrt(one.size))
