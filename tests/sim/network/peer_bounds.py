"""The least time of a peer's all-reduce by the bytes of its busiest link, where every packet of a run would be too many.

Latencies, steps that wait for each other and the transport's start are left out: a run takes longer, never less.
"""

from dataclasses import dataclass
from typing import Final

from sim.errors import SettingError

_BITS_PER_NS: Final = 1e9


@dataclass(frozen=True)
class Wire:
    """Bytes of a packet on a link."""

    rate_bps: int = 10**10  # Rate of the hosts' links; those between switches are no limit.
    # segment, headers, framing: bytes of data in a packet, of its headers, which an acknowledgement has too, and of what is
    # around a frame.
    segment: int = 1448
    headers: int = 66
    framing: int = 24
    ack_every: int = 2  # Packets that are acknowledged together.

    def ns(self, data: float, acknowledged: float = 0) -> float:
        """Return how long a link takes for this many bytes of data, and for the acknowledgements of as many others."""
        wire_bytes = data * (1 + (self.headers + self.framing) / self.segment)
        wire_bytes += acknowledged * (self.headers + self.framing) / self.segment / self.ack_every
        return wire_bytes * 8 * _BITS_PER_NS / self.rate_bps


def _exchanged(workers: int, size: int, wire: Wire) -> float:
    """Patarasuk, Yuan 2009: each worker sends 2 (n − 1) / n of the array, and receives and acknowledges as much."""
    data = 2 * size * (workers - 1) / workers
    return wire.ns(data, data)


def _served(workers: int, size: int, wire: Wire) -> float:
    """Each direction of a server's one link carries all arrays, or the sums for all, and acknowledges the other's."""
    return wire.ns(workers * size, workers * size)


_BOUNDS: Final = {"ring": _exchanged, "halving-doubling": _exchanged, "ps": _served}


def bounded_peers() -> list[str]:
    """Return the names of the peers that have a bound here."""
    return list(_BOUNDS)


def least_ns(peer: str, workers: int, size: int, wire: Wire | None = None) -> float:
    """Return how long an all-reduce of arrays of `size` bytes takes at least, in whole arrays passed on at once.

    Raises
    ------
    SettingError
        There is no bound of this peer.
    """
    if peer not in _BOUNDS:
        raise SettingError(f"expected one of {', '.join(_BOUNDS)}, found {peer!r}")
    return _BOUNDS[peer](workers, size, wire or Wire())
