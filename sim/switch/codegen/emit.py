"""Writing LLVM functions: memory spaces that do not overlap, loads and stores by offset, loops.

Every load and store names the space it touches. Spaces never overlap, which alias scopes declare to LLVM: without
them a store to a register would make it load a packet's fields again.
"""

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir as ll

from sim.switch import ir
from sim.switch.layout import ADDRESSES, INTERNAL, Context, FieldSlot, HeaderShape, StateLayout

INLINED_PRIMITIVES = 20_000
PTR = ll.PointerType()
VOID = ll.VoidType()


def i(width: int) -> Any:
    """Return LLVM's integer type of `width` bits."""
    return ll.IntType(width)


I1, I8, I16, I32, I64 = i(1), i(8), i(16), i(32), i(64)


class Space(enum.Enum):
    """Memory that nothing in another space points into."""

    STATE = "state"
    CONTEXT = "context"
    FRAME = "frame"
    REGISTER = "register"
    TABLE = "table"
    STATISTICS = "statistics"


class Unit:
    """One LLVM module for one program.

    Attributes
    ----------
    vector_bits, frame_bytes
        The widest vectors to use; how much memory a packet's bytes have, where that must be known.
    turns_at_once
        How many turns of a run are written one after the other, where LLVM does not see to it.
    """

    vector_bits = 512
    frame_bytes = 0
    turns_at_once = 1

    def __init__(self, program: ir.Program) -> None:
        # program, state, context: the compiled program and the layouts of its memory.
        self.program = program
        self.state = StateLayout(program)
        self.context = Context(program)
        self.module = ll.Module("switch")
        # Whether the program is small enough for one function of its controls, in which an action is as often as tables call it.
        called = (len(program.actions[a].primitives) for t in program.tables.values() for a in t.actions)
        self.inlined = sum(called) <= INLINED_PRIMITIVES
        self.functions: dict[str, Any] = {}
        domain = self.module.add_metadata(["netsum"])
        scopes = {space: self.module.add_metadata([space.value, domain]) for space in Space}
        self.scope = {space: self.module.add_metadata([scopes[space]]) for space in Space}
        self.others = {
            space: self.module.add_metadata([scopes[o] for o in Space if o is not space]) for space in Space
        }

    def fn(
        self, name: str, arguments: Sequence[tuple[str, Any]], result: Any, *, exported: bool = False
    ) -> "Fn":
        """Begin a function of this unit's target."""
        return Fn(self, name, arguments, result, exported=exported)

    def declare(self, name: str, arguments: Sequence[Any], result: Any, *, exported: bool = False) -> Any:
        """Return the function `name`, declaring it at the first call."""
        if name not in self.functions:
            function = ll.Function(self.module, ll.FunctionType(result, list(arguments)), name)
            if not exported:
                function.linkage = "internal"
            function.attributes.add("nounwind")
            for argument in function.args:
                if argument.type == PTR:
                    argument.add_attribute("noalias")
            self.functions[name] = function
        return self.functions[name]

    def intrinsic(self, name: str, types: Sequence[Any], signature: Any = None) -> Any:
        """Return an LLVM intrinsic."""
        if any(isinstance(t, ll.VectorType) for t in types):
            # llvmlite does not know what LLVM calls vector types in intrinsics' names.
            (vector,) = types
            name = f"{name}.v{vector.count}{vector.element.intrinsic_name}"
            if name not in self.functions:
                self.functions[name] = ll.Function(self.module, signature, name)
            return self.functions[name]
        return self.module.declare_intrinsic(name, list(types), signature)

    def scalar_loop(self) -> Any:
        """Return a new loop's metadata, whose first operand is itself, that keeps LLVM from vectorizing it."""
        wanted = self.module.add_metadata(["llvm.loop.vectorize.enable", ll.Constant(I1, 0)])
        loop = self.module.add_metadata([f"loop {len(self.module.metadata)}"])
        loop.operands = (loop, wanted)
        return loop

    def constant_bytes(self, content: bytes) -> Any:
        """Return a pointer to constant bytes."""
        name = f"constant.{content.hex()}"[:60] + f".{len(content)}"
        if name not in self.functions:
            kind = ll.ArrayType(I8, len(content))
            variable = ll.GlobalVariable(self.module, kind, name)
            variable.global_constant = True
            variable.linkage = "internal"
            variable.align = 8
            variable.initializer = ll.Constant(kind, bytearray(content))
            variable.type = PTR
            self.functions[name] = variable
        return self.functions[name]


