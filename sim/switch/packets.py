"""Batches of packets as arrays: the input and the output of the switch."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Packets:
    """A batch of packets, one row each.

    Attributes
    ----------
    ports
        The port each came in or goes out by, uint16[n].
    lengths
        Bytes of each frame, int32[n].
    frames
        The frames, uint8[n, capacity], C-contiguous; bytes from a frame's length on mean nothing.
    """

    ports: NDArray[np.uint16]
    lengths: NDArray[np.int32]
    frames: NDArray[np.uint8]

    def __post_init__(self) -> None:
        if self.frames.ndim != 2 or not self.frames.flags.c_contiguous or self.frames.dtype != np.uint8:
            raise ValueError("frames must be a C-contiguous uint8 array with one row per packet")
        for name, array, kind in (("ports", self.ports, np.uint16), ("lengths", self.lengths, np.int32)):
            if array.shape != self.frames.shape[:1] or array.dtype != kind or not array.flags.c_contiguous:
                raise ValueError(f"{name} must be a contiguous {np.dtype(kind)} array, one per row of frames")
        if len(self) and not 0 <= int(self.lengths.min()) <= int(self.lengths.max()) <= self.frames.shape[1]:
            raise ValueError("lengths must lie between 0 and the rows' capacity")

    @classmethod
    def of(cls, packets: Iterable[tuple[int, bytes]]) -> "Packets":
        """Make a batch of (port, frame) pairs."""
        pairs = list(packets)
        capacity = max((len(frame) for _, frame in pairs), default=0)
        frames = np.zeros((len(pairs), max(capacity, 1)), np.uint8)
        for row, (_, frame) in zip(frames, pairs, strict=True):
            row[: len(frame)] = np.frombuffer(frame, np.uint8)
        ports = np.array([port for port, _ in pairs], np.uint16)
        return cls(ports, np.array([len(frame) for _, frame in pairs], np.int32), frames)

    @classmethod
    def trusted(
        cls, ports: NDArray[np.uint16], lengths: NDArray[np.int32], frames: NDArray[np.uint8]
    ) -> "Packets":
        """Make a batch of arrays known to be right, without the checks."""
        packets = object.__new__(cls)
        packets.__dict__.update(ports=ports, lengths=lengths, frames=frames)
        return packets

    @cached_property
    def addresses(self) -> tuple[int, int, int, int]:
        """The batch for machine code: address of the frames, bytes from row to row, addresses of lengths and ports."""
        return (
            self.frames.ctypes.data,
            self.frames.shape[1],
            self.lengths.ctypes.data,
            self.ports.ctypes.data,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy's arrays are elsewhere: it must not take over `addresses`.
        return Packets.trusted, (self.ports, self.lengths, self.frames)

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, index: int) -> tuple[int, bytes]:
        return int(self.ports[index]), self.frames[index, : self.lengths[index]].tobytes()

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        return (self[index] for index in range(len(self)))
