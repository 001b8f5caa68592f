"""A switch in the kernel: a compiled program as XDP, with the control plane of the embedded switch."""

import re
import struct
import sys
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsum_common.switch_options import CPU_PORT
from netsum_common.targets import TARGETS
from sim.switch import ir
from sim.switch.bpf import syscall
from sim.switch.bpf.controls import HAS_ENTRIES, HAS_ONE, IN_SECOND, is_trie
from sim.switch.bpf.emit import CAPTURED, FLAGS, MARK, OBSERVED
from sim.switch.bpf.loading import RING_BYTES, Kernel
from sim.switch.bpf.machine import compile_module
from sim.switch.bpf.mapped_memory import STATISTICS, table_rows
from sim.switch.bpf.programs import (
    GROUP_VERDICT,
    PORT,
    REPLICA,
    XDP_REDIRECT,
    XDP_TX,
    write_programs,
)
from sim.switch.bpf.ring import Ring
from sim.switch.control_plane import ControlPlane
from sim.switch.entries import TableEntry
from sim.switch.packets import Packets
from sim.switch.replication import Replica
from sim.switch.saved_state import Digest
from sim.switch.table_memory import TableMemory


class XdpSwitch(ControlPlane):
    """A running v1model program in the kernel.

    `cpu_port`: the switch port to and from the controller. `captures`: whether packets are captured. `lasting`: whether it
    will be pinned, so that later processes may capture packets. `pins`: where another process pinned maps, to be taken over,
    and the identity of their code: entries and groups are then to be written again, and take effect with `go_live`. Raises
    UnsupportedProgramError if the program has what XDP cannot do. Raises VerifierError if the kernel's verifier refuses it.
    Raises BpfError if the kernel does, or there is no right to BPF.
    """

    growth_bytes = TARGETS["xdp"].growth_bytes

    def __init__(
        self,
        program: ir.Program,
        cache_dir: str | PathLike[str] | None = None,
        *,
        cpu_port: int = CPU_PORT,
        captures: bool = False,
        lasting: bool = False,
        pins: tuple[Path, bytes] | None = None,
    ) -> None:
        written = write_programs(program, cpu_port)
        code = compile_module(str(written.unit.module), program.path, cache_dir)
        try:
            self.kernel = Kernel(program, written, code, captures=captures or lasting, pins=pins)
        except syscall.VerifierError as error:
            raise _with_place(error, program, cpu_port) from None
        super().__init__(program, written.unit.context)
        self._interfaces: dict[int, int] = {}
        self._cpu_port = cpu_port
        self._flags = CAPTURED if captures else 0
        self._ring = Ring(self.kernel.maps["to_cpu"].fd, RING_BYTES)
        self.captured = Ring(self.kernel.maps["captured"].fd, self.kernel.capture_bytes)
        # While a switch is taken over: by table, the number of each entry in the kernel, by its key.
        self._held: dict[str, dict[bytes, int]] | None = None
        if pins is None:
            self._share_memory()
        else:
            self._held = self._held_entries()

    def close(self) -> None:
        """Let go of programs and maps."""
        self._ring.close()
        self.captured.close()
        self.kernel.close()

    def _share_memory(self) -> None:
        """Make the control plane read and write the memory that programs use."""
        kernel, externs = self.kernel, self._externs
        for group, memory in enumerate(externs.registers):
            externs.registers[group] = kernel.part(f"register {group}")[: len(memory)]
        for name, array in externs.counters.items():
            externs.counters[name] = kernel.counters(f"counter {name}")[: len(array)]
        self._verdict = kernel.part("verdict").view(np.uint64)
        for table in self._tables.values():
            rows = table_rows(table.table) + 1
            table.records = _larger(table.records, rows)
            table.meters = _larger(table.meters, rows)
            counters = _larger(table.counters, rows)
            if table.table.key and table.table.with_counters:
                counters = kernel.counters(f"direct {table.table.name}")
            table.counters = counters
            self._push_default(table)
            for number in table.entries:
                self._push(table, number)

    # Taking over.

    def _held_entries(self) -> dict[str, dict[bytes, int]]:
        """Read which entries the maps hold that another process has pinned; the same are to be written again."""
        found = {}
        for table in self._tables.values():
            if table.table.key:
                held = self.kernel.maps[f"table {table.table.name}"]
                values = ((key, held.lookup(key) or bytes(8)) for key in list(held.keys()))
                found[table.table.name] = {k: int.from_bytes(v[:8], sys.byteorder) for k, v in values}
                rows = 2 * table_rows(table.table) + 2
                table.records, table.counters, table.meters = (
                    _larger(a, rows) for a in (table.records, table.counters, table.meters)
                )
        return found

    def go_live(self) -> None:
        """Take over for good: all entries and groups have been written again, and the kernel's are made the same."""
        if self._held is None:
            return
        with self._lock:
            for name, held in self._held.items():
                table = self._tables[name]
                ours = {self._key(table, entry) for entry in table.entries.values()}
                for key in held.keys() - ours:
                    self.kernel.maps[f"table {name}"].delete(key)
                table.free = sorted(set(range(1, max(table.entries, default=0))) - table.entries.keys())
            groups = self.kernel.maps["groups"]
            for group in set(range(groups.entries)) - set(self._replication.groups):
                if groups.lookup(struct.pack("=I", group)) is not None:
                    self.kernel.set_group(group, ())
            self._held = None
            self._share_memory()

    def _number_as_held(self, memory: TableMemory, entry: TableEntry) -> None:
        """Have the next entry get the number that it has in the kernel, whose counters go on."""
        assert self._held is not None
        held = self._held[memory.table.name]
        taken = {*held.values(), *memory.entries}
        number = held.get(self._key(memory, entry))
        if number is None or number in memory.entries:
            number = next(n for n in range(1, len(taken) + 2) if n not in taken)
        memory.free = [number]

    # Tables.

    def _key(self, table: TableMemory, entry: TableEntry) -> bytes:
        value, mask = table._key(entry)
        size = 8 * table.shape.key_words
        if not is_trie(self.program, table.table):
            return value.to_bytes(size, "little")
        width = sum(k.width for k in table.table.key)
        return struct.pack("=I", mask.bit_count()) + (value << (8 * size - width)).to_bytes(size, "big")

    def _push(self, table: TableMemory, number: int) -> None:
        if self._held is not None:
            return
        key, record = self._key(table, table.entries[number]), self._record(table, number)
        self.kernel.maps[f"table {table.table.name}"].update(key, record)
        self._note_entries(table)

    def _record(self, table: TableMemory, number: int) -> bytes:
        return bytes(struct.pack("=Q", number) + table.records[number].tobytes())

    def _note_entries(self, table: TableMemory) -> None:
        """Say whether a table has entries, and which if it is one: the map is looked up only where there are more."""
        words = self.kernel.part(f"default {table.table.name}").view(np.uint64)
        state = int(words[0]) & (1 | IN_SECOND) | (HAS_ENTRIES if table.entries else 0)
        words[0] = state
        if len(table.entries) == 1 and not is_trie(self.program, table.table):
            ((number, entry),) = table.entries.items()
            held = np.frombuffer(self._key(table, entry) + self._record(table, number), np.uint64)
            state ^= IN_SECOND  # A packet under way may still be at the other copy.
            at = 1 + 2 * table.shape.entry_words + (held.size if state & IN_SECOND else 0)
            words[at : at + held.size] = held
            words[0] = state | HAS_ONE

    def _push_default(self, table: TableMemory) -> None:
        if self._held is not None:
            return
        words = self.kernel.part(f"default {table.table.name}").view(np.uint64)
        size = table.shape.entry_words
        which = 1 - int(words[0] & np.uint64(1))
        words[1 + which * size : 1 + (which + 1) * size] = table.records[0, :size]
        words[0] = int(words[0]) & ~1 | which

    def table_insert(self, table: str, entry: TableEntry) -> None:
        with self._lock:
            memory = self._table(table)
            if self._held is not None and memory.table.key and len(entry.key) == len(memory.table.key):
                self._number_as_held(memory, entry)
            super().table_insert(table, entry)
            self._push(memory, memory.number(entry))

    def table_modify(self, table: str, entry: TableEntry) -> None:
        with self._lock:
            super().table_modify(table, entry)
            memory = self._tables[table]
            self._push(memory, memory.number(entry))

    def table_delete(self, table: str, entry: TableEntry) -> None:
        with self._lock:
            memory = self._table(table)
            key = (
                self._key(memory, entry) if memory.numbers.get(memory._identity(entry)) is not None else None
            )
            super().table_delete(table, entry)
            if key is not None and self._held is None:
                self.kernel.maps[f"table {table}"].delete(key)
                self._note_entries(memory)

    def table_set_default(self, table: str, action: str, params: Sequence[int] = ()) -> None:
        with self._lock:
            super().table_set_default(table, action, params)
            self._push_default(self._tables[table])

    def table_reset_default(self, table: str) -> None:
        with self._lock:
            super().table_reset_default(table)
            self._push_default(self._tables[table])

    # Replication.

    def mcast_set(self, group: int, replicas: Sequence[Replica]) -> None:
        with self._lock:
            super().mcast_set(group, replicas)
            self._push_group(group)

    def mcast_delete(self, group: int) -> None:
        with self._lock:
            super().mcast_delete(group)
            self._push_group(group)

    def _push_group(self, group: int) -> None:
        if self._held is not None:
            return
        members = [
            (port, rid, self._interfaces[port], self.kernel.stub("copy", {PORT: port, FLAGS: self._flags}))
            for port, rid in self._replication.groups.get(group, ())
            if port in self._interfaces
        ]
        self.kernel.set_group(group, members)

    def set_interfaces(self, indices: dict[int, int]) -> None:
        """Say which interface of the kernel each switch port is."""
        with self._lock:
            for port in set(self._interfaces) | set(indices):
                if self._interfaces.get(port) != indices.get(port):
                    key = struct.pack("=I", port)
                    if port in indices:
                        self.kernel.maps["ports"].update(key, struct.pack("=I", indices[port]))
                    else:
                        self.kernel.maps["ports"].delete(key)
            self._interfaces = dict(indices)
            for group in self._replication.groups:
                self._push_group(group)

    # Packets.

    def send(self, frame: bytes, ifindex: int) -> None:
        """Run a packet from the controller through the program; what leaves really leaves."""
        stub = self.kernel.stub("arrive", {"ingress_port": self._cpu_port, FLAGS: 0})
        syscall.run_once(stub, frame.ljust(16, b"\0"), live=True, ifindex=ifindex)

    def for_controller(self, timeout_s: float) -> list[bytes]:
        """Wait for packets that left by the port to the controller, and return them."""
        return self._ring.packets(timeout_s)

    @property
    def statistics(self) -> dict[str, int]:
        """Packets dropped since the switch started, by reason."""
        return dict(zip(STATISTICS, self.kernel.counts("words").sum(0).tolist(), strict=True))

    def inject(self, packets: Packets, now_ns: int = 0, *, copy: bool = True) -> Packets:
        """Run packets through the programs by the kernel's test runs.

        A test run of the kernel shows the program's changes to its one packet, but sends nothing. The copies that
        multicast would make are made here: the program for copies runs for each replica of the group in turn, on the
        packet as the first program left it, as in the kernel.
        """
        del now_ns, copy
        left: list[tuple[int, bytes]] = []
        with self._lock:
            for port, frame in packets:
                left += self._run(port, frame)
        return Packets.of(left)

    def _run(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        arrive = self.kernel.stub("arrive", {"ingress_port": port, FLAGS: OBSERVED})
        outcome = syscall.run_once(arrive, frame)
        verdict = int(self._verdict[0])
        if outcome.action == XDP_TX:
            return [(verdict, outcome.packet)]
        if outcome.action != XDP_REDIRECT:
            return []
        left = []
        for member, rid in self._replication.groups.get(verdict - GROUP_VERDICT, ()):
            stub = self.kernel.stub("observe", {PORT: member, REPLICA: rid, FLAGS: OBSERVED})
            copied = syscall.run_once(stub, outcome.packet)
            if copied.action == XDP_TX:
                left.append((member, copied.packet))
        return left

    def save_state(self) -> Any:
        """Return the entries and groups; what packets change goes on changing, so it is not kept."""
        with self._lock:
            tables = {n: (list(t.entries.values()), t.default) for n, t in self._tables.items()}
            return tables, dict(self._replication.groups)

    def restore_state(self, state: Any) -> None:
        """Go back to saved entries and groups; unchanged ones are not touched."""
        tables, groups = state
        with self._lock:
            for name, (entries, default) in tables.items():
                table = self._tables[name]
                wanted = {table._identity(entry): entry for entry in entries}
                for entry in list(table.entries.values()):
                    if table._identity(entry) not in wanted:
                        self.table_delete(name, entry)
                for identity, entry in wanted.items():
                    number = table.numbers.get(identity)
                    if number is None:
                        self.table_insert(name, entry)
                    elif table.entries[number] != entry:
                        self.table_modify(name, entry)
                if table.default != default:
                    self.table_set_default(name, default.action, default.params)
            for group in set(self._replication.groups) - set(groups):
                self.mcast_delete(group)
            for group, replicas in groups.items():
                if self._replication.groups.get(group) != replicas:
                    self.mcast_set(group, replicas)

    def drain_digests(self) -> list[Digest]:
        """Return nothing: programs with digests are refused."""
        return []


def _with_place(error: syscall.VerifierError, program: ir.Program, cpu_port: int) -> syscall.VerifierError:
    """Add where in the P4 source the verifier stopped: the last place on its way, in a program that notes them."""
    marks: list[str] = []
    written = write_programs(program, cpu_port, marks)
    try:
        Kernel(program, written, compile_module(str(written.unit.module), program.path)).close()
    except syscall.VerifierError as again:
        found = [int(number) - MARK for number in re.findall(r": \(.*\) .* = (\d+)", again.log)]
        place = next((marks[n] for n in reversed(found) if 0 <= n < len(marks)), "")
        if place:
            return syscall.VerifierError(f"{again}, at {place}", again.log)
    return error


def _larger(array: NDArray[Any], rows: int) -> NDArray[Any]:
    result = np.zeros((max(rows, len(array)), *array.shape[1:]), array.dtype)
    result[: len(array)] = array
    return result
