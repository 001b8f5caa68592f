"""The two programs for XDP: ``arrive``, for each packet at an interface, and ``copy``, for each copy that multicast makes.

A packet's first bytes are copied into the state map and parsed there; large headers of equal fields are copied to where they are
used. The packet then grows or shrinks, at its end if it has nothing but headers, else at its start, and the headers are written
into it. A copy finds what egress needs to know of it in front of its headers, where ``arrive`` wrote it.

Each interface has two small programs of its own in front (`stubs`), for packets and for copies, which say which port it is. They
do not say which replica a copy is: all copies that wait for an interface go through the program of the first one's entry
(`bq_enqueue` in the kernel's devmap.c). A packet's copies come on its processor in the group's order, so ``copy`` counts them and
looks up the replica with this count, unless its group has one copy at the port.
"""

import struct
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from llvmlite import ir as ll

from sim.switch import ir
from sim.switch.bpf.controls import write_control
from sim.switch.bpf.emit import (
    CAPTURED,
    FLAGS,
    LARGE_HEADER,
    OBSERVED,
    PASS_DROPPED,
    PROCESSOR,
    BpfFn,
    BpfUnit,
    is_whole,
)
from sim.switch.bpf.limits import check_program
from sim.switch.bpf.mapped_memory import PORT_WORDS, PORTS, ROWS, SEVERAL, cells
from sim.switch.bpf.sections import Section
from sim.switch.codegen.actions import DROP, DROP_PORT, Primitives, write_actions
from sim.switch.codegen.deparser import header_room
from sim.switch.codegen.emit import I32, I64, PTR, VOID, Space, i, resize
from sim.switch.codegen.hashing import write_hash_functions, write_update
from sim.switch.codegen.parser import write_parser
from sim.switch.codegen.pipeline import egress_spec, set_egress_metadata
from sim.switch.codegen.queued import clear_all_but
from sim.switch.codegen.wire import extract_header, write_header
from sim.switch.layout import INTERNAL, StateLayout
from sim.switch.switch_errors import UnsupportedProgramError

PROGRAMS = ("arrive", "copy")
ABORTED, XDP_DROP, XDP_PASS, XDP_TX, XDP_REDIRECT = range(5)
GROUP_VERDICT = 1 << 16
CAPTURE = struct.Struct(
    "=QHHI"
)  # In front of a captured packet: ns of the monotonic clock, port, way (1: out), length.
_BROADCAST = 1 << 3
_NORMAL, _REPLICATED = 0, 5
_MOST_CARRIED = 192
# Bookkeeping of other kinds of targets that this one uses otherwise.
PORT, REPLICA, CURSOR, GROUP = "egress_port", "replica_count", "replica_next", "replica_offset"
NUMBER = "clone_session"
KEPT = "digest"  # Bytes of the last header if it lies behind the headers in the packet, where it may stay.
REPLICA_KEY = struct.Struct("=III")  # Group, port, how many copies of the packet came before at this port.


@dataclass(frozen=True)
class Carried:
    """Values that a packet for a group carries in front: (offset in the state, bytes) each, and headers with their validity."""

    places: tuple[tuple[int, int], ...]
    headers: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """How many bytes it takes."""
        return sum(size for _, size in self.places) + len(self.headers)


@dataclass(frozen=True)
class BpfPrograms:
    """A written module, and the data that its user needs."""

    unit: BpfUnit
    carried: Carried
    section: Section | None


