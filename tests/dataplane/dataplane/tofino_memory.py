"""A driver's writes into Tofino beside table entries: groups, the ports without a cable, TCAM rows to clear.

The ASIC model's harness has no commands for these. It loads binaries, though, and a binary is a list of writes, so this
module makes small binaries. Addresses and layouts are those of the model's register classes and of its packet
replication engine; all ports of the tests are in pipe 0.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

PIPES = 1 << 41
PHYSICAL_MEMORY = 2 << 30
TCAM = 4 << 18
TCAM_ROWS = 12


class Layout(NamedTuple):
    """Addresses in a chip; those of memory count rows of 128 bits."""

    stage_shift: int
    nodes: int
    """Rows of two half nodes, or of one whole; addresses of nodes count half nodes, and 0 is no address."""
    first_nodes: int
    """For each group 20 bits: the address of its first node, or 0. Four groups a row."""
    pipe_vectors: int
    """For each group `vector_bits` bits: which pipes have copies to make. A register has those of `vectors` groups."""
    vector_bits: int
    vectors: int
    ways: tuple[tuple[int, int], ...]
    """Registers and their values: packets leave by the CPU port, and come in again by the recirculation port."""


TOFINO = Layout(
    stage_shift=33,
    nodes=0x61000000000 >> 4,
    first_nodes=0x61001000000 >> 4,
    pipe_vectors=0x027F0000,
    vector_bits=4,
    vectors=8,
    ways=(
        (
            0x0373D018,
            0xF0002,
        ),  # port 64 of pipe 2 and the three behind it: out, instead of round again; else they are dropped
        (0x0273D01C, 0x10001),  # port 68 of pipe 0: round again
    ),
)
TOFINO2 = Layout(
    stage_shift=34,
    nodes=0x67004000000 >> 4,
    first_nodes=0x66000000000 >> 4,
    pipe_vectors=0x04D00000,
    vector_bits=5,
    vectors=4,
    ways=(
        (0x04C36024, 0x10001),  # port 0 of pipe 0: out
        (0x04C3603C, 0x10001),  # port 6 of pipe 0: round again
    ),
)

REPLICA_NODE = 1
PORTS_NODE = 9


def write_register(address: int, value: int) -> bytes:
    """Make a write of a 32-bit register."""
    return struct.pack("<III", ord("r") << 24, address, value)


def write_row(address: int, row: int) -> bytes:
    """Make a write of 128 bits of memory; addresses count rows of all memories."""
    return struct.pack("<IQII", ord("d") << 24, address, 128, 1) + row.to_bytes(16, "little")


def connect_ports(layout: Layout) -> bytes:
    """Make the writes that let packets out to the controller, and those of the recirculation port in again."""
    return b"".join(write_register(address, value) for address, value in layout.ways)


def clear_tcam_row(layout: Layout, stage: int, unit: int, row: int) -> bytes:
    """Make a write after which a TCAM row matches nothing: neither 0 nor 1 in any bit."""
    place = (unit % TCAM_ROWS) << 14 | (unit // TCAM_ROWS) << 10 | row
    return write_row(PIPES | stage << layout.stage_shift | PHYSICAL_MEMORY | TCAM | place, 0)


class MulticastGroups:
    """The tables of the packet replication engine, as far as this process wrote them.

    Each copy has two nodes: one with the replica id and the address of the next, and one with the port.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._first: dict[int, int] = {}
        self._rows_of: dict[int, list[int]] = {}
        self._free: list[int] = []
        self._next_row = 1

    def set(self, group: int, replicas: Sequence[tuple[int, int]]) -> bytes:
        """Make the writes for a group of (port, replica id)."""
        pairs = [(self._row(), self._row()) for _ in replicas]
        self._rows_of[group] = [row for pair in pairs for row in pair]
        addresses = [2 * row for row, _ in pairs] + [0]
        written, nodes = b"", self._layout.nodes
        for (port, replica), (row, port_row), following in zip(replicas, pairs, addresses[1:], strict=True):
            node = REPLICA_NODE | following << 4 | 2 * port_row << 24 | replica << 48
            ports = PORTS_NODE | 1 << 7 | 1 << 8 + port  # bit 7: the last of this replica
            written += write_row(nodes + row, node) + write_row(nodes + port_row, ports)
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
        four = group & ~3
        first = sum(self._first.get(four + place, 0) << 20 * place for place in range(4))
        vectors, bits = self._layout.vectors, self._layout.vector_bits
        register = group // vectors
        pipes = sum(
            (self._first.get(register * vectors + place, 0) != 0) << bits * place for place in range(vectors)
        )
        return write_row(self._layout.first_nodes + four // 4, first) + write_register(
            self._layout.pipe_vectors + 4 * register, pipes
        )