class Builder(ll.IRBuilder):  # type: ignore[misc]
    """llvmlite's builder; a Python integer as an operand is a constant of the other operand's type, or of the result's."""

    def select(self, cond: Any, lhs: Any, rhs: Any) -> Any:
        """Return `lhs` where a condition holds, else `rhs`."""
        return super().select(cond, _operand(lhs, rhs), _operand(rhs, lhs))

    def ret(self, return_value: Any) -> Any:
        """Return from the function."""
        return super().ret(_constant(return_value, self.function.function_type.return_type))

    def call(self, fn: Any, args: Sequence[Any]) -> Any:
        """Call a function."""
        kinds = fn.function_type.args
        return super().call(fn, [_constant(each, kind) for each, kind in zip(args, kinds, strict=True)])


def _constant(value: Any, kind: Any) -> Any:
    return ll.Constant(kind, value) if isinstance(value, int) else value


def _operand(value: Any, other: Any) -> Any:
    return _constant(value, other.type) if isinstance(value, int) else value


def _taking_integers(operation: Callable[..., Any]) -> Callable[..., Any]:
    def write(builder: Builder, *operands: Any, name: str = "") -> Any:
        *how, left, right = operands
        return operation(builder, *how, left, _operand(right, left), name=name)

    return write


_OPERATIONS = ("add", "sub", "mul", "udiv", "urem", "and_", "or_", "xor", "shl", "lshr", "ashr")
for _name in (*_OPERATIONS, "icmp_signed", "icmp_unsigned"):
    setattr(Builder, _name, _taking_integers(getattr(ll.IRBuilder, _name)))


def resize(builder: Any, value: Any, width: int, signed: bool = False) -> Any:
    """Cut or extend an integer to `width` bits."""
    have = value.type.width
    if have == width:
        return value
    if have > width:
        return builder.trunc(value, i(width))
    return builder.sext(value, i(width)) if signed else builder.zext(value, i(width))


def joined(builder: Any, parts: Iterable[tuple[Any, int]], left: int, width: int) -> Any:
    """Join integers to one of `width` bits: each has a number of bits, the first the highest of the `left` lowest."""
    value: Any = ll.Constant(i(width), 0)
    for part, size in parts:
        left -= size
        part = resize(builder, part, width)
        value = builder.or_(value, builder.shl(part, left) if left else part)
    return value


