"""Memory that programs and Python share: one array, mapped into this process, with registers, counters and defaults.

Code reaches it by address, without a helper, also under a lock. Its parts are a power of two of cells long, so that masking an
index keeps it inside. Counters have a part for each processor: a cache line that two of them write takes longer than most
of a packet, and an addition that is atomic longer than one that is not.
"""

import re
from pathlib import Path

from sim.switch import ir
from sim.switch.layout import CONTEXT, Context, align
from sim.switch.table_layout import TableShape

STATISTICS = (
    *CONTEXT[CONTEXT.index("dropped_ingress") :],
    "dropped_no_room",
    "dropped_no_port",
    "not_captured",
)
PORT_WORDS = ("received", "received_bytes", "sent", "sent_bytes")
PORTS = 512
# Groups below `ROWS` have a row of "only replicas", with the entry for a port with several copies.
ROWS, SEVERAL = 512, 0xFFFF


def one_entry_words(shape: TableShape) -> int:
    """Return how many words the key, the number and the record of an entry take."""
    return shape.key_words + 1 + shape.entry_words


def cells(count: int) -> int:
    """Return the power of two at or above `count`."""
    return 1 << (count - 1).bit_length()


def table_rows(table: ir.Table) -> int:
    """Return how many entries a table may have, and one for the default."""
    return len(table.entries) + table.size + 1


class BpfMemory:
    """The parts of the shared array."""

    def __init__(self, program: ir.Program, context: Context) -> None:
        self.parts: dict[str, tuple[int, int]] = {}  # (first byte, bytes) of each part.
        self.size = 0  # Bytes in all.
        self._add("verdict", 8)
        for group, (stride, size) in enumerate(context.registers.groups):
            self._add(f"register {group}", cells(size + 1) * stride)
        for table in program.tables.values():
            shape = TableShape.of(program, table)
            self._add(f"default {table.name}", 8 + 16 * (shape.entry_words + one_entry_words(shape)))
        # The replica id of each group's copy at each port (16 bits), if it is the only one there.
        self._add("only replicas", 2 * ROWS * PORTS)
        # From here on, for each processor: where the first one's part begins, how many there are, bytes of one.
        self.counts_at, self.processors = self.size, cells(_processors())
        self._add("words", 8 * len(STATISTICS))
        self._add("ports", 8 * len(PORT_WORDS) * PORTS)
        # The number of the last packet for a group; that of the last copy at each port, and how many came before it.
        self._add("last packet", 8)
        self._add("copies", 8 * PORTS)
        for counter in program.counters.values():
            self._add(f"counter {counter.name}", cells(counter.size + 1) * 16)
        for table in program.tables.values():
            if table.key and table.with_counters:
                self._add(f"direct {table.name}", cells(table_rows(table)) * 16)
        self.counts_bytes = self.size - self.counts_at
        self.size += (self.processors - 1) * self.counts_bytes

    def _add(self, name: str, size: int) -> None:
        self.parts[name] = (self.size, size)
        self.size = align(self.size + size, 64)


def _processors() -> int:
    """Return how many processors the kernel has room for."""
    possible = Path("/sys/devices/system/cpu/possible").read_text(encoding="ascii")
    return int(re.split("[-,]", possible)[-1]) + 1
