"""How long the newest collectives of a worker took, for the controller to compare with the other workers'.

A collective ends at all workers at about the same time, so the worker that began it last took the least. No clocks are compared.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

KEPT: Final = 4096
MOST: Final = 256
"""How many are reported at once."""
_MOST_US: Final = 2**32 - 1


@dataclass(frozen=True)
class Sample:
    """Durations in microseconds of collectives `first`, `first + stride`, …, of a communicator that was made in `epoch`."""

    epoch: int
    first: int
    stride: int
    us: tuple[int, ...]


class Durations:
    """The newest durations of one communicator, whose workers all number their collectives alike."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._us = np.zeros(KEPT, np.uint32)
        self._count = 0
        self._taken = 0

    def add(self, duration_ns: int) -> None:
        """Add the duration of the next collective."""
        self._us[self._count % KEPT] = min(duration_ns // 1000, _MOST_US)
        self._count += 1

    def drain(self) -> Sample | None:
        """Return durations since the last call, at most `MOST`; None if there are none.

        Where there are more, those whose numbers are multiples of a power of two: so different workers choose the same.
        """
        end = self._count
        first = max(self._taken, end - KEPT // 2)  # The other half: another thread may be adding.
        self._taken = end
        stride = 1
        while end - first > MOST * stride:
            stride *= 2
        first = -(-first // stride) * stride
        numbers = range(first, end, stride)
        if not numbers:
            return None
        return Sample(self._epoch, first, stride, tuple(int(self._us[number % KEPT]) for number in numbers))