def write_programs(program: ir.Program, cpu_port: int, marks: list[str] | None = None) -> BpfPrograms:
    """Write both programs; `UnsupportedProgramError` if the program has what XDP cannot do.

    `marks`: to be filled with places in the P4 source; where the code reaches one, it stores `MARK` and its index.
    """
    check_program(program)
    carried = _carried(program)
    room = header_room(program) + carried.bytes
    largest = max((t.max_bytes for t in program.header_types.values()), default=0)
    frame = cells(max(_most_parsed(program), room, 64))
    unit = BpfUnit(program, frame, largest)
    unit.marks = marks
    whole = {name for name in program.headers if is_whole(unit.state.shape(name))}
    unit.needed = cells(max(_most_parsed(program, whole), 64))
    unit.late = _states_behind(program, whole)
    unit.loaded = cells(max(_most_parsed(program, whole, skipped=True), 64)) if unit.late else unit.needed
    write_hash_functions(unit)
    write_actions(unit)
    write_parser(unit)
    section = write_control(unit, program.ingress)
    if write_control(unit, program.egress) is not None:
        raise UnsupportedProgramError(
            ["registers in egress: in XDP, registers belong to ingress"], program.path, "XDP"
        )
    _write_deparser(unit)
    _write_leave(unit)
    _Arrive(unit, carried, cpu_port).write()
    _Copy(unit, carried, cpu_port).write()
    return BpfPrograms(unit, carried, section)


