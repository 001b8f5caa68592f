"""Coefficients and pads of one communicator's checks, public or from a secret."""

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b, shake_256
from typing import Final

import numpy as np
import numpy.typing as npt

from host_agent.verification.digest import LIMB_BITS, LIMBS
from host_agent.verification.field import PRIME
from host_agent.verification.seals import SEGMENT

PUBLIC: Final = b""
"""In place of a key: coefficients that everybody knows, against faults that nobody plans."""


@dataclass(frozen=True)
class Keys:
    """Numbers that the seals of one communicator are computed with; alike at all workers but for `rank`."""

    key: bytes  # 32 bytes that the workers alone know, or `PUBLIC`.
    rank: int
    world_size: int
    lane_count: int
    coefficients: npt.NDArray[np.int32]  # (LIMBS, lanes)
    block_coefficients: npt.NDArray[np.uint64]  # (SEGMENT,)
    own_coefficient: int  # Coefficient of this rank, and the sum of all ranks', modulo the prime.
    all_coefficients: int

    def pads(self, number: int, attempt: int, count: int) -> tuple[list[int], list[int]]:
        """Return one-time pads of seals: what this worker adds, and what the sum over all workers has more.

        `number`: of the collective, never used again with this key. A worker adds F(rank) - F(rank + 1), which cancel over the
        ranks, and rank 0 one more: any seals with their pads are uniform and independent but for the sum that all know.
        """
        if self.key == PUBLIC:
            return [0] * count, [0] * count
        after, common = (self.rank + 1) % self.world_size, self.world_size
        own, every = [], []
        for segment in range(count):
            stream = {w: self._element(number, attempt, segment, w) for w in {self.rank, after, common}}
            every.append(stream[common])
            first = stream[common] if self.rank == 0 else 0
            own.append((stream[self.rank] - stream[after] + first) % PRIME)
        return own, every

    def _element(self, *nonce: int) -> int:
        data = b"".join(each.to_bytes(8, "big") for each in nonce)
        digest = blake2b(data, key=self.key, digest_size=16, person=b"netsum pad").digest()
        return int.from_bytes(digest, "big") % PRIME


@lru_cache(maxsize=32)
def make_keys(key: bytes, rank: int, world_size: int, lane_count: int) -> Keys:
    """Return the coefficients that follow from a key."""
    lanes, blocks, ranks = (
        _elements(key, what, count)
        for what, count in ((b"lanes", lane_count), (b"blocks", SEGMENT), (b"ranks", world_size))
    )
    limbs = [[each >> LIMB_BITS * k & ((1 << LIMB_BITS) - 1) for each in lanes] for k in range(LIMBS)]
    return Keys(
        *(key, rank, world_size, lane_count),
        np.array(limbs, np.int32),
        np.array(blocks, np.uint64),
        ranks[rank],
        sum(ranks) % PRIME,
    )


def _elements(key: bytes, what: bytes, count: int) -> list[int]:
    """Return elements other than 0, uniform but for 2^-67."""
    stream = shake_256(b"netsum coefficients " + what + b"\0" + key).digest(16 * count)
    each = (stream[at : at + 16] for at in range(0, len(stream), 16))
    return [1 + int.from_bytes(one, "big") % (PRIME - 1) for one in each]