class Fn:
    """A function being written."""

    def __init__(
        self,
        unit: Unit,
        name: str,
        arguments: Sequence[tuple[str, Any]],
        result: Any,
        *,
        exported: bool = False,
    ) -> None:
        self.unit = unit
        self.function = unit.declare(name, [t for _, t in arguments], result, exported=exported)
        self.args = dict(zip((n for n, _ in arguments), self.function.args, strict=True))
        # llvmlite's builder, at the end of the written code.
        self.b: Any = Builder(self.function.append_basic_block("entry"))
        # ctx, st, params: the context, the packet's state, the action's parameters (pointers; None where the function has
        # none).
        self.ctx = self.args.get("ctx")
        self.st = self.args.get("st")
        self.params = self.args.get("params")
        if self.st is not None and unit.inlined:
            # Only where all that works on a packet is one function can its state be in registers.
            self.function.attributes.add("alwaysinline")
        self.action: ir.Action | None = None

    def at(self, pointer: Any, offset: int | Any) -> Any:
        """Return `pointer` moved by `offset` bytes."""
        if isinstance(offset, int):
            if offset == 0:
                return pointer
            offset = ll.Constant(I64, offset)
        return self.b.gep(pointer, [offset], inbounds=True, source_etype=I8)

    def load(self, space: Space, pointer: Any, kind: Any, align: int | None = None) -> Any:
        """Load a value."""
        value = self.b.load(pointer, typ=kind, align=align)
        return self._tag(space, value)

    def store(self, space: Space, value: Any, pointer: Any, align: int | None = None) -> None:
        """Store a value."""
        self._tag(space, self.b.store(value, pointer, align=align))

    def _tag(self, space: Space, instruction: Any) -> Any:
        instruction.set_metadata("alias.scope", self.unit.scope[space])
        instruction.set_metadata("noalias", self.unit.others[space])
        return instruction

    def within(self, index: Any, count: int) -> Any:
        """Return an index (i64) that is below `count` in a form that the target can check."""
        del count
        return index

    def saturate(self, op: str, left: Any, right: Any, *, unsigned: bool) -> Any:
        """Add or subtract two integers of equal width; what does not fit becomes the nearest that does."""
        name = f"llvm.{'u' if unsigned else 's'}{'add' if op == '+' else 'sub'}.sat"
        signature = ll.FunctionType(left.type, [left.type, left.type])
        return self.b.call(self.unit.intrinsic(name, [left.type], signature), [left, right])

    def add(self, space: Space, place: Any, amount: Any) -> None:
        """Add to a count (i64) that only machine code changes."""
        self.store(space, self.b.add(self.load(space, place, I64, 8), amount), place, 8)

    def word(self, index: int | str) -> Any:
        """Load a context word as an i64."""
        return self.load(Space.CONTEXT, self._word(index), I64, 8)

    def pointer(self, index: int | str) -> Any:
        """Load a context word as a pointer."""
        return self.load(Space.CONTEXT, self._word(index), PTR, 8)

    def set_word(self, index: int | str, value: Any) -> None:
        """Store an i64 into a context word."""
        self.store(Space.CONTEXT, value, self._word(index), 8)

    def bump(self, index: int | str) -> None:
        """Add one to a context word."""
        self.set_word(index, self.b.add(self.word(index), 1))

    def _word(self, index: int | str) -> Any:
        if isinstance(index, str):
            index = self.unit.context.words[index]
        return self.at(self.ctx, 8 * index)

    def mark(self, place: str) -> None:
        """Note in the code what of the P4 program the code that follows is; only BPF does, when it is asked to."""

    def internal(self, name: str, state: Any = None) -> Any:
        """Load a bookkeeping value of the packet's state as an i32, or an address."""
        kind = PTR if name in ADDRESSES else I32
        return self.load(Space.STATE, self.at(state or self.st, INTERNAL[name]), kind)

    def set_internal(self, name: str, value: Any, state: Any = None) -> None:
        """Store a bookkeeping value of the packet's state."""
        if isinstance(value, int):
            value = ll.Constant(I32, value)
        self.store(Space.STATE, value, self.at(state or self.st, INTERNAL[name]))

    def home(self) -> Any:
        """Return where the packet's state lies whole."""
        return self.internal("home")

    def place(self, offset: int, state: Any = None) -> Any:
        """Return the address of a byte of the packet's state, or of `state`, which lies whole."""
        if state is None:
            state = self.st if offset < self.unit.state.local else self.home()
        return self.at(state, offset)

    def load_slot(self, header: Any, slot: FieldSlot) -> Any:
        """Load a field as an integer of its width."""
        return resize(self.b, self.load_raw(header, slot), slot.width)

    def load_raw(self, header: Any, slot: FieldSlot) -> Any:
        """Load a field as it is stored."""
        align = min(slot.storage // 8, 8)
        return self.load(Space.STATE, self.at(header, slot.offset), i(slot.storage), align)

    def store_slot(self, header: Any, slot: FieldSlot, value: Any) -> None:
        """Store an integer of the field's width."""
        self.store_raw(header, slot, resize(self.b, value, slot.storage))

    def store_raw(self, header: Any, slot: FieldSlot, value: Any) -> None:
        """Store a field as it was loaded by `load_raw`."""
        align = min(slot.storage // 8, 8)
        self.store(Space.STATE, value, self.at(header, slot.offset), align)

    def field_pointer(self, header: str) -> Any:
        """Return a pointer to a header instance."""
        return self.place(self.unit.state.headers[header])

    def read_field(self, ref: ir.FieldRef, state: Any = None) -> Any:
        """Load a field of a header instance."""
        slot = self.unit.state.shape(ref.header).fields[ref.field]
        return self.load_slot(self.place(self.unit.state.headers[ref.header], state), slot)

    def write_field(self, ref: ir.FieldRef | None, value: Any, state: Any = None) -> None:
        """Store into a field of a header instance, cut or zero-extended; nothing if `ref` is None."""
        if ref is None:
            return
        slot = self.unit.state.shape(ref.header).fields[ref.field]
        header = self.place(self.unit.state.headers[ref.header], state)
        if isinstance(value, int):
            value = ll.Constant(i(slot.width), value % (1 << slot.width))
        self.store_slot(header, slot, resize(self.b, value, slot.width))

    def set_well_known(self, name: str, value: Any, state: Any = None) -> None:
        """Store into the field the target knows as `name`, if the program has it."""
        self.write_field(self.unit.program.well_known(name), value, state)

    def copy(self, target: Any, source: Any, size: Any) -> None:
        """Copy `size` bytes between places that do not overlap."""
        kind = ll.FunctionType(VOID, [PTR, PTR, I64, I1])
        function = self.unit.intrinsic("llvm.memcpy", [PTR, PTR, I64], kind)
        self.b.call(function, [target, source, size, 0])

    def clear(self, target: Any, size: int | Any) -> None:
        """Write `size` zero bytes."""
        kind = ll.FunctionType(VOID, [PTR, I8, I64, I1])
        self.b.call(self.unit.intrinsic("llvm.memset", [PTR, I64], kind), [target, 0, size, 0])

    def enter_state(self, name: str, cursor: Any) -> None:
        """Emit the parser's checks in a state that it enters with this many bytes (i32) behind it."""

    def load_whole(self, header: Any, shape: HeaderShape, at: Any) -> bool:
        """Load a header that lies in the state as in packets from byte `at` (i32) of the packet; return whether it is one."""
        del header, shape, at
        return False

    def prefetch(self, place: Any) -> None:
        """Bring a cache line nearer that will be read soon, or is not there."""
        kind = ll.FunctionType(VOID, [PTR, I32, I32, I32])
        self.b.call(self.unit.intrinsic("llvm.prefetch", [PTR], kind), [place, 0, 3, 1])

    def buffer(self, size: int) -> Any:
        """Return memory for `size` bytes, at any alignment."""
        return self.variable(ll.ArrayType(I8, size))

    def variable(self, kind: Any, value: Any = None, align: int | None = None) -> Any:
        """Return stack memory for one value, made in the entry block."""
        # At the block's start: behind a call that is inlined, it would no longer be in the first block, so grow the stack.
        with self.b.goto_block(self.function.entry_basic_block):
            self.b.position_at_start(self.function.entry_basic_block)
            place = self.b.alloca(kind)
            place.align = align
        # llvmlite still gives allocas typed pointers, and checks them.
        place.type = PTR
        if value is not None:
            self.b.store(_constant(value, kind), place)
        return place

    @contextmanager
    def loop(self, count: Any, *, vectorized: bool = False) -> Iterator[Any]:
        """Write a loop body that runs `count` (i64) times, often enough to vectorize it or not; yields the index."""
        counter = self.variable(I64, 0)
        head = self.b.append_basic_block("loop")
        body = self.b.append_basic_block("body")
        done = self.b.append_basic_block("done")
        self.b.branch(head)
        self.b.position_at_end(head)
        index = self.b.load(counter, typ=I64)
        self.b.cbranch(self.b.icmp_unsigned("<", index, count), body, done)
        self.b.position_at_end(body)
        yield index
        self.b.store(self.b.add(index, 1), counter)
        back = self.b.branch(head)
        if not vectorized:
            back.set_metadata("llvm.loop", self.unit.scalar_loop())
        self.b.position_at_end(done)

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function declared before."""
        return self.b.call(self.unit.functions[name], list(arguments))

    def bswap(self, value: Any) -> Any:
        """Reverse the bytes of an integer of 8·n bits."""
        width = value.type.width
        if width == 8:
            return value
        padded = (width + 15) // 16 * 16
        kind = ll.FunctionType(i(padded), [i(padded)])
        swap = self.unit.intrinsic("llvm.bswap", [i(padded)], kind)
        if padded == width:
            return self.b.call(swap, [value])
        wide = self.b.call(swap, [self.b.zext(value, i(padded))])
        return self.b.trunc(self.b.lshr(wide, 8), i(width))
