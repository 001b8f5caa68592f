"""Traces of the packets on a network's links."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sim.frames import HEADERS_BYTES
from sim.network.engine.engine_records import TRACE
from sim.network.engine.packets import PAYLOAD_AT
from sim.network.network_memory import NetworkMemory

_ROWS: Final = 1 << 16  # Packets that compiled code records before Python takes them.


class PacketTrace:
    """The packets of the links that are tapped.

    `parts` (list of (TRACE array, uint8 array)): the trace so far, in order: a record of each packet, and its first
    bytes.
    """

    def __init__(self, memory: NetworkMemory) -> None:
        self._memory = memory
        self.parts: list[tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]] = []

    def start(self, frame_bytes: int | None) -> None:
        """Make room for packets and `frame_bytes` bytes of each (None: all); only the first call has an effect."""
        world = self._memory.world[0]
        if world["trace_room"]:
            return
        size = int(world["row_bytes"]) - PAYLOAD_AT + HEADERS_BYTES if frame_bytes is None else frame_bytes
        world["trace_frame_bytes"], world["trace_room"] = size, _ROWS
        self._records = self._memory.keep("trace", np.zeros(_ROWS, TRACE))
        self._frames = self._memory.keep("trace_frames", np.zeros((_ROWS, size), np.uint8))

    def flush(self) -> None:
        """Append the packets since the last call to `parts`."""
        world = self._memory.world[0]
        count = int(world["trace_count"])
        if count:
            self.parts.append((self._records[:count].copy(), self._frames[:count].copy()))
            world["trace_count"] = 0
