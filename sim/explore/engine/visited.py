"""Hashes of states, and the open-addressing table of those that have been seen."""

# mypy: disable-error-code="no-any-return"

import numpy as np
from numba import carray

from netsum_common.compiled import Integer, Record, compiled, compiled_inline
from netsum_common.memory import pointer


@compiled_inline
def _rotate(value: Integer, bits: int) -> Integer:
    return value << np.uint64(bits) | value >> np.uint64(64 - bits)


@compiled_inline
def mixed(value: Integer) -> Integer:
    """Mix a word of 64 bits (MurmurHash3's finalizer)."""
    value ^= value >> np.uint64(33)
    value *= np.uint64(0xFF51AFD7ED558CCD)
    value ^= value >> np.uint64(33)
    value *= np.uint64(0xC4CEB9FE1A85EC53)
    return value ^ value >> np.uint64(33)


@compiled
def hash_bytes(address: Integer, words: Integer, result: Integer) -> None:
    """Hash 64-bit words into 128 bits (MurmurHash3 x64 128 over pairs of words), written to the address `result`; never 0, 0."""
    data = carray(pointer(address), (words,), np.uint64)
    out = carray(pointer(result), (2,), np.uint64)
    c1, c2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
    h1, h2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0x2545F4914F6CDD1D)
    for at in range(0, words, 2):
        k1 = data[at]
        k2 = data[at + 1] if at + 1 < words else np.uint64(0)
        h1 ^= _rotate(k1 * c1, 31) * c2
        h1 = (_rotate(h1, 27) + h2) * np.uint64(5) + np.uint64(0x52DCE729)
        h2 ^= _rotate(k2 * c2, 33) * c1
        h2 = (_rotate(h2, 31) + h1) * np.uint64(5) + np.uint64(0x38495AB5)
    h1 ^= np.uint64(words)
    h2 ^= np.uint64(words)
    h1 += h2
    h2 += h1
    h1, h2 = mixed(h1), mixed(h2)
    h1 += h2
    h2 += h1
    out[0] = h1 | np.uint64(1)
    out[1] = h2


@compiled
def insert(table: Record, mask: Integer, key: Record) -> bool:
    """Insert a hash (uint64[2]) into a table (uint64[n, 2], n = mask + 1, zeros are free); returns whether it is new."""
    at = np.int64(key[1] & np.uint64(mask))
    while table[at, 0] != 0:
        if table[at, 0] == key[0] and table[at, 1] == key[1]:
            return False
        at = (at + 1) & mask
    table[at, 0] = key[0]
    table[at, 1] = key[1]
    return True


@compiled
def rehash(old: Record, new: Record) -> None:
    """Move all rows of a table, two words of hash and perhaps more, into a larger one."""
    mask = np.int64(new.shape[0] - 1)
    for at in range(old.shape[0]):
        if old[at, 0] == 0:
            continue
        place = np.int64(old[at, 1] & np.uint64(mask))
        while new[place, 0] != 0:
            place = (place + 1) & mask
        for word in range(old.shape[1]):
            new[place, word] = old[at, word]
