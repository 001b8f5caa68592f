"""Maps and programs of one switch in the kernel."""

import contextlib
import hashlib
import mmap
import os
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sim.switch import ir
from sim.switch.bpf import syscall
from sim.switch.bpf.btf import LOCK_BYTES, LOCK_TYPES, lock_btf
from sim.switch.bpf.controls import is_trie
from sim.switch.bpf.mapped_memory import PORT_WORDS, PORTS, ROWS, SEVERAL, table_rows
from sim.switch.bpf.objects import BpfObject
from sim.switch.bpf.programs import PROGRAMS, REPLICA_KEY, BpfPrograms
from sim.switch.bpf.stubs import load_address, stub
from sim.switch.bpf.syscall import Map
from sim.switch.table_layout import TableShape

GROUPS, REPLICAS, RING_BYTES, CAPTURE_BYTES = 1 << 16, 1 << 17, 1 << 18, 1 << 22

# The map of programs that has each, and where, for the small programs in front.
_PLACES = {"arrive": ("programs", 0), "observe": ("programs", 1), "copy": ("copies", 0)}


class Kernel:
    """The maps and programs; `close` lets go of all.

    `captures`: whether the ring of captured packets has room for more than one page. `pins`: where an earlier process has
    pinned the maps, which are taken over, and the identity of their code; None: they are made. `memory`: the shared array,
    uint8[n]. `identity`: of the code and the sizes of the maps. `pinned`: whether the maps are pinned.
    """

    def __init__(
        self,
        program: ir.Program,
        written: BpfPrograms,
        code: BpfObject,
        *,
        captures: bool = False,
        pins: tuple[Path, bytes] | None = None,
    ) -> None:
        self.program, self._unit = program, written.unit
        self._captures, self.pinned = captures, pins is not None
        self._pins = pins[0] if pins else None
        sizes = (PORTS, GROUPS, REPLICAS, RING_BYTES, CAPTURE_BYTES)
        self.identity = hashlib.sha256(f"{sizes}\n{written.unit.module}".encode()).digest()
        if pins is not None and pins[1] != self.identity:
            raise syscall.BpfError("it is of another program, or of another version of netsum")
        self.maps: dict[str, Map] = {}  # By the names that the code has for them.
        self._resources = ExitStack()
        self._stubs: dict[tuple[object, ...], int] = {}
        try:
            self._make_maps(written)
            size = written.unit.memory.size
            self.memory: NDArray[np.uint8] = np.frombuffer(self.maps["memory"].view(size), np.uint8)
            self._load(code)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of maps and programs; attached ones stay."""
        self._resources.close()

    def _map(self, name: str, kind: int, key: int, value: int, entries: int, **options: object) -> Map:
        place = self._pins / _pin_name(len(self.maps)) if self._pins else None
        made = Map(name, kind, key, value, entries, pinned=place, **options)  # type: ignore[arg-type]
        self._resources.callback(made.close)
        self.maps[name] = made
        return made

    def pin(self, folder: Path) -> None:
        """Pin the maps; programs stay with the links and maps that have them."""
        for number, each in enumerate(self.maps.values()):
            syscall.pin(each.fd, folder / _pin_name(number))
        self.pinned = True

    def _keep(self, descriptor: int) -> int:
        self._resources.callback(os.close, descriptor)
        return descriptor

    def _make_maps(self, written: BpfPrograms) -> None:
        unit = written.unit
        self._map("memory", syscall.ARRAY, 4, unit.memory.size, 1, shared=True)
        self._map("state", syscall.PERCPU_ARRAY, 4, unit.value_bytes, 1)
        self._map("ports", syscall.DEVMAP, 4, 4, PORTS)
        self._map("to_cpu", syscall.RINGBUF, 0, 0, RING_BYTES)
        self.capture_bytes = CAPTURE_BYTES if self._captures else mmap.PAGESIZE
        self._map("captured", syscall.RINGBUF, 0, 0, self.capture_bytes)
        member = Map("group", syscall.DEVMAP, 4, 8, 1)
        try:
            self._map("groups", syscall.ARRAY_OF_MAPS, 4, 4, GROUPS, inner=member)
        finally:
            member.close()
        self._map("replicas", syscall.HASH, REPLICA_KEY.size, 4, REPLICAS, sparse=True)
        if written.section is not None:
            types = self._keep(syscall.load_btf(lock_btf()))
            self._map(
                "locks", syscall.ARRAY, 4, LOCK_BYTES, written.section.cells + 1, btf=(types, *LOCK_TYPES)
            )
        for table in self.program.tables.values():
            if table.key:
                shape = TableShape.of(self.program, table)
                kind, key = syscall.HASH, 8 * shape.key_words
                if is_trie(self.program, table):
                    kind, key = syscall.LPM_TRIE, 4 + 8 * shape.key_words
                value = 8 + 8 * shape.entry_words
                self._map(f"table {table.name}", kind, key, value, table_rows(table))

    def _load(self, code: BpfObject) -> None:
        if code.constants:
            held = self._map("constants", syscall.ARRAY, 4, len(code.constants), 1)
            held.update(bytes(4), code.constants)
        self.programs = {
            "arrive": self._keep(syscall.load_program("arrive", linked(code, "arrive", self.maps))),
            "observe": self._keep(syscall.load_program("observe", linked(code, "copy", self.maps))),
            "copy": self._keep(syscall.load_program("copy", linked(code, "copy", self.maps), devmap=True)),
        }
        self._map("programs", syscall.PROG_ARRAY, 4, 4, len(PROGRAMS))
        self._map("copies", syscall.PROG_ARRAY, 4, 4, 1)
        for name, (where, position) in _PLACES.items():
            self.maps[where].update(struct.pack("=I", position), struct.pack("=I", self.programs[name]))

    def stub(self, name: str, values: dict[str, int]) -> int:
        """Return the program that stores `values` and goes on with ``arrive``, ``observe`` or ``copy``; made once."""
        key = (name, *values.items())
        if key not in self._stubs:
            where, position = _PLACES[name]
            content = stub(self.maps["state"].fd, self.maps[where].fd, position, values)
            self._stubs[key] = self._keep(
                syscall.load_program(f"{name}_stub", content, devmap=name == "copy")
            )
        return self._stubs[key]

    def part(self, name: str) -> NDArray[np.uint8]:
        """Return a part of the shared array."""
        at, size = self._unit.memory.parts[name]
        return self.memory[at : at + size]

    def counts(self, name: str) -> NDArray[np.uint64]:
        """Return a part that each processor has, uint64[processors, words]."""
        memory = self._unit.memory
        at, size = memory.parts[name]
        rows = self.memory[memory.counts_at :].reshape(memory.processors, memory.counts_bytes)
        return rows[:, at - memory.counts_at :][:, :size].view(np.uint64)

    def counters(self, name: str) -> NDArray[np.uint64]:
        """Return the (packets, bytes) of a part's cells, uint64[cells, processors, 2]."""
        words = self.counts(name)
        return words.reshape(len(words), -1, 2).transpose(1, 0, 2)

    def port_counts(self, port: int) -> list[int]:
        """Return what passed a port, of all processors, as `PORT_WORDS`."""
        first = len(PORT_WORDS) * port
        counts: list[int] = self.counts("ports")[:, first : first + len(PORT_WORDS)].sum(0).tolist()
        return counts

    def set_group(self, group: int, members: Sequence[tuple[int, int, int, int]]) -> None:
        """Make, replace or remove a group: (port, replica id, interface, program) of each copy."""
        key, replicas, before = struct.pack("=I", group), {}, Counter[int]()
        for port, rid, *_ in members:
            replicas[REPLICA_KEY.pack(group, port, before[port])] = struct.pack("=I", rid)
            before[port] += 1
        for place, replica in replicas.items():
            self.maps["replicas"].update(place, replica)
        if group < ROWS:
            row = np.full(PORTS, SEVERAL, np.uint16)
            for port, rid, *_ in members:
                row[port] = rid if before[port] == 1 else SEVERAL
            self.part("only replicas").view(np.uint16)[group * PORTS : (group + 1) * PORTS] = row
        if not members:
            self.maps["groups"].delete(key)
        else:
            held = Map(f"group {group}", syscall.DEVMAP, 4, 8, len(members))
            try:
                for position, (*_, interface, program) in enumerate(members):
                    with contextlib.suppress(syscall.BpfError):  # an interface that has gone
                        held.update(struct.pack("=I", position), struct.pack("=II", interface, program))
                self.maps["groups"].update(key, struct.pack("=I", held.fd))
            finally:
                held.close()
        for place in {*self.maps["replicas"].keys()} - replicas.keys():
            if place.startswith(key):
                self.maps["replicas"].delete(place)


def linked(code: BpfObject, name: str, maps: Mapping[str, Map]) -> bytes:
    """Return a function's instructions with the maps' descriptors and the helpers' numbers in them."""
    content = bytearray(code.code[name])
    for place in code.relocations[name]:
        kind, _, symbol = place.symbol.partition(".")
        if kind == "helper":
            struct.pack_into("<BBhi", content, place.offset, 0x85, 0, 0, int(symbol))
            continue
        target = content[place.offset + 1] & 15
        (addend,) = struct.unpack_from("<i", content, place.offset + 4)
        pseudo = 2 if symbol in ("memory", "constants") else 1
        content[place.offset : place.offset + 16] = load_address(target, pseudo, maps[symbol].fd, addend)
    return bytes(content)


def _pin_name(number: int) -> str:
    return f"map{number}"
