"""Maps and programs of one switch in the kernel."""

import contextlib
import os
import struct
from contextlib import ExitStack

import numpy as np
from numpy.typing import NDArray

from sim.switch import ir
from sim.switch.bpf import syscall
from sim.switch.bpf.btf import LOCK_BYTES, LOCK_TYPES, lock_btf
from sim.switch.bpf.controls import is_trie
from sim.switch.bpf.memory import table_rows
from sim.switch.bpf.objects import BpfObject
from sim.switch.bpf.programs import PROGRAMS, Programs
from sim.switch.bpf.stubs import load_address, stub
from sim.switch.bpf.syscall import Map
from sim.switch.table_layout import TableShape

PORTS, GROUPS, RING_BYTES = 512, 4096, 1 << 18


class Kernel:
    """The maps and programs; `close` lets go of all.

    Attributes
    ----------
    memory
        The shared array, uint8[n].
    """

    def __init__(self, program: ir.Program, written: Programs, code: BpfObject) -> None:
        self.program, self._unit = program, written.unit
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
        """Let go of maps and programs; what is attached elsewhere stays."""
        self._resources.close()

    def _map(self, name: str, kind: int, key: int, value: int, entries: int, **options: object) -> Map:
        made = Map(name, kind, key, value, entries, **options)  # type: ignore[arg-type]
        self._resources.callback(made.close)
        self.maps[name] = made
        return made

    def _keep(self, descriptor: int) -> int:
        self._resources.callback(os.close, descriptor)
        return descriptor

    def _make_maps(self, written: Programs) -> None:
        unit = written.unit
        self._map("memory", syscall.ARRAY, 4, unit.memory.size, 1, shared=True)
        self._map("state", syscall.PERCPU_ARRAY, 4, unit.value_bytes, 1)
        self._map("ports", syscall.DEVMAP, 4, 4, PORTS)
        self._map("to_cpu", syscall.RINGBUF, 0, 0, RING_BYTES)
        member = Map("group", syscall.DEVMAP, 4, 8, 1)
        try:
            self._map("groups", syscall.HASH_OF_MAPS, 4, 4, GROUPS, inner=member)
        finally:
            member.close()
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
            "arrive": self._keep(syscall.load_program("arrive", self._linked(code, "arrive"))),
            "observe": self._keep(syscall.load_program("observe", self._linked(code, "copy"))),
            "copy": self._keep(syscall.load_program("copy", self._linked(code, "copy"), devmap=True)),
        }
        self._map("programs", syscall.PROG_ARRAY, 4, 4, len(PROGRAMS))
        self._map("copies", syscall.PROG_ARRAY, 4, 4, 1)
        for where, position, name in (
            ("programs", 0, "arrive"),
            ("programs", 1, "observe"),
            ("copies", 0, "copy"),
        ):
            self.maps[where].update(struct.pack("=I", position), struct.pack("=I", self.programs[name]))

    def _linked(self, code: BpfObject, name: str) -> bytes:
        """Return a function's instructions with the maps' descriptors and the helpers' numbers in them."""
        linked = bytearray(code.code[name])
        for place in code.relocations[name]:
            kind, _, symbol = place.symbol.partition(".")
            if kind == "helper":
                struct.pack_into("<BBhi", linked, place.offset, 0x85, 0, 0, int(symbol))
                continue
            target = linked[place.offset + 1] & 15
            (addend,) = struct.unpack_from("<i", linked, place.offset + 4)
            pseudo = 2 if symbol in ("memory", "constants") else 1
            linked[place.offset : place.offset + 16] = load_address(
                target, pseudo, self.maps[symbol].fd, addend
            )
        return bytes(linked)

    def stub(self, name: str, values: dict[str, int]) -> int:
        """Return the program that stores `values` and goes on with ``arrive``, ``observe`` or ``copy``; made once."""
        key = (name, *values.items())
        if key not in self._stubs:
            where, position = {"arrive": ("programs", 0), "observe": ("programs", 1), "copy": ("copies", 0)}[
                name
            ]
            content = stub(self.maps["state"].fd, self.maps[where].fd, position, values)
            self._stubs[key] = self._keep(
                syscall.load_program(f"{name}_stub", content, devmap=name == "copy")
            )
        return self._stubs[key]

    def part(self, name: str) -> NDArray[np.uint8]:
        """Return a part of the shared array."""
        at, size = self._unit.memory.parts[name]
        return self.memory[at : at + size]

    def set_group(self, group: int, members: list[tuple[int, int]]) -> None:
        """Make or replace a group: (interface, program) of each copy."""
        key = struct.pack("=I", group)
        if not members:
            self.maps["groups"].delete(key)
            return
        held = Map(f"group {group}", syscall.DEVMAP, 4, 8, len(members))
        try:
            for position, member in enumerate(members):
                with contextlib.suppress(syscall.BpfError):  # an interface that has gone
                    held.update(struct.pack("=I", position), struct.pack("=II", *member))
            self.maps["groups"].update(key, struct.pack("=I", held.fd))
        finally:
            held.close()
