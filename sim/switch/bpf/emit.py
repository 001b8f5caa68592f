"""Writing LLVM functions for BPF: what differs from the processor's own code.

A packet's state is in a map with a value for each processor; registers, counters and defaults are in the shared array
(`memory`). There is no context: what machine code of a processor reads from it is a constant here.

The verifier follows every value. It knows an index that was masked just before its use, whatever happened to it earlier; LLVM
must not see through the mask, so the index passes an empty piece of assembly first.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from llvmlite import ir as ll

from sim.switch import ir
from sim.switch.bpf.mapped_memory import STATISTICS, BpfMemory, cells
from sim.switch.codegen.emit import I8, I32, I64, PTR, VOID, Fn, Space, Unit, i
from sim.switch.layout import Context, FieldSlot, HeaderShape, WireSlot, align
from sim.switch.switch_errors import UnsupportedProgramError

KEY_BYTES = 512
MARK = 0x4E530000  # The first number that stands for a place in the P4 source.
_INLINE_COPY, _INLINE_CLEAR = 128, 768  # Bytes; more are moved or cleared in a loop.
# Flags that a stub gives: dropped packets go to the kernel's stack; actions are noted, not done; packets are captured.
FLAGS, PASS_DROPPED, OBSERVED, CAPTURED = "clone_fields", 1, 2, 4
PROCESSOR = "passes"  # Name of the processor's number.
_PACKET_BYTES = 1 << 14  # More than any packet's.
LARGE_HEADER = 128  # Bytes; of larger headers, fields are undefined until the header is valid.
# Numbers of the kernel's helpers.
_HELPERS = {
    "map_lookup_elem": (1, PTR, [PTR, PTR]),
    "ktime_get_ns": (5, I64, []),
    "get_smp_processor_id": (8, I64, []),
    "xdp_adjust_head": (44, I64, [PTR, I64]),
    "redirect_map": (51, I64, [PTR, I64, I64]),
    "xdp_adjust_tail": (65, I64, [PTR, I64]),
    "spin_lock": (93, I64, [PTR]),
    "spin_unlock": (94, I64, [PTR]),
    "ringbuf_output": (130, I64, [PTR, PTR, I64, I64]),
    "xdp_get_buff_len": (188, I64, [PTR]),
    "xdp_load_bytes": (189, I64, [PTR, I64, PTR, I64]),
    "xdp_store_bytes": (190, I64, [PTR, I64, PTR, I64]),
}


class BpfUnit(Unit):
    """A module of BPF code for one program."""

    vector_bits = 0
    turns_at_once = 4
    marks: list[str] | None = None  # The places noted in the code; None: none are.
    # loaded, needed: how many of a packet's first bytes are loaded before it is parsed, and how many the states in `late` may
    # need, each with the bytes that it looks at.
    loaded, needed = 0, 0
    late: Mapping[str, int] = {}

    def __init__(self, program: ir.Program, frame_bytes: int, header_bytes: int) -> None:
        super().__init__(program)
        # Large headers stay as they are in packets, so that they are moved whole; few of their fields may be used.
        self.state.shapes.update({n: _as_in_packets(s) for n, s in self.state.shapes.items()})
        self.state.local = 0  # All of it lies whole, in the map.
        self.context = Context(program, lines=True)
        self.memory = BpfMemory(program, self.context)  # The parts of the shared array.
        self.frame_bytes = frame_bytes
        slack = max(
            (
                s.stride * cells(s.size + 1)
                for s in (*self.state.stacks.values(), *self.state.union_stacks.values())
            ),
            default=0,
        )
        # key_at, frame_at, value_bytes: in a processor's value of the state map, after the packet's state: where keys are
        # put together, where the packet's first bytes are, its size.
        self.key_at = align(self.state.size + slack, 64)
        self.frame_at = self.key_at + KEY_BYTES
        self.value_bytes = align(self.frame_at + frame_bytes + header_bytes + 64, 64)
        self.parts = {
            self.context.tables[t.name]["counters"]: f"direct {t.name}" for t in program.tables.values()
        }

    def fn(
        self, name: str, arguments: Sequence[tuple[str, Any]], result: Any, *, exported: bool = False
    ) -> "BpfFn":
        return BpfFn(self, name, arguments, result, exported=exported)

    def declare(self, name: str, arguments: Sequence[Any], result: Any, *, exported: bool = False) -> Any:
        function = super().declare(name, arguments, result, exported=exported)
        if not exported:
            function.attributes.add("alwaysinline")
        return function

    def map(self, name: str) -> Any:
        """Return the address that stands for a map; ``memory`` is that of the shared array's value."""
        symbol = f"map.{name}"
        if symbol not in self.functions:
            variable = ll.GlobalVariable(self.module, I8, symbol)
            variable.type = PTR
            self.functions[symbol] = variable
        return self.functions[symbol]

    def helper(self, name: str) -> Any:
        """Return a helper of the kernel."""
        number, result, arguments = _HELPERS[name]
        symbol = f"helper.{number}"
        if symbol not in self.functions:
            function = ll.Function(self.module, ll.FunctionType(result, arguments), symbol)
            function.attributes.add("nounwind")
            self.functions[symbol] = function
        return self.functions[symbol]


