"""BPF code for a control: tables are maps of the kernel, registers are used under a lock."""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir as ll

from sim.switch import ir
from sim.switch.bpf.emit import FLAGS, PASS_DROPPED, BpfFn, BpfUnit
from sim.switch.bpf.mapped_memory import one_entry_words
from sim.switch.bpf.sections import Section, critical_section
from sim.switch.codegen.actions import DROP
from sim.switch.codegen.emit import I32, I64, PTR, VOID, Space, resize
from sim.switch.codegen.expressions import Expressions
from sim.switch.codegen.pipeline import ControlWriter
from sim.switch.codegen.tables import key_words
from sim.switch.switch_errors import UnsupportedProgramError
from sim.switch.table_layout import TableShape

# In the word in front of a table's default action, whose lowest bit says which of two copies counts: whether the table has
# entries, and whether it has one, whose key and record lie behind the default action, and in which of two copies.
HAS_ENTRIES, HAS_ONE, IN_SECOND = 2, 4, 8


def is_trie(program: ir.Program, table: ir.Table) -> bool:
    """Whether a table is a trie, not a hash table; `UnsupportedProgramError` if it is neither."""
    kinds = [k.kind for k in table.key]
    if all(kind in ("exact", "valid") for kind in kinds):
        return False
    if kinds[-1] == "lpm" and all(kind in ("exact", "valid") for kind in kinds[:-1]):
        return True
    other = next(k for k in table.key if k.kind not in ("exact", "valid"))
    where = f" at {table.place}" if table.place else ""
    what = f"the key {other.name} of table {table.name}{where}, which is {other.kind} (exact, and one lpm as the last, are)"
    raise UnsupportedProgramError([what], program.path, "XDP")


def write_control(unit: BpfUnit, pipeline: ir.Pipeline) -> Section | None:
    """Write ``ingress(ctx, st)`` or ``egress(ctx, st)``; return its critical section."""
    section = critical_section(unit.program, pipeline)
    fn = unit.fn(pipeline.name, [("ctx", PTR), ("st", PTR)], VOID)
    _BpfControl(fn, pipeline, section).write()
    return section


