"""What a driver writes into Tofino beside table entries: groups, the ports without a cable, TCAM rows to clear.

The ASIC model's harness has no commands for these. It loads binaries, though, and a binary is a list of writes, so this
module makes small binaries. Addresses and layouts are those of the model's register classes and of its packet
replication engine; all ports of the tests are in pipe 0.
"""

import struct
from collections.abc import Sequence

PIPES = 1 << 41
STAGE_SHIFT = 33
PHYSICAL_MEMORY = 2 << 30
TCAM = 4 << 18
TCAM_ROWS = 12

PIPE_VECTORS = 0x027F0000
"""For each group a nibble: which pipes have copies to make."""

FIRST_NODES = 0x61001000000 >> 4
"""For each group 20 bits: the address of its first node, or 0. Four groups a row."""

NODES = 0x61000000000 >> 4
"""Rows of two half nodes, or of one whole; addresses count half nodes, and 0 is no address."""

CPU_PORT_CONTROL = 0x0373D018
"""Of pipe 2: where packets for its port 64 and the three behind it go."""

OUT_OF_ALL_FOUR = 0xF0002
"""Out, instead of round again; else they are dropped."""

RECIRCULATION_CONTROL = 0x0273D01C
ROUND_AGAIN = 0x10001
"""Of pipe 0, for port 68."""

REPLICA_NODE = 1
PORTS_NODE = 9


def write_register(address: int, value: int) -> bytes:
    """Make a write of a 32-bit register."""
    return struct.pack("<III", ord("r") << 24, address, value)


def write_row(address: int, row: int) -> bytes:
    """Make a write of 128 bits of memory; addresses count rows of all memories."""
    return struct.pack("<IQII", ord("d") << 24, address, 128, 1) + row.to_bytes(16, "little")


def connect_cpu_port() -> bytes:
    """Make the write that lets packets out to the controller."""
    return write_register(CPU_PORT_CONTROL, OUT_OF_ALL_FOUR)


def connect_recirculation_port() -> bytes:
    """Make the write that lets packets for port 68 in again."""
    return write_register(RECIRCULATION_CONTROL, ROUND_AGAIN)


def clear_tcam_row(stage: int, unit: int, row: int) -> bytes:
    """Make a write after which a TCAM row matches nothing: neither 0 nor 1 in any bit."""
    place = (unit % TCAM_ROWS) << 14 | (unit // TCAM_ROWS) << 10 | row
    return write_row(PIPES | stage << STAGE_SHIFT | PHYSICAL_MEMORY | TCAM | place, 0)


class MulticastGroups:
    """The tables of the packet replication engine, as far as this process wrote them.

    Each copy has two nodes: one with the replica id and the address of the next, and one with the port.
    """

    def __init__(self) -> None:
        self._first: dict[int, int] = {}
        self._rows_of: dict[int, list[int]] = {}
        self._free: list[int] = []
        self._next_row = 1

    def set(self, group: int, replicas: Sequence[tuple[int, int]]) -> bytes:
        """Make the writes for a group of (port, replica id)."""
        pairs = [(self._row(), self._row()) for _ in replicas]
        self._rows_of[group] = [row for pair in pairs for row in pair]
        addresses = [2 * row for row, _ in pairs] + [0]
        written = b""
        for (port, replica), (row, port_row), following in zip(replicas, pairs, addresses[1:], strict=True):
            node = REPLICA_NODE | following << 4 | 2 * port_row << 24 | replica << 48
            ports = PORTS_NODE | 1 << 7 | 1 << 8 + port  # bit 7: the last of this replica
            written += write_row(NODES + row, node) + write_row(NODES + port_row, ports)
        return written + self._start(group, addresses[0])

    def delete(self, group: int) -> bytes:
        """Make the writes that end a group."""
        self._free += self._rows_of.pop(group)
        return self._start(group, 0)

    def _row(self) -> int:
        if self._free:
            return self._free.pop()
        self._next_row += 1
        return self._next_row - 1

    def _start(self, group: int, address: int) -> bytes:
        self._first[group] = address
        four, eight = group & ~3, group & ~7
        first = sum(self._first.get(four + place, 0) << 20 * place for place in range(4))
        pipes = sum((self._first.get(eight + place, 0) != 0) << 4 * place for place in range(8))
        return write_row(FIRST_NODES + four // 4, first) + write_register(PIPE_VECTORS + eight // 2, pipes)
