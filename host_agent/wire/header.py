"""The header, as 32-bit words in network byte order.

A datagram (UDP payload) is handled as an array of words: six for the header, then the lanes or the two words of a
STATUS. Where a field lies follows from `HEADER_FIELDS`, which is generated from the protocol's specification.
"""

import sys
from typing import Final, NamedTuple

import numpy as np
from numba import carray

from host_agent.wire.constants import (
    COMPLETER_UNKNOWN,
    FLAG_CONGESTED,
    HEADER_BYTES,
    HEADER_FIELDS,
    HEADER_OFFSET_FLAGS,
    KIND_RESULT,
    STATUS_BYTES,
)
from netsum_common.compiled import Integer, Words, compiled
from netsum_common.memory import pointer

ECT: Final = 2  # IPv4's type of service: the sender reacts to marks (RFC 3168).
CE: Final = 3  # A queue has marked the packet.

_SWAPS: Final = sys.byteorder == "little"

HEADER_WORDS: Final = HEADER_BYTES // 4
STATUS_WORDS: Final = HEADER_WORDS + STATUS_BYTES // 4
STATUS_DATAGRAM_BYTES: Final = HEADER_BYTES + STATUS_BYTES


def _layout() -> dict[str, tuple[int, int, int]]:
    """Word, shift and mask of each field."""
    layout = {}
    position = 0
    for name, bits in HEADER_FIELDS:
        layout[name] = (position // 32, 32 - position % 32 - bits, (1 << bits) - 1)
        position += bits
    return layout


_LAYOUT: Final = _layout()
# The fields that share a word are written out below, for speed of compilation; their offsets in it are computed.
_WORDS: Final = (
    ("version", "kind", "flags", "job_id"),
    ("quorum", "op", "fingerprint"),
    ("token",),
    ("worker_id", "num_workers", "pool_index"),
    ("chunk",),
    ("exponent", "level", "completer"),
)
if any(_LAYOUT[name][0] != word for word, names in enumerate(_WORDS) for name in names):
    raise ImportError(
        "the header's fields have moved to other words: write_header and read_header must follow"
    )

_, _SHIFT_VERSION, _MASK_VERSION = _LAYOUT["version"]
_, _SHIFT_KIND, _MASK_KIND = _LAYOUT["kind"]
_, _SHIFT_FLAGS, _MASK_FLAGS = _LAYOUT["flags"]
_, _SHIFT_JOB_ID, _MASK_JOB_ID = _LAYOUT["job_id"]
_, _SHIFT_WORKER_ID, _MASK_WORKER_ID = _LAYOUT["worker_id"]
_, _SHIFT_NUM_WORKERS, _MASK_NUM_WORKERS = _LAYOUT["num_workers"]
_, _SHIFT_POOL_INDEX, _MASK_POOL_INDEX = _LAYOUT["pool_index"]
POOL_INDEX_AT: Final = (
    4 * _LAYOUT["pool_index"][0] + (16 - _SHIFT_POOL_INDEX) // 8
)  # Byte of a datagram, of 16 bits.
_, _SHIFT_EXPONENT, _MASK_EXPONENT = _LAYOUT["exponent"]
_, _SHIFT_LEVEL, _MASK_LEVEL = _LAYOUT["level"]
_, _SHIFT_COMPLETER, _MASK_COMPLETER = _LAYOUT["completer"]
_, _SHIFT_QUORUM, _MASK_QUORUM = _LAYOUT["quorum"]
_, _SHIFT_OP, _MASK_OP = _LAYOUT["op"]
_, _SHIFT_FINGERPRINT, _MASK_FINGERPRINT = _LAYOUT["fingerprint"]
_MASK_WORD: Final = 0xFFFFFFFF


class Header(NamedTuple):
    """The fields of a header, in wire order."""

    version: int
    kind: int
    flags: int
    job_id: int
    quorum: int
    op: int
    fingerprint: int
    token: int
    worker_id: int
    num_workers: int
    pool_index: int
    chunk: int
    exponent: int
    level: int = 0
    completer: int = COMPLETER_UNKNOWN

    def to_bytes(self) -> bytes:
        """Pack into the 24 bytes of the wire; fields are cut to their width."""
        words = np.zeros(HEADER_WORDS, np.uint32)
        write_header(words, *self)
        return words.tobytes()

    @classmethod
    def from_bytes(cls, datagram: bytes) -> "Header":
        """Unpack the first 24 bytes of a datagram. Raises ValueError if there are fewer."""
        if len(datagram) < HEADER_BYTES:
            raise ValueError(f"a header has {HEADER_BYTES} bytes, got {len(datagram)}")
        return cls(*read_header(np.frombuffer(datagram, np.uint32, HEADER_WORDS).copy()))


@compiled
def swap(word: np.uint32) -> np.uint32:
    """Turn a uint32 from network into host byte order, or back."""
    if _SWAPS:
        # Numba computes in 64 bits; the outer conversion truncates.
        return np.uint32(
            (word >> np.uint32(24))
            | ((word >> np.uint32(8)) & np.uint32(0xFF00))
            | ((word << np.uint32(8)) & np.uint32(0xFF0000))
            | (word << np.uint32(24))
        )
    return word


@compiled
def note_mark(datagram: int, length: int) -> None:
    """Note in a RESULT at an address that a queue has marked its packet, as a switch does for contributions."""
    data = carray(pointer(datagram), (HEADER_BYTES,), np.uint8)
    if length >= HEADER_BYTES and data[0] & 15 == KIND_RESULT:
        data[HEADER_OFFSET_FLAGS] |= FLAG_CONGESTED


@compiled
def write_header(
    words: Words,
    version: int,
    kind: int,
    flags: int,
    job_id: int,
    quorum: int,
    op: int,
    fingerprint: int,
    token: int,
    worker_id: int,
    num_workers: int,
    pool_index: int,
    chunk: int,
    exponent: int,
    level: int,
    completer: int,
) -> None:
    """Write the header into the first six of `words` (uint32 array). Fields are cut to their width."""
    kinds = (
        (version & _MASK_VERSION) << _SHIFT_VERSION
        | (kind & _MASK_KIND) << _SHIFT_KIND
        | (flags & _MASK_FLAGS) << _SHIFT_FLAGS
        | (job_id & _MASK_JOB_ID) << _SHIFT_JOB_ID
    )
    place = (
        (worker_id & _MASK_WORKER_ID) << _SHIFT_WORKER_ID
        | (num_workers & _MASK_NUM_WORKERS) << _SHIFT_NUM_WORKERS
        | (pool_index & _MASK_POOL_INDEX) << _SHIFT_POOL_INDEX
    )
    findings = (
        (exponent & _MASK_EXPONENT) << _SHIFT_EXPONENT
        | (level & _MASK_LEVEL) << _SHIFT_LEVEL
        | (completer & _MASK_COMPLETER) << _SHIFT_COMPLETER
    )
    collective = (
        (quorum & _MASK_QUORUM) << _SHIFT_QUORUM
        | (op & _MASK_OP) << _SHIFT_OP
        | (fingerprint & _MASK_FINGERPRINT) << _SHIFT_FINGERPRINT
    )
    words[0] = swap(np.uint32(kinds))
    words[1] = swap(np.uint32(collective))
    words[2] = swap(np.uint32(token & _MASK_WORD))
    words[3] = swap(np.uint32(place))
    words[4] = swap(np.uint32(chunk & _MASK_WORD))
    words[5] = swap(np.uint32(findings))


@compiled
def read_header(words: Words) -> tuple[Integer, ...]:
    """Return the fifteen fields of the header at the start of `words`, as int64, in wire order."""
    kinds = np.int64(swap(words[0]))
    collective = np.int64(swap(words[1]))
    place = np.int64(swap(words[3]))
    findings = np.int64(swap(words[5]))
    return (
        kinds >> _SHIFT_VERSION & _MASK_VERSION,
        kinds >> _SHIFT_KIND & _MASK_KIND,
        kinds >> _SHIFT_FLAGS & _MASK_FLAGS,
        kinds >> _SHIFT_JOB_ID & _MASK_JOB_ID,
        collective >> _SHIFT_QUORUM & _MASK_QUORUM,
        collective >> _SHIFT_OP & _MASK_OP,
        collective >> _SHIFT_FINGERPRINT & _MASK_FINGERPRINT,
        np.int64(swap(words[2])),
        place >> _SHIFT_WORKER_ID & _MASK_WORKER_ID,
        place >> _SHIFT_NUM_WORKERS & _MASK_NUM_WORKERS,
        place >> _SHIFT_POOL_INDEX & _MASK_POOL_INDEX,
        np.int64(swap(words[4])),
        findings >> _SHIFT_EXPONENT & _MASK_EXPONENT,
        findings >> _SHIFT_LEVEL & _MASK_LEVEL,
        findings >> _SHIFT_COMPLETER & _MASK_COMPLETER,
    )
