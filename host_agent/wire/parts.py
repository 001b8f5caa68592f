"""What a packet is part of, as the exponent field encodes it (docs/protocol.md, "Parts").

Codecs use ranges that do not overlap, and passes whose chunks have no exponent may say what they are. The switch takes
the maximum of the field whatever it means, and workers that agree about the collective put the same into it.
"""

from typing import Final

PART_BITMAP: Final = 0xFF00  # Which blocks of an array are not zero.
PART_ROWS: Final = 0xFF01  # Which rows of an array a worker has.

BLOCK_EXPONENT: Final = "block exponent"

PARTS: Final = (
    (1, 8191, "number of a PROBE"),
    (15311, 17408, BLOCK_EXPONENT),
    (17409, 50048, "scale of packed lanes"),
    (PART_BITMAP, PART_BITMAP, "bitmap of blocks"),
    (PART_ROWS, PART_ROWS, "bitmap of rows"),
)
"""(least, greatest, meaning) of values of the exponent field beside *all zero* and *non-finite*."""


def part_of(exponent: int) -> str | None:
    """Return what the exponent field of a packet says that it is; None if it does not say."""
    return next((meaning for least, most, meaning in PARTS if least <= exponent <= most), None)
