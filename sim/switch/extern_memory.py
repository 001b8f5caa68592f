"""Registers, indirect counters, indirect meters and value sets, as arrays that machine code uses."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.switch import ir
from sim.switch.codegen.externs import METER_RATE_WORDS
from sim.switch.layout import Context
from sim.switch.switch_errors import EntryError, UnknownNameError
from sim.switch.table_layout import split

MeterRate = tuple[float, int]


def write_meter(cell: NDArray[np.uint64], rates: tuple[MeterRate, ...] | None) -> None:
    """Configure a meter's cell, uint64[rates, words].

    `rates`: (tokens per microsecond, burst in tokens), lowest first, a token being a packet or a byte; None to let
    everything pass. Raises EntryError if there are not as many rates as the meter has, or they are in another order.
    """
    cell[:] = 0
    if rates is None:
        return
    if len(rates) != len(cell) or any(a[0] > b[0] for a, b in pairwise(rates)):
        raise EntryError(f"a meter takes {len(cell)} rates, lowest first")
    for row, (rate, burst) in zip(cell, reversed(rates), strict=True):
        row[:1] = np.array([rate], np.float64).view(np.uint64)
        row[1] = row[2] = burst
        row[4] = 1


class ExternMemory:
    """The arrays of a program's stateful externs; cell `size` of each is a spare that out-of-range indices use."""

    def __init__(self, program: ir.Program, context: Context) -> None:
        self.program = program
        self.context = context
        self.registers = [
            _aligned(np.zeros((size + 1) * stride + 64, np.uint8))
            for stride, size in context.registers.groups
        ]
        self.counters = {c.name: np.zeros((c.size + 1, 2), np.uint64) for c in program.counters.values()}
        self.meters = {
            m.name: np.zeros((m.size + 1, m.rates, METER_RATE_WORDS), np.uint64)
            for m in program.meters.values()
        }
        self.vsets: dict[str, list[int]] = {name: [] for name in program.vsets}
        self._vset_rows: dict[str, NDArray[np.uint64]] = {}

    def sync(self, words: NDArray[np.int64]) -> None:
        """Write the arrays' addresses into the context."""
        at = self.context.words
        for group, memory in enumerate(self.registers):
            words[at[f"register {group}"]] = memory.ctypes.data
        for kind, arrays in (("counter", self.counters), ("meter", self.meters)):
            for name, array in arrays.items():
                words[at[f"{kind} {name}"]] = array.ctypes.data
        for name, values in self.vsets.items():
            count = (self._vset_bits(name) + 63) // 64
            rows = [split(value, count) for value in values]
            self._vset_rows[name] = np.array(rows, np.uint64).reshape(len(rows), count)
            words[at[f"vset {name}"]] = self._vset_rows[name].ctypes.data
            words[at[f"vset {name}"] + 1] = len(rows)

    def _vset_bits(self, name: str) -> int:
        """Return the width of the key that a value set is matched against, its parts padded to whole bytes."""
        for state in self.program.parse_states.values():
            if any(t.vset == name for t in state.transitions):
                return sum((width + 7) // 8 * 8 for _, width in state.key)
        return (self.program.vsets[name] + 7) // 8 * 8

    def set_value_set(self, name: str, values: Sequence[int]) -> None:
        """Replace the values of a value set."""
        if name not in self.vsets:
            raise UnknownNameError(f"the program has no value set {name!r}")
        width = self._vset_bits(name)
        if any(not 0 <= value < 1 << width for value in values):
            raise EntryError(f"values of value set {name} have {width} bits, each part padded to whole bytes")
        self.vsets[name] = list(values)

    def register_view(self, name: str) -> NDArray[Any]:
        """Return a register array as a strided NumPy view: unsigned cells, or uint64[n, words] if wider than 64 bits."""
        place = self.context.registers.places.get(name)
        if place is None:
            raise UnknownNameError(f"the program has no register array {name!r}")
        stride, size = self.context.registers.groups[place.group]
        memory = self.registers[place.group]
        cells = memory[: size * stride].reshape(size, stride)[
            :, place.offset : place.offset + place.storage // 8
        ]
        if place.storage <= 64:
            return cells.view(f"u{place.storage // 8}")[:, 0]
        return cells.view(np.uint64)

    def counter(self, name: str, index: int) -> NDArray[np.uint64]:
        """Return a counter's (packets, bytes) cell."""
        return self._cell("counter", self.counters, name, index)

    def meter(self, name: str, index: int) -> NDArray[np.uint64]:
        """Return a meter's cell, for `write_meter`."""
        return self._cell("meter", self.meters, name, index)

    def _cell(
        self, kind: str, arrays: dict[str, NDArray[np.uint64]], name: str, index: int
    ) -> NDArray[np.uint64]:
        if name not in arrays:
            raise UnknownNameError(f"the program has no {kind} array {name!r}")
        cell: NDArray[np.uint64]
        if not 0 <= index < len(arrays[name]) - 1:
            raise EntryError(f"{kind} array {name} has the indices 0…{len(arrays[name]) - 2}, not {index}")
        cell = arrays[name][index]
        return cell

    def rows(self) -> list[NDArray[np.uint64]]:
        """Return the value sets as `sync` wrote them."""
        return list(self._vset_rows.values())

    def arrays(self) -> list[NDArray[Any]]:
        """Return every array that packets change, in a fixed order."""
        return [*self.registers, *self.counters.values(), *self.meters.values()]


def _aligned(memory: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the part of a register group's memory that begins on a cache line."""
    skip = -int(memory.ctypes.data) % 64
    return memory[skip : len(memory) - 64 + skip]
