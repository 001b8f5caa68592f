"""Packets written down as pcap files, two for each port: what came in and what left, as `simple_switch --pcap` does.

Records gather in memory, compiled, and go to the files whole and a few times a second: a switch that is killed leaves files
that can be read.
"""

# The integers of compiled code are NumPy's.
# mypy: disable-error-code="no-any-return,return-value"

import logging
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np

from netsum_common.compiled import Array, Integer, compiled
from netsum_common.memory import copy_bytes
from netsum_common.pcap import FILE_HEADER, NS_PER_S
from netsum_common.switch_options import CAPTURE_BYTES

_RECORD_HEADER_BYTES = 16
_BUFFER_BYTES = 1 << 18

_LOG = logging.getLogger(__name__)


class _Buffers(NamedTuple):
    """Records that are not in the files yet, a row a file: port p's are 2 * p (in) and 2 * p + 1 (out)."""

    rows: Array  # int32[:]. The row of each switch port's file of packets that came in, or -1.
    # memory, filled: uint8[:, :], int64[:]. The records, and how many bytes of them there are.
    memory: Array
    filled: Array
    # room, skipped: int64[:], int64[:]. How many more bytes a file may take, and how many packets it did not.
    room: Array
    skipped: Array
    header: Array  # uint32[4]. To work in.


class Capture:
    """Pcap files of a switch's ports.

    `folder`: where the files go; made if it is not there. `names`: the NAME of each switch port's files,
    ``NAME_in.pcap`` and ``NAME_out.pcap``. `limit_bytes`: about how long a file may become; packets after that are left out.
    Raises OSError if a file cannot be written.
    """

    def __init__(self, folder: Path, names: Mapping[int, str], limit_bytes: int = CAPTURE_BYTES) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._resources = ExitStack()
        paths = [folder / f"{name}_{way}.pcap" for name in names.values() for way in ("in", "out")]
        try:
            self._files = [self._resources.enter_context(path.open("wb", buffering=0)) for path in paths]
            for file in self._files:
                file.write(FILE_HEADER)
        except BaseException:
            self._resources.close()
            raise
        rows = np.full(1 << 16, -1, np.int32)
        rows[list(names)] = 2 * np.arange(len(names))
        count = len(paths)
        self._buffers = _Buffers(
            rows=rows,
            memory=np.empty((count, _BUFFER_BYTES), np.uint8),
            filled=np.zeros(count, np.int64),
            room=np.full(count, limit_bytes - len(FILE_HEADER), np.int64),
            skipped=np.zeros(count, np.int64),
            header=np.zeros(4, np.uint32),
        )
        self._times = np.zeros(0, np.int64)

    def came_in(self, ports: Array, lengths: Array, frames: Array, times: Array) -> None:
        """Write down the first packets of `frames`, one for each of `ports`, that came in at `times` (ns since 1970)."""
        self._append(ports, lengths, frames, times, 0)

    def went_out(self, ports: Array, lengths: Array, frames: Array) -> None:
        """Write down the first packets of `frames`, one for each of `ports`, that leave now."""
        if len(self._times) < len(ports):
            self._times = np.zeros(2 * len(ports), np.int64)
        self._times[: len(ports)] = time.time_ns()
        self._append(ports, lengths, frames, self._times, 1)

    def flush(self) -> None:
        """Flush the packets in memory to the files."""
        for row in np.flatnonzero(self._buffers.filled).tolist():
            try:
                self._files[row].write(self._buffers.memory[row, : self._buffers.filled[row]].tobytes())
            except OSError as fault:
                _LOG.warning(
                    "%s: %s; no more packets are written to it", self._files[row].name, fault.strerror
                )
                self._buffers.room[row] = 0
            self._buffers.filled[row] = 0

    def close(self) -> None:
        """Flush the packets in memory, and close the files."""
        self.flush()
        for row in np.flatnonzero(self._buffers.skipped).tolist():
            name, left_out = self._files[row].name, self._buffers.skipped[row]
            _LOG.warning("%s has reached its limit: %d packets are not in it", name, left_out)
        self._resources.close()

    def _append(self, ports: Array, lengths: Array, frames: Array, times: Array, way: int) -> None:
        done = 0
        while (done := append_records(self._buffers, ports, lengths, frames, times, way, done)) < len(ports):
            self.flush()

    def warm_up(self) -> None:
        """Compile what writes packets down, or load it from Numba's cache."""
        frames = np.zeros((0, 64), np.uint8)
        self.went_out(np.zeros(0, np.uint16), np.zeros(0, np.int32), frames)


@compiled
def append_records(
    buffers: _Buffers,
    ports: Array,
    lengths: Array,
    frames: Array,
    times: Array,
    way: Integer,
    begin: Integer,
) -> Integer:
    """Add packets from `begin` on to the records in memory; return the first for which there was no room."""
    stride: Integer = frames.strides[0]
    for i in range(begin, ports.shape[0]):
        row = buffers.rows[ports[i]] + way
        if row < way:
            continue
        length = np.int64(lengths[i])
        size = length + _RECORD_HEADER_BYTES
        if buffers.room[row] < size:
            buffers.room[row] = 0
            buffers.skipped[row] += 1
            continue
        if buffers.filled[row] + size > buffers.memory.shape[1]:
            return i
        buffers.header[0] = times[i] // NS_PER_S
        buffers.header[1] = times[i] % NS_PER_S
        buffers.header[2] = length
        buffers.header[3] = length
        place = np.uintp(buffers.memory[row].ctypes.data) + np.uintp(buffers.filled[row])
        copy_bytes(place, np.uintp(buffers.header.ctypes.data), np.uintp(_RECORD_HEADER_BYTES))
        frame = np.uintp(frames.ctypes.data) + np.uintp(i * stride)
        copy_bytes(place + np.uintp(_RECORD_HEADER_BYTES), frame, np.uintp(length))
        buffers.filled[row] += size
        buffers.room[row] -= size
    return ports.shape[0]
