"""The parts of a codec."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

import numpy as np

from host_agent.codecs.payload import DECODE, ENCODE, EXPONENT
from host_agent.wire.constants import OP_SUM
from netsum_common.compiled import Routine


def exact(exponent: int, workers: int) -> Fraction:
    """Return the error bound of a codec that loses nothing."""
    return Fraction(0)


@dataclass(frozen=True)
class Codec:
    """How blocks of one type of array become lanes.

    The routines are compiled functions with the decorators `encoder`, `decoder` and `exponent_finder`.

    `reduces`: the pairs of dtype and operation whose all-reduce uses this codec in its first pass. `partial` (dtype,
    optional): of what decoding keeps of each element from one round to the next.
    """

    name: str  # In the table; also part of what tests and benches print.
    # encode, decode: write this worker's block as lanes; read a block of the result. None: packets have headers only.
    encode: Routine | None = None
    decode: Routine | None = None
    # Finds the wire exponent of this worker's block. The block is encoded when the largest of all workers is known.
    exponent: Routine | None = None
    # Returns 0 for a block of nothing but zeros, something else for others; given where blocks of zeros can be left out of
    # the operation. By default the exponent.
    nonzero: Routine | None = None
    # Least and greatest wire exponent beside *all zero* and *non-finite*.
    exponents: tuple[int, int] = (0, 0)
    non_finite: bool = False  # Whether a block's exponent may be *non-finite*.
    switch_op: int = OP_SUM  # `OP_*`: the switch's operation on the lanes.
    reduces: tuple[tuple[str, str], ...] = ()
    # How many lanes an element takes, one after the other: a block of round r is sent when its RESULT of round r - 1 is
    # there.
    rounds: int = 1
    partial: type[np.generic] | None = None
    per_lane: int = 1  # Elements in a lane.
    # Fields of the payload's record that the routines read, and their values.
    settings: Mapping[str, int] = field(default_factory=dict)
    # Given the wire exponent of the block over all workers and their number, returns by how much an element of the sum may
    # be off, before it is rounded to its type.
    error_bound: Callable[[int, int], Fraction] = exact

    def __post_init__(self) -> None:
        if self.nonzero is None:
            object.__setattr__(self, "nonzero", self.exponent)

    def load(self) -> None:
        """Compile the routines, or load them from the cache."""
        for each in (self.encode, self.decode, self.exponent, self.nonzero):
            if each is not None:
                assert each.address


def encoder(function: Callable[..., None]) -> Routine:
    """Compile ``(payload, block, lane_count, headroom, lanes)``: write this worker's block into `lanes`."""
    return Routine(function, ENCODE)


def decoder(function: Callable[..., None]) -> Routine:
    """Compile ``(payload, block, lane_count, headroom, lanes)``: read a block of the result.

    `lanes` is empty for a block that all workers sent without (`payload.block_has_lanes`).
    """
    return Routine(function, DECODE)


def exponent_finder(function: Callable[..., Any]) -> Routine:
    """Compile ``(payload, block, lane_count)``, which returns the wire exponent of this worker's block."""
    return Routine(function, EXPONENT)


NOTHING: Final = Codec("nothing")  # Header-only packets, for barriers and empty arrays.
