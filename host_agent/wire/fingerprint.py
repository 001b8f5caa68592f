"""The 16-bit mark by which workers find out that they do not mean the same collective."""

from __future__ import annotations

import binascii
import struct

_FIELDS = struct.Struct(">BBBBBBQI")


def fingerprint(
    *,
    kind: int,
    op: int,
    dtype_kind: int,
    item_bytes: int,
    count: int,
    sequence: int,
    root: int = 0,
    phase: int = 0,
) -> int:
    """Hash what the workers must agree on into 16 bits.

    CRC-16/CCITT rather than a general hash: it tells apart **all** collectives that differ within one run of 16 bits.
    So two that differ in nothing but the operation, the type, the root, or by less than 65,536 aligned in count or
    sequence number never collide; unrelated ones do with probability 2^-16.

    Parameters
    ----------
    kind, op : int
        Codes of the collective and of its operation, 0…255.
    dtype_kind, item_bytes : int
        NumPy's kind character and item size, 0…255.
    count : int
        Elements in the array.
    sequence : int
        How many collectives came before in this epoch; modulo 2^32.
    root : int
        Whose array is broadcast.
    phase : int
        Which pass over the data, for collectives that take several.
    """
    packed = _FIELDS.pack(kind, op, dtype_kind, item_bytes, root, phase, count, sequence & 0xFFFFFFFF)
    return binascii.crc_hqx(packed, 0xFFFF)