def is_whole(shape: HeaderShape) -> bool:
    """Whether a header lies in the state as in packets, behind its validity."""
    return isinstance(next(iter(shape.fields.values()), None), WireSlot)


def _as_in_packets(shape: HeaderShape) -> HeaderShape:
    slots = shape.fields.values()
    if (
        shape.size <= LARGE_HEADER
        or len({s.width for s in slots}) != 1
        or next(iter(slots)).width not in (16, 32, 64)
    ):
        return shape
    fields: dict[str, FieldSlot] = {
        n: WireSlot(s.offset, s.width, s.signed, s.varbit) for n, s in shape.fields.items()
    }
    return replace(shape, fields=fields)


class BpfFn(Fn):
    """A function being written for BPF."""

    unit: BpfUnit

    def helper(self, name: str, *arguments: Any) -> Any:
        """Call a helper of the kernel."""
        return self.b.call(self.unit.helper(name), list(arguments))

    def opaque(self, value: Any) -> Any:
        """Return a value of which LLVM knows nothing."""
        kind = ll.FunctionType(value.type, [value.type])
        return self.b.call(ll.InlineAsm(kind, "", "=r,0", side_effect=True), [value])

    def barrier(self) -> None:
        """Keep LLVM from using its knowledge of memory."""
        self.b.call(ll.InlineAsm(ll.FunctionType(VOID, []), "", "~{memory}", side_effect=True), [])

    def load_whole(self, header: Any, shape: HeaderShape, at: Any) -> bool:
        # `ctx` is the kernel's.
        if is_whole(shape):
            place, size = self._whole(header, shape)
            self.load_bytes(self.ctx, self.b.zext(at, I64), place, size)
        return is_whole(shape)

    def enter_state(self, name: str, cursor: Any) -> None:
        # Headers behind a large one are loaded when they are needed.
        if name in self.unit.late:
            b, unit = self.b, self.unit
            end = b.add(cursor, unit.late[name])
            with b.if_then(b.icmp_unsigned(">", end, unit.loaded), likely=False):
                self.load_first(self.ctx, b.zext(self.args["length"], I64), unit.needed)

    def load_first(self, xdp: Any, length: Any, most: int) -> tuple[Any, Any, Any]:
        """Load the packet's first bytes; return where they are, how many there are, and the helper's result."""
        b = self.b
        limit = ll.Constant(I64, most)
        first = b.select(b.icmp_unsigned("<", length, limit), length, limit)
        size = b.add(self.within(b.sub(first, 1), most), 1)
        frame = self.at(self.st, self.unit.frame_at)
        return frame, size, self.helper("xdp_load_bytes", xdp, ll.Constant(I64, 0), frame, size)

    def ends(self, xdp: Any) -> tuple[Any, Any]:
        """Return the addresses of the packet's first byte and of what follows its last; until the packet grows or shrinks."""
        b = self.b
        words = [b.load(self.at(xdp, at), typ=I32) for at in (0, 4)]
        first, end = (b.inttoptr(b.zext(word, I64), PTR) for word in words)
        return first, end

    def load_bytes(self, xdp: Any, at: Any, target: Any, size: int) -> None:
        """Copy bytes of the packet from byte `at` (i64); none if the packet has fewer."""
        b = self.b
        first, end = self.ends(xdp)
        place = self.opaque(self.at(first, self.within(at, _PACKET_BYTES)))
        with b.if_then(b.icmp_unsigned("<=", self.at(place, size), end), likely=True):
            self._each(size, target, place)

    def store_whole(self, header: Any, shape: HeaderShape, at: Any) -> None:
        """Store such a header at byte `at` (i32) of the packet."""
        b, xdp, offset = self.b, self.args["xdp"], self.b.zext(at, I64)
        source, size = self._whole(header, shape)
        first, end = self.ends(xdp)
        place = self.opaque(self.at(first, self.within(offset, _PACKET_BYTES)))
        with b.if_else(b.icmp_unsigned("<=", self.at(place, size), end), likely=True) as (linear, other):
            with linear:
                self._each(size, place, source)
            with other:
                self.helper("xdp_store_bytes", xdp, offset, source, ll.Constant(I64, size))

    def reach(self, at: Any, size: int, failed: int) -> Any:
        """Return the address of byte `at` (i32) of the packet, of which `size` are used; return `failed` if there are fewer."""
        b = self.b
        first, end = self.ends(self.args["xdp"])
        place = self.opaque(self.at(first, self.within(b.zext(at, I64), _PACKET_BYTES)))
        with b.if_then(b.icmp_unsigned(">", self.at(place, size), end), likely=False):
            self.bump("dropped_no_room")
            b.ret(failed)
        return place

    def _whole(self, header: Any, shape: HeaderShape) -> tuple[Any, int]:
        first = next(iter(shape.fields.values())).offset
        return self.at(header, first), shape.type.max_bytes

    def home(self) -> Any:
        return self.st

    def mark(self, place: str) -> None:
        # A number is stored where nothing is, and the verifier's log shows it.
        marks = self.unit.marks
        if marks is not None and place:
            unused = self.at(self.st, self.unit.frame_at - 4)
            self.store(Space.STATISTICS, ll.Constant(I32, MARK + len(marks)), unused, 4)
            self.barrier()
            marks.append(place)

    def within(self, index: Any, count: int) -> Any:
        return self.b.and_(self.opaque(index), cells(count) - 1)

    @contextmanager
    def loop(self, count: Any, *, vectorized: bool = False) -> Iterator[Any]:
        # LLVM must not make addresses of the index that the verifier cannot follow.
        del vectorized
        with super().loop(count, vectorized=True) as index:
            yield self.opaque(index)

    def buffer(self, size: int) -> Any:
        # In the state map, since a BPF program's stack is short and takes aligned accesses alone.
        if size > KEY_BYTES:
            raise UnsupportedProgramError([f"a hash of {size} bytes (most: {KEY_BYTES})"], engine="XDP")
        return self.at(self.st, self.unit.key_at)

    def saturate(self, op: str, left: Any, right: Any, *, unsigned: bool) -> Any:
        # In 64 bits, with two comparisons, where the width allows it; LLVM would take more.
        width = left.type.width
        if width > 32:
            return super().saturate(op, left, right, unsigned=unsigned)
        b = self.b
        extend = b.zext if unsigned else b.sext
        total = (b.add if op == "+" else b.sub)(extend(left, I64), extend(right, I64))
        value = self.opaque(total)
        least, most = (0, (1 << width) - 1) if unsigned else (-(1 << width - 1), (1 << width - 1) - 1)
        for bound, predicate in ((most, ">"), (least, "<")):
            limit = ll.Constant(I64, bound)
            value = b.select(b.icmp_signed(predicate, value, limit), limit, value)
        return b.trunc(value, left.type)

    def load_slot(self, header: Any, slot: FieldSlot) -> Any:
        # A field as it is in packets has its bytes reversed.
        value = super().load_slot(header, slot)
        return self.bswap(value) if isinstance(slot, WireSlot) else value

    def store_slot(self, header: Any, slot: FieldSlot, value: Any) -> None:
        super().store_slot(header, slot, self.bswap(value) if isinstance(slot, WireSlot) else value)

    def pointer(self, index: int | str) -> Any:
        # Counters have a part for each processor.
        memory = self.unit.memory
        if isinstance(index, int):
            index = self.unit.parts[index]
        if index not in memory.parts:
            raise UnsupportedProgramError([f"{index!r}"], engine="XDP")
        first = memory.parts[index][0]
        place = self.at(self.unit.map("memory"), first)
        if first < memory.counts_at:
            return place
        processor = self.within(self.b.zext(self.internal(PROCESSOR), I64), memory.processors)
        return self.at(place, self.b.mul(processor, memory.counts_bytes))

    def word(self, index: int | str) -> Any:
        if index == "now_us":
            return self.b.udiv(self.helper("ktime_get_ns"), 1000)
        raise UnsupportedProgramError([f"{index!r}"], engine="XDP")

    def set_word(self, index: int | str, value: Any) -> None:
        raise UnsupportedProgramError([f"{index!r}"], engine="XDP")

    def bump(self, index: int | str) -> None:
        assert isinstance(index, str)
        place = self.at(self.pointer("words"), 8 * STATISTICS.index(index))
        self.add(Space.STATISTICS, place, 1)

    def cell(self, name: str, state: Any = None) -> Any:
        """Load a bookkeeping value from memory, so that the verifier forgets its origin."""
        self.barrier()
        return self.internal(name, state)

    def _words(self, size: int | Any, what: str) -> int:
        if not isinstance(size, int):
            raise UnsupportedProgramError([f"{what} of a length that depends on the packet"], engine="XDP")
        return size

    def copy(self, target: Any, source: Any, size: Any) -> None:
        self._each(self._words(size, "a copy"), target, source)

    def clear(self, target: Any, size: int | Any) -> None:
        self._each(self._words(size, "a space"), target, None)

    def _each(self, size: int, target: Any, source: Any) -> None:
        """Copy, or clear where `source` is None: 8 bytes at a time, in a loop where there are many."""

        def act(target: Any, source: Any, at: int, kind: Any) -> None:
            value = (
                ll.Constant(kind, 0)
                if source is None
                else self.b.load(self.at(source, at), typ=kind, align=1)
            )
            self.b.store(value, self.at(target, at), align=1)

        at = 0
        if size > (_INLINE_CLEAR if source is None else _INLINE_COPY):
            with self.loop(size // 64) as index:
                start = self.b.mul(index, 64)
                places = self.at(target, start), None if source is None else self.at(source, start)
                for n in range(8):
                    act(*places, 8 * n, I64)
            at = size // 64 * 64
        while at < size:
            width = next(w for w in (8, 4, 2, 1) if at + w <= size)
            act(target, source, at, i(8 * width))
            at += width

    def returns(self, condition: Any, value: int) -> None:
        """Return `value` where `condition` holds."""
        with self.b.if_then(condition):
            self.b.ret(value)
