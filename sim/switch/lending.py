"""A program with its entries for those who run it on registers of their own, and the counts that come back from them."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.switch.entries import TableEntry
from sim.switch.extern_memory import ExternMemory
from sim.switch.layout import Context
from sim.switch.table_memory import TableMemory


class Counts:
    """An array of counters of a switch, as it is when the program is lent.

    `name`: the extern's, or that of the table whose entries are counted. `entries`: the table's entries, by number.
    """

    def __init__(self, name: str, array: NDArray[np.uint64], entries: dict[int, TableEntry] | None) -> None:
        self.array = array
        self._name, self._entries = name, entries
        self._taken = np.zeros_like(array)
        self.copies: list[NDArray[np.uint64]] = []  # One of each borrower.

    def collect(self, externs: ExternMemory, tables: dict[str, TableMemory]) -> None:
        """Add what the borrowers have counted since the last time; counts of deleted entries are dropped."""
        if not self.copies:
            return
        now: NDArray[np.uint64] = np.stack(self.copies).sum(axis=0, dtype=np.uint64)
        grown = now - self._taken
        self._taken = now
        if self._entries is None:
            externs.counters[self._name] += grown
            return
        table = tables[self._name]
        for number in np.flatnonzero(grown.any(axis=1)).tolist():
            present = table.number_of(self._entries[number]) if number in self._entries else None
            if present is not None:
                table.counters[present] += grown[number]


class Lending(NamedTuple):
    """A program with its entries; the arrays are valid until the next change."""

    code: bytes  # An object file.
    layout: Context
    words: NDArray[np.int64]  # A context with nothing under way, whose pointers lead to the arrays below.
    shared: list[NDArray[Any]]  # Read by the program.
    own: list[NDArray[Any]]  # Changed by whoever runs it: packets under way, meters.
    counts: list[Counts]  # Changed by whoever runs it, and collected.
    registers: list[NDArray[np.uint8]]
