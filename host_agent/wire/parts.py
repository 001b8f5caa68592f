"""Kinds of content of a packet, as the exponent field encodes them (docs/protocol.md, "Parts").

Codecs use ranges that do not overlap, and passes whose chunks have no exponent may name their content. The switch takes
the maximum of the field in any case, and workers that agree about the collective put the same value into it.
"""

from typing import Final

PART_BITMAP: Final = 0xFF00  # Bitmap of the blocks of an array that are not zero.
PART_ROWS: Final = 0xFF01  # Bitmap of the rows of an array that a worker has.

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
    """Return the content that the exponent field of a packet names; None if it names none."""
    return next((meaning for least, most, meaning in PARTS if least <= exponent <= most), None)