def _bytes_read(
    program: ir.Program, state: ir.ParseState, whole: Collection[str], behind: int, *, skipped: bool = False
) -> int:
    """Return the most bytes that are read from a state on, of which `behind` after its operations.

    `whole`: headers that are not read here, if nothing that is comes after them, or with `skipped` in any case.
    """
    looks = [p.offset + p.width for p in ir.parts((state.ops, state.key)) if isinstance(p, ir.Lookahead)]
    here = max([behind, *((bits + 7) // 8 for bits in looks)])
    for op in reversed(state.ops):
        if op.op.startswith("extract "):
            target = op.args[0]
            assert isinstance(target, ir.Vector)
            assert isinstance(target.items[0], ir.Text)
            instance = target.items[0].text
            stack = program.stacks.get(instance)
            passed_over = instance in whole and (skipped or not here)
            if (stack is not None or instance in program.headers) and not passed_over:
                here += program.headers[stack.members[0] if stack else instance].type.max_bytes
        elif op.op == "advance":
            here += op.args[0].value // 8 if isinstance(op.args[0], ir.Const) else 1 << 11
    return here


def _most_parsed(program: ir.Program, whole: Collection[str] = (), *, skipped: bool = False) -> int:
    """Return the most bytes that the parser looks at, of a parser without loops; else plenty. Arguments as `_bytes_read`."""
    known: dict[str | None, int] = {None: 0}

    def most(name: str, active: frozenset[str]) -> int:
        if name in active:
            return 1 << 11
        if name not in known:
            state = program.parse_states[name]
            then = max(
                (most(t.next_state, active | {name}) if t.next_state else 0 for t in state.transitions),
                default=0,
            )
            known[name] = min(_bytes_read(program, state, whole, then, skipped=skipped), 1 << 12)
        return known[name]

    return most(program.init_state, frozenset()) if program.init_state else 0


def _states_behind(program: ir.Program, whole: Collection[str]) -> dict[str, int]:
    """Return the parser's states that look at bytes behind a header of `whole`, each with how many it looks at."""

    def extracts(state: ir.ParseState) -> bool:
        return any(isinstance(p, ir.Text) and p.text in whole for p in ir.parts(state.ops))

    waiting = [name for name, state in program.parse_states.items() if extracts(state)]
    behind: set[str] = set()
    while waiting:
        after = program.parse_states[waiting.pop()].transitions
        found = {t.next_state for t in after if t.next_state} - behind
        waiting += found
        behind |= found
    return {
        name: size
        for name, state in program.parse_states.items()
        if (name in behind or extracts(state)) and (size := _bytes_read(program, state, whole, 0))
    }


def _carried(program: ir.Program) -> Carried:
    """Find what egress and the deparser read of a packet's metadata; headers come again out of the packet."""
    state = StateLayout(program)
    places = [(INTERNAL[name], 4) for name in (GROUP, NUMBER, "ingress_port", "ingress_length")]
    for header, field in program.metadata_seen_leaving:
        slot = state.shape(header).fields[field]
        places.append((state.headers[header] + slot.offset, slot.storage // 8))
    places += [(s.next, 4) for s in (*state.stacks.values(), *state.union_stacks.values())]
    seen = program.headers_seen_leaving
    hidden = sorted(h for h in seen if not program.headers[h].metadata and h not in program.deparser)
    for header in hidden:
        places.append((state.headers[header], state.shape(header).size))
    # The last headers of a packet, if egress does not read them, are payload to it.
    last = max((n for n, h in enumerate(program.deparser) if h in seen), default=-1)
    carried = Carried(tuple(places), program.deparser[: last + 1])
    if carried.bytes > _MOST_CARRIED:
        what = f"{carried.bytes} bytes that egress reads of metadata: in XDP, a copy carries at most {_MOST_CARRIED}"
        raise UnsupportedProgramError([what], program.path, "XDP")
    return carried


def _write_deparser(unit: BpfUnit) -> None:
    """Write ``measure(st, carried)``: how many bytes the headers take behind this many, but for a header that stays."""
    fn = unit.fn("measure", [("st", PTR), ("start", I32)], VOID)
    b = fn.b
    primitives = Primitives(fn)
    fn.set_internal(CURSOR, fn.args["start"])
    for name in unit.program.deparser:
        header = primitives.header(ir.HeaderRef(name))
        with b.if_then(primitives.is_valid(header)):
            size: Any = ll.Constant(I32, header.shape.type.max_bytes)
            if name == _last_whole(unit):
                size = b.sub(size, fn.internal(KEPT))
            fn.set_internal(CURSOR, b.add(fn.cell(CURSOR), size))
    b.ret_void()


def _last_whole(unit: BpfUnit) -> str | None:
    """Return the header that the deparser writes last, if it is stored at once."""
    last = unit.program.deparser[-1:]
    return last[0] if last and is_whole(unit.state.shape(last[0])) else None


def _stays(unit: BpfUnit) -> bool:
    """Whether egress does nothing with the last whole header but remove it: a copy's need not be moved then."""
    name, after = _last_whole(unit), ir.leaving(unit.program)
    changed = [p for p in ir.parts(after) if isinstance(p, ir.Primitive) and p.op != "remove_header"]
    named = {f for h, f in ir.fields_of((after, unit.program.field_lists)) if h == name}
    targets = ir.headers_of([p.args[:1] for p in changed]) | {
        r.name for p in changed for r in ir.parts(p) if isinstance(r, ir.HeaderRef)
    }
    return name is not None and named <= {"$valid$"} and name not in targets


def _write_leave(unit: BpfUnit) -> None:
    """Write ``leave(xdp, st) -> i32``: egress for one copy; 0 if it is to be dropped, else the packet is as it leaves."""
    fn = unit.fn("leave", [("xdp", PTR), ("st", PTR)], I32)
    b, port = fn.b, fn.internal(PORT)
    program = unit.program
    reads = ir.fields_of((program.egress, [a.primitives for a in program.actions.values()]))
    for name in ("intrinsic_metadata.egress_global_timestamp", "queueing_metadata.enq_timestamp"):
        field = program.well_known(name)
        if field is not None and (field.header, field.field) in reads:
            fn.write_field(field, fn.word("now_us"))
    set_egress_metadata(fn, port)
    fn.call("egress", ll.Constant(PTR, None), fn.st)
    fn.returns(b.icmp_unsigned("==", fn.internal("exit"), DROP), 0)
    with b.if_then(b.icmp_unsigned("==", egress_spec(fn), DROP_PORT)):
        fn.bump("dropped_egress")
        b.ret(0)
    primitives = Primitives(fn)
    write_update(fn, primitives)
    for primitive in program.deparser_ops:
        primitives.primitive(primitive)
    fn.call("measure", fn.st, 0)
    _reframe(fn, 0)
    _count_port(fn, fn.internal(PORT), fn.b.zext(fn.cell("packet_length"), I64), 2)
    b.ret(1)


def _reframe(fn: BpfFn, failed: int, carried: Carried | None = None) -> None:
    """Put the carried values and the headers in place of the packet's headers; return `failed` if there is no room."""
    b, unit = fn.b, fn.unit
    xdp = fn.args["xdp"]
    length, old, new = fn.cell("packet_length"), fn.internal("payload_offset"), fn.internal(CURSOR)
    name, primitives = _last_whole(unit), Primitives(fn)
    whole = None if name is None else primitives.header(ir.HeaderRef(name))
    if whole is not None:
        removed = b.select(primitives.is_valid(whole), 0, fn.internal(KEPT))
        old = b.add(old, removed)
    grown = b.sub(b.zext(new, I64), b.zext(old, I64))
    error = fn.variable(I64, 0)
    with b.if_then(b.icmp_unsigned("!=", grown, 0)):
        # With nothing behind the headers either end will do; many drivers leave no room at the end.
        b.store(ll.Constant(I64, -1), error)
        with b.if_then(b.icmp_unsigned("==", length, old)):
            b.store(fn.helper("xdp_adjust_tail", xdp, grown), error)
        with b.if_then(b.icmp_unsigned("!=", b.load(error, typ=I64), 0)):
            b.store(fn.helper("xdp_adjust_head", xdp, b.neg(grown)), error)
    fn.set_internal("packet_length", b.add(length, b.sub(new, old)))
    with b.if_then(b.icmp_unsigned("!=", b.load(error, typ=I64), 0)):
        fn.bump("dropped_no_room")
        b.ret(failed)
    at = 0
    if carried is not None:
        front = fn.reach(ll.Constant(I32, 0), carried.bytes, failed)
        for offset, size in (*carried.places, *((unit.state.headers[h], 1) for h in carried.headers)):
            fn.copy(fn.at(front, at), fn.at(fn.st, offset), size)
            at += size
    fn.set_internal(CURSOR, at)
    for each in unit.program.deparser:
        header = primitives.header(ir.HeaderRef(each))
        there = primitives.is_valid(header)
        if each == name:
            there = b.and_(there, b.icmp_unsigned("==", fn.internal(KEPT), 0))
        with b.if_then(there):
            cursor, size = fn.cell(CURSOR), header.shape.type.max_bytes
            if each == name:
                fn.store_whole(header.pointer, header.shape, cursor)
            else:
                write_header(fn, header.pointer, header.shape, fn.reach(cursor, size, failed))
            fn.set_internal(CURSOR, b.add(cursor, size))


def _count_port(fn: BpfFn, port: Any, size: Any, first: int) -> None:
    """Count a packet."""
    row = fn.within(fn.b.zext(port, I64), PORTS)
    counts = fn.at(fn.pointer("ports"), fn.b.mul(row, 8 * len(PORT_WORDS)))
    for word, amount in ((first, 1), (first + 1, size)):
        fn.add(Space.STATISTICS, fn.at(counts, 8 * word), amount)


class _Entry:
    """Common parts of both programs; a subclass writes one."""

    name: str

    def __init__(self, unit: BpfUnit, carried: Carried, cpu_port: int) -> None:
        self.unit, self.carried, self.cpu_port = unit, carried, cpu_port
        self.fn = fn = unit.fn(self.name, [("xdp", PTR)], I32, exported=True)
        self.b = fn.b
        self.xdp = fn.ctx = fn.args["xdp"]

    def begin(self, needed: int) -> None:
        """Find the state, load the packet's first bytes, and clear the state."""
        fn, b, unit = self.fn, self.b, self.unit
        # The verifier must know the key: four zero bytes on the stack.
        key = fn.variable(I32, 0)
        fn.st = fn.helper("map_lookup_elem", unit.map("state"), key)
        fn.returns(b.icmp_unsigned("==", fn.st, ll.Constant(PTR, None)), ABORTED)
        fn.set_internal(PROCESSOR, b.trunc(fn.helper("get_smp_processor_id"), I32))
        first, end = fn.ends(self.xdp)
        length = fn.opaque(b.sub(b.ptrtoint(end, I64), b.ptrtoint(first, I64)))
        if needed:
            self._load_first(first, end, length, needed)
        fn.set_internal("packet_length", b.trunc(length, I32))
        self.loaded()
        kept = {name: fn.internal(name) for name in ("ingress_port", PORT, REPLICA, FLAGS, PROCESSOR)}
        # After all helpers, so that LLVM knows the zeros.
        self._clear()
        for name, value in kept.items():
            fn.set_internal(name, value)
        for name in ("packet_length", "length_register", "ingress_length"):
            fn.set_internal(name, b.trunc(length, I32))

    def _load_first(self, first: Any, end: Any, length: Any, needed: int) -> None:
        fn, b, unit = self.fn, self.b, self.unit
        enough = b.icmp_unsigned("<=", fn.at(first, needed), end)
        with b.if_else(enough, likely=True) as (whole, short):
            with whole:
                fn.copy(fn.at(fn.st, unit.frame_at), first, needed)
            with short:
                *_, error = fn.load_first(self.xdp, length, needed)
                fn.returns(b.icmp_unsigned("!=", error, 0), ABORTED)

    def loaded(self) -> None:
        """Emit the work on each packet before the state is cleared."""

    def _clear(self) -> None:
        """Clear the state, metadata too; of large headers only the validity: fields are undefined until they are valid."""
        state = self.unit.state
        large = [h for h in state.large if state.shape(h).size > LARGE_HEADER]
        clear_all_but(self.fn, self.fn.st, 0, large)

    def capture(self, port: Any, way: int) -> None:
        """Copy the packet into the ring of captured ones, behind its time, port, way and length, if that is wanted."""
        fn, b = self.fn, self.b
        captured = b.and_(fn.internal(FLAGS), CAPTURED)
        with b.if_then(b.icmp_unsigned("!=", captured, 0), likely=False):
            length = b.zext(fn.cell("packet_length"), I64)
            _, size, _ = fn.load_first(self.xdp, length, self.unit.frame_bytes)
            record = fn.at(fn.st, self.unit.frame_at - CAPTURE.size)
            place = b.or_(b.zext(port, I64), way << 16)
            word = b.or_(place, b.shl(length, 32))
            fn.store(Space.STATISTICS, fn.helper("ktime_get_ns"), record, 8)
            fn.store(Space.STATISTICS, word, fn.at(record, 8), 8)
            whole = b.add(size, CAPTURE.size)
            full = fn.helper("ringbuf_output", self.unit.map("captured"), record, whole, 1)
            with b.if_then(b.icmp_unsigned("!=", full, 0)):
                fn.bump("not_captured")

    def send(self) -> None:
        """Return so that the packet leaves by the port."""
        fn, b = self.fn, self.b
        port = fn.cell(PORT)
        self.observe(port, XDP_TX)
        self.capture(port, 1)
        with b.if_then(b.icmp_unsigned("==", port, self.cpu_port)):
            length = b.zext(fn.cell("packet_length"), I64)
            frame, size, _ = fn.load_first(self.xdp, length, self.unit.frame_bytes)
            fn.helper("ringbuf_output", self.unit.map("to_cpu"), frame, size, 0)
            b.ret(XDP_DROP)
        self.sent(port)

    def sent(self, port: Any) -> None:
        """Return what sends the packet out of an interface."""
        raise NotImplementedError

    def observe(self, verdict: Any, action: int) -> None:
        """In a test run, note what would happen, and return."""
        fn, b = self.fn, self.b
        observed = b.and_(fn.internal(FLAGS), OBSERVED)
        with b.if_then(b.icmp_unsigned("!=", observed, 0)):
            fn.store(Space.STATISTICS, b.zext(verdict, I64), fn.pointer("verdict"), 8)
            b.ret(action)


class _Arrive(_Entry):
    name = "arrive"

    def write(self) -> None:
        fn, b, program = self.fn, self.b, self.unit.program
        self.begin(self.unit.loaded)
        length, port = fn.internal("packet_length"), fn.internal("ingress_port")
        fn.set_well_known("standard_metadata.ingress_port", port)
        fn.set_well_known("standard_metadata.packet_length", length)
        arrival = program.well_known("intrinsic_metadata.ingress_global_timestamp")
        everything = (program.ingress, program.egress, [a.primitives for a in program.actions.values()])
        if arrival is not None and (arrival.header, arrival.field) in ir.fields_of(everything):
            fn.write_field(arrival, fn.word("now_us"))
        none = ll.Constant(PTR, None)
        fn.call("parse", self.xdp, fn.st, fn.at(fn.st, self.unit.frame_at), length)
        fn.set_well_known("standard_metadata.parser_error", fn.internal("parser_error"))
        fn.set_well_known("standard_metadata.checksum_error", fn.internal("checksum_error"))
        fn.call("ingress", none, fn.st)
        self._drop_if(b.icmp_unsigned("==", fn.internal("exit"), DROP), count=False)
        fn.set_internal("exit", 0)
        self._replicate()
        port = egress_spec(fn)
        self._drop_if(b.icmp_unsigned("==", port, DROP_PORT), count=True)
        fn.set_well_known("standard_metadata.instance_type", _NORMAL)
        fn.set_internal(PORT, port)
        left = fn.call("leave", self.xdp, fn.st)
        fn.returns(b.icmp_unsigned("==", left, 0), XDP_DROP)
        self.send()

    def loaded(self) -> None:
        fn = self.fn
        port = fn.internal("ingress_port")
        _count_port(fn, port, self.b.zext(fn.internal("packet_length"), I64), 0)
        self.capture(port, 0)

    def sent(self, port: Any) -> None:
        b = self.b
        ports = self.unit.map("ports")
        action = self.fn.helper("redirect_map", ports, b.zext(port, I64), XDP_DROP)
        with b.if_then(b.icmp_unsigned("==", action, XDP_DROP), likely=False):
            self.fn.bump("dropped_no_port")
        b.ret(b.trunc(action, I32))

    def _drop_if(self, condition: Any, *, count: bool) -> None:
        fn, b = self.fn, self.b
        with b.if_then(condition):
            if count:
                fn.bump("dropped_ingress")
            passes = b.and_(fn.internal(FLAGS), PASS_DROPPED)
            b.ret(b.add(passes, XDP_DROP))

    def _replicate(self) -> None:
        fn, b, unit = self.fn, self.b, self.unit
        target = unit.program.well_known("intrinsic_metadata.mcast_grp")
        if target is None:
            return
        group = resize(b, fn.read_field(target), 32)
        with b.if_then(b.icmp_unsigned("!=", group, 0)):
            fn.set_well_known("standard_metadata.instance_type", _REPLICATED)
            fn.set_internal(GROUP, group)
            last = fn.pointer("last packet")
            fn.add(Space.STATISTICS, last, 1)
            fn.set_internal(NUMBER, b.trunc(fn.load(Space.STATISTICS, last, I64, 8), I32))
            fn.call("measure", fn.st, self.carried.bytes)
            _reframe(fn, XDP_DROP, self.carried)
            group = fn.cell(GROUP)
            self.observe(b.or_(group, GROUP_VERDICT), XDP_REDIRECT)
            key = fn.at(fn.st, unit.key_at)
            fn.store(Space.STATISTICS, group, key, 4)
            members = fn.helper("map_lookup_elem", unit.map("groups"), key)
            self._drop_if(b.icmp_unsigned("==", members, ll.Constant(PTR, None)), count=True)
            action = fn.helper("redirect_map", members, 0, _BROADCAST)
            b.ret(b.trunc(action, I32))


class _Copy(_Entry):
    name = "copy"

    def loaded(self) -> None:
        """Find out which replica this is; in a test run the program in front says it."""
        fn, b = self.fn, self.b
        observed = b.and_(fn.internal(FLAGS), OBSERVED)
        with b.if_then(b.icmp_unsigned("==", observed, 0), likely=True):
            frame, port = self.front(), fn.internal(PORT)
            group, number = (fn.load(Space.STATISTICS, fn.at(frame, at), I32) for at in (0, 4))
            place = b.add(b.mul(b.zext(group, I64), PORTS), b.zext(port, I64))
            place = b.mul(fn.within(place, ROWS * PORTS), 2)
            only = b.zext(fn.load(Space.TABLE, fn.at(fn.pointer("only replicas"), place), i(16), 2), I32)
            fn.set_internal(REPLICA, only)
            several = b.or_(
                b.icmp_unsigned("==", only, SEVERAL),
                b.icmp_unsigned(">=", group, ROWS),
            )
            with b.if_then(several, likely=False):
                self._look_up(group, number, port)

    def front(self) -> Any:
        """Return the place of the carried values in the packet."""
        return self.fn.reach(ll.Constant(I32, 0), self.carried.bytes, XDP_DROP)

    def _look_up(self, group: Any, number: Any, port: Any) -> None:
        fn, b, unit = self.fn, self.b, self.unit
        key = fn.at(fn.st, unit.key_at)
        row = fn.within(b.zext(port, I64), PORTS)
        place = fn.at(fn.pointer("copies"), b.mul(row, 8))
        last = fn.load(Space.STATISTICS, place, I64, 8)
        first = b.shl(b.zext(number, I64), 32)
        same = b.icmp_unsigned("==", b.lshr(b.xor(last, first), 32), 0)
        now = b.select(same, b.add(last, 1), first)
        fn.store(Space.STATISTICS, now, place, 8)
        for at, value in enumerate((group, port, b.trunc(now, I32))):
            fn.store(Space.STATISTICS, value, fn.at(key, 4 * at), 4)
        replica = fn.helper("map_lookup_elem", unit.map("replicas"), key)
        with b.if_then(b.icmp_unsigned("==", replica, ll.Constant(PTR, None)), likely=False):
            fn.bump("dropped_no_port")
            b.ret(XDP_DROP)
        fn.set_internal(REPLICA, b.load(replica, typ=I32))

    def _clear(self) -> None:
        fn, state, program = self.fn, self.unit.state, self.unit.program
        if state.stacks or state.union_stacks or state.membership:
            super()._clear()
            return
        # Metadata that egress reads comes with the packet; of a header that it does not name, only the validity is read.
        fn.clear(fn.st, min(state.headers.values()))
        for name, at in state.headers.items():
            shape = state.shape(name)
            if not program.headers[name].metadata:
                small = name in program.headers_seen_leaving and shape.size <= LARGE_HEADER
                fn.clear(fn.at(fn.st, at), shape.size if small else 8)

    def write(self) -> None:
        fn, b, unit = self.fn, self.b, self.unit
        stays = _last_whole(unit) if _stays(unit) else None
        self.begin(0)
        at, primitives, frame = 0, Primitives(fn), self.front()
        for offset, size in self.carried.places:
            fn.copy(fn.at(fn.st, offset), fn.at(frame, at), size)
            at += size
        for name in self.carried.headers:
            fn.copy(primitives.header(ir.HeaderRef(name)).pointer, fn.at(frame, at), 1)
            at += 1
        fn.set_internal(CURSOR, at)
        for name in self.carried.headers:
            header = primitives.header(ir.HeaderRef(name))
            with b.if_then(primitives.is_valid(header)):
                cursor, size = fn.cell(CURSOR), header.shape.type.max_bytes
                if name == stays:
                    fn.set_internal(KEPT, size)
                    continue
                if not fn.load_whole(header.pointer, header.shape, cursor):
                    extract_header(fn, header.pointer, header.shape, fn.reach(cursor, size, XDP_DROP))
                fn.set_internal(CURSOR, b.add(cursor, size))
        headers = fn.cell(CURSOR)
        fn.set_internal("payload_offset", headers)
        before = b.sub(fn.internal("packet_length"), self.carried.bytes)
        fn.set_internal("length_register", before)
        fn.set_well_known("standard_metadata.instance_type", _REPLICATED)
        fn.set_well_known("intrinsic_metadata.egress_rid", fn.internal(REPLICA))
        left = fn.call("leave", self.xdp, fn.st)
        fn.returns(b.icmp_unsigned("==", left, 0), XDP_DROP)
        self.send()

    def sent(self, port: Any) -> None:
        del port
        self.b.ret(XDP_PASS)