class _BpfControl(ControlWriter):
    fn: BpfFn

    def __init__(self, fn: Any, pipeline: ir.Pipeline, section: Section | None) -> None:
        super().__init__(fn, pipeline, {})
        self.section = section
        self._edges: dict[tuple[bool, str | None], Any] = {}
        self._lock = fn.variable(PTR) if section else None
        names = section.early if section else ()
        self._early = {name: (fn.variable(I64), fn.variable(PTR)) for name in names}

    def _inside(self, node: str | None) -> bool:
        return self.section is not None and node in self.section.nodes

    def block(self, name: str | None) -> Any:
        before, after = self._inside(self.node), self._inside(name)
        if before == after:
            return super().block(name)
        if (before, name) not in self._edges:
            b = self.fn.b
            edge = self._edges[before, name] = b.append_basic_block("unlock" if before else "lock")
            with b.goto_block(edge):
                if before:
                    self.fn.helper("spin_unlock", b.load(self._lock, typ=PTR))
                else:
                    self._enter()
                b.branch(super().block(name))
        return self._edges[before, name]

    def _enter(self) -> None:
        """Do what needs helpers, then lock."""
        fn, b, section = self.fn, self.fn.b, self.section
        assert section is not None
        for name in section.early:
            found, record = self._search(self.pipeline.tables[name])
            b.store(found, self._early[name][0])
            b.store(record, self._early[name][1])
        index = ll.Constant(I64, 0)
        if section.index is not None:
            index, _ = self.expressions.bounded_index(section.index, section.cells)
        key = fn.at(fn.st, fn.unit.key_at)
        fn.store(Space.STATISTICS, resize(b, index, 32), key, 4)
        lock = fn.helper("map_lookup_elem", fn.unit.map("locks"), key)
        gone = b.append_basic_block("no_lock")
        locked = b.append_basic_block("locked")
        b.cbranch(b.icmp_unsigned("==", lock, ll.Constant(PTR, None)), gone, locked)
        b.position_at_end(gone)
        fn.set_internal("exit", DROP)
        b.branch(self.end)
        b.position_at_end(locked)
        b.store(lock, self._lock)
        # The program owns a packet of which it keeps a part: none of it goes on to the kernel's stack.
        fn.set_internal(FLAGS, b.and_(fn.internal(FLAGS), ~PASS_DROPPED))
        fn.helper("spin_lock", lock)

    def find(self, table: ir.Table) -> tuple[Any, Any]:
        if table.name in self._early:
            number, record = self._early[table.name]
            return self.fn.b.load(number, typ=I64), self.fn.b.load(record, typ=PTR)
        return self._search(table)

    def _search(self, table: ir.Table) -> tuple[Any, Any]:
        """Look a table's map up; a value is the entry's number, then its action and arguments."""
        fn, b = self.fn, self.fn.b
        fn.mark(table.place or f"table {table.name}")
        shape = TableShape.of(fn.unit.program, table)
        # Two copies of the default, and which one counts, so that it changes at once; beside it, whether there are entries.
        default = fn.pointer(f"default {table.name}")
        word = fn.load(Space.TABLE, default, I64, 8)
        which = b.and_(fn.opaque(word), 1)
        size = ll.Constant(I64, 8 * shape.entry_words)
        missed = fn.at(default, b.add(b.mul(which, size), 8))
        if not table.key:
            return ll.Constant(I64, 0), missed
        number, record = fn.variable(I64, 0), fn.variable(PTR, missed)
        entries = b.and_(word, HAS_ENTRIES)
        with b.if_then(b.icmp_unsigned("!=", entries, 0)):
            words = key_words(Expressions(fn), table, shape)
            one = b.icmp_unsigned("!=", b.and_(word, HAS_ONE), 0)
            with b.if_else(one, likely=False) as (single, several):
                with single:
                    second = b.and_(b.lshr(fn.opaque(word), 3), 1)
                    offset = b.mul(second, 8 * one_entry_words(shape))
                    place = fn.at(default, b.add(offset, 8 + 16 * shape.entry_words))
                    differs = ll.Constant(I64, 0)
                    for n, value in enumerate(words):
                        held = fn.load(Space.TABLE, fn.at(place, 8 * n), I64, 8)
                        differs = b.or_(differs, b.xor(held, value))
                    with b.if_then(b.icmp_unsigned("==", differs, 0)):
                        place = fn.at(place, 8 * shape.key_words)
                        b.store(fn.load(Space.TABLE, place, I64, 8), number)
                        b.store(fn.at(place, 8), record)
                with several:
                    key = fn.at(fn.st, fn.unit.key_at)
                    self._write_key(table, words, key)
                    found = fn.helper("map_lookup_elem", fn.unit.map(f"table {table.name}"), key)
                    with b.if_then(b.icmp_unsigned("!=", found, ll.Constant(PTR, None))):
                        known = fn.opaque(found)
                        b.store(fn.load(Space.TABLE, known, I64, 8), number)
                        b.store(fn.at(known, 8), record)
        return b.load(number, typ=I64), b.load(record, typ=PTR)

    def _write_key(self, table: ir.Table, words: Sequence[Any], key: Any) -> None:
        fn, b = self.fn, self.fn.b
        if not is_trie(fn.unit.program, table):
            for n, word in enumerate(words):
                fn.store(Space.STATISTICS, word, fn.at(key, 8 * n), 8)
            return
        # A trie compares bytes, the first bit first.
        width = sum(k.width for k in table.key)
        fn.store(Space.STATISTICS, ll.Constant(I32, width), key, 4)
        wide = ll.IntType(64 * len(words))
        value = ll.Constant(wide, 0)
        for n, word in enumerate(words):
            value = b.or_(value, b.shl(resize(b, word, wide.width), 64 * n))
        left = b.shl(value, wide.width - width) if wide.width > width else value
        fn.store(Space.STATISTICS, fn.bswap(left), fn.at(key, 4), 4)
