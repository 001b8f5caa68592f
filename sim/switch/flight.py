"""Memory for a batch under way: packets in flight, output rows, digests, and running the machine code."""

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.switch import ir
from sim.switch.codegen.deparser import header_room
from sim.switch.codegen.digests import digest_row_words
from sim.switch.codegen.traffic import DONE, NEED_DIGESTS, NEED_OUTPUT, NEED_SLOTS
from sim.switch.layout import Context, StateLayout
from sim.switch.machine import Machine
from sim.switch.packets import Packets

_FIRST_SLOTS = 16
_SCRATCH_HEADERS = 8192


def _row_bytes(size: int) -> int:
    """Return a row size that holds `size` bytes and keeps rows out of each other's cache sets."""
    lines = (size + 63) // 64
    return 64 * (lines | 1)


class Flight:
    """Runs batches through a machine, giving it more memory whenever it asks."""

    def __init__(self, program: ir.Program, machine: Machine, context: Context) -> None:
        self.machine = machine
        self.at = context.words
        self.words = np.zeros(context.size, np.int64)
        self._address = int(self.words.ctypes.data)
        # A memoryview's items are read and written several times as fast as an array's.
        self._view = self.words.data
        self._inputs = struct.Struct(f"{self.at['in_next'] + 1 - self.at['in_frames']}q")
        self._inputs_at = self.at["in_frames"] * self.words.itemsize
        self._out_count, self._now = self.at["out_count"], self.at["now_us"]
        self.state_bytes = StateLayout(program).size
        self.room = header_room(program)
        self.row_bytes = _row_bytes(2048 + self.room)
        self.digest_rows = np.zeros((64, digest_row_words(program)), np.uint64)
        self.out_frames = np.zeros((0, self.row_bytes), np.uint8)
        self.out_lengths = np.zeros(0, np.int32)
        self.out_ports = np.zeros(0, np.uint16)
        self.slots = np.zeros((0, 0), np.uint8)
        self.free = np.zeros(0, np.int32)
        self.rings: dict[str, NDArray[np.int32]] = {}
        self._set("digest_capacity", len(self.digest_rows))
        self._set("digest_rows", self.digest_rows.ctypes.data)
        self._last = Packets.trusted(self.out_ports, self.out_lengths, self.out_frames)
        self._grow_output(64)
        self._grow_slots(_FIRST_SLOTS, self.row_bytes)

    def _set(self, name: str, value: int) -> None:
        self.words[self.at[name]] = value

    def _get(self, name: str) -> int:
        return int(self.words[self.at[name]])

    def run(self, packets: Packets, now_ns: int, *, copy: bool) -> Packets:
        """Run a batch to its end and return what came out."""
        count, width = packets.frames.shape
        if count > len(self.out_frames) or width + self.room > self.row_bytes:
            self.make_room(count, width)
        view = self._view
        self._inputs.pack_into(view, self._inputs_at, *packets.addresses, count, 0)
        view[self._out_count] = 0
        view[self._now] = now_ns // 1000
        status = self.machine.run(self._address)
        return self.result(copy=copy) if status == DONE else self.resume(status, copy=copy)

    def arrays(self) -> list[NDArray[Any]]:
        """Return all memory that the context points at."""
        out: list[NDArray[Any]] = [self.out_frames, self.out_lengths, self.out_ports]
        return [
            *out,
            self.slots,
            self.free,
            self.scratch,
            self.digest_rows,
            self.rings["ingress"],
            self.rings["egress"],
        ]

    def make_room(self, count: int, frame_bytes: int) -> None:
        """Make room for the likely need of a batch of `count` frames, each of at most this length."""
        if count and frame_bytes + self.room > self.row_bytes:
            self._widen(frame_bytes)
        if len(self.out_frames) < count:
            self._grow_output(count)

    def resume(self, status: int, *, copy: bool = False) -> Packets:
        """Run a batch on to its end after the machine code returned `status`; return what came out."""
        while status != DONE:
            if status == NEED_OUTPUT:
                self._grow_output(2 * len(self.out_frames))
            elif status == NEED_SLOTS:
                self._grow_slots(2 * len(self.slots), self.row_bytes)
            elif status == NEED_DIGESTS:
                self._grow_digests()
            else:
                self._widen(self._get("needed"))
            status = self.machine.run(self._address)
        return self.result(copy=copy)

    def result(self, *, copy: bool = False) -> Packets:
        """Return what came out of the last batch; a view of memory that the next one uses, unless `copy`."""
        count = self._view[self._out_count]
        if not copy and count == len(self._last):
            return self._last
        ports, lengths, frames = self.out_ports[:count], self.out_lengths[:count], self.out_frames[:count]
        if copy:
            width = max(int(lengths.max()), 1) if count else 1
            return Packets.trusted(ports.copy(), lengths.copy(), frames[:, :width].copy())
        self._last = Packets.trusted(ports, lengths, frames)
        return self._last

    def _widen(self, frame_bytes: int) -> None:
        """Make rows and slots hold frames of `frame_bytes` and the headers a pass may add."""
        if frame_bytes + self.room <= self.row_bytes:
            return
        self.row_bytes = _row_bytes(frame_bytes + frame_bytes // 2 + self.room)
        self._grow_output(len(self.out_frames))
        self._grow_slots(len(self.slots), self.row_bytes)

    def _grow_output(self, rows: int) -> None:
        frames = np.zeros((rows, self.row_bytes), np.uint8)
        frames[: len(self.out_frames), : self.out_frames.shape[1]] = self.out_frames
        self.out_frames = frames
        lengths, ports = np.zeros(rows, np.int32), np.zeros(rows, np.uint16)
        lengths[: len(self.out_lengths)] = self.out_lengths
        ports[: len(self.out_ports)] = self.out_ports
        self.out_lengths, self.out_ports = lengths, ports
        # The last result that is a view: batches after another often put out as many packets, and slices take time.
        self._last = Packets.trusted(ports[:0], lengths[:0], frames[:0])
        self._set("out_frames", frames.ctypes.data)
        self._set("out_stride", self.row_bytes)
        self._set("out_lengths", lengths.ctypes.data)
        self._set("out_ports", ports.ctypes.data)
        self._set("out_capacity", rows)

    def _grow_slots(self, count: int, frame_bytes: int) -> None:
        """Make room for more packets in flight, keeping those there are."""
        old, before = self.slots, len(self.slots)
        old_start, old_bytes = int(old.ctypes.data), old.shape[1]
        size = self.state_bytes + frame_bytes
        slots = np.zeros((count, size), np.uint8)
        slots[:before, :old_bytes] = old
        if before:
            self._move_frames(slots, old_start, old_bytes)
        free = np.zeros(count, np.int32)
        kept = self._get("free_count") if before else 0
        if before:
            free[:kept] = self.free[:kept]
        # Slot 0 is scratch: the copy that a replica is made on.
        added = np.arange(max(before, 1), count, dtype=np.int32)
        free[kept : kept + len(added)] = added
        self._set("free_count", kept + len(added))
        self._grow_rings(count, before)
        self.slots, self.free = slots, free
        self.scratch = np.zeros(frame_bytes + _SCRATCH_HEADERS, np.uint8)
        self._set("scratch", self.scratch.ctypes.data)
        self._set("slots", slots.ctypes.data)
        self._set("slot_bytes", size)
        self._set("free", free.ctypes.data)

    def _move_frames(self, slots: NDArray[np.uint8], old_start: int, old_bytes: int) -> None:
        """Make packets that have their bytes in their own slot point into the new one."""
        pointers = slots[:, :8].view(np.uint64)
        for number in range(len(slots)):
            own = old_start + number * old_bytes + self.state_bytes
            if int(pointers[number, 0]) == own:
                start = int(slots.ctypes.data) + number * slots.shape[1]
                pointers[number, 0] = start + self.state_bytes

    def _grow_rings(self, count: int, before: int) -> None:
        rings: dict[str, NDArray[np.int32]] = {}
        size = 1
        while size < count + 1:
            size *= 2
        for name in ("ingress", "egress"):
            ring = np.zeros(size, np.int32)
            head, tail = self._get(f"{name}_head"), self._get(f"{name}_tail")
            for position, at in enumerate(range(head, tail)):
                ring[position] = self.rings[name][at & (len(self.rings[name]) - 1)]
            self._set(f"{name}_head", 0)
            self._set(f"{name}_tail", tail - head)
            self._set(f"{name}_ring", ring.ctypes.data)
            rings[name] = ring
        self._set("ring_mask", size - 1)
        self.rings = rings

    def _grow_digests(self) -> None:
        self.digest_rows = np.concatenate([self.digest_rows, np.zeros_like(self.digest_rows)])
        self._set("digest_capacity", len(self.digest_rows))
        self._set("digest_rows", self.digest_rows.ctypes.data)
