"""Machine code for packets in flight: slots, the two queues, and the state that a copy of a packet keeps.

A slot is a packet's state followed by room for a frame. A packet from outside stays in the batch's memory; one that was
recirculated has its bytes in its slot, so a copy of it must have its own.
"""

from typing import Any

from sim.switch import ir
from sim.switch.codegen.emit import I32, I64, PTR, VOID, Fn, Space, Unit
from sim.switch.codegen.expressions import Expressions
from sim.switch.layout import FieldSlot

CLONES = ("clone_ingress_pkt_to_egress", "clone_egress_pkt_to_egress")


def slot_pointer(fn: Fn, slot: Any) -> Any:
    """Return the address of a slot."""
    offset = fn.b.mul(fn.b.zext(slot, I64), fn.word("slot_bytes"))
    return fn.at(fn.pointer("slots"), offset)


def take_slot(fn: Fn) -> tuple[Any, Any]:
    """Take a free slot: its number and address. The caller knows that there is one."""
    b = fn.b
    count = b.sub(fn.word("free_count"), 1)
    fn.set_word("free_count", count)
    place = fn.at(fn.pointer("free"), b.shl(count, 2))
    slot = fn.load(Space.CONTEXT, place, I32, 4)
    return slot, slot_pointer(fn, slot)


def free_slot(fn: Fn, slot: Any) -> None:
    """Give a slot back."""
    b = fn.b
    count = fn.word("free_count")
    place = fn.at(fn.pointer("free"), b.shl(count, 2))
    fn.store(Space.CONTEXT, slot, place, 4)
    fn.set_word("free_count", b.add(count, 1))


def _ring_place(fn: Fn, ring: str, end: str) -> Any:
    b = fn.b
    index = b.and_(fn.word(f"{ring}_{end}"), fn.word("ring_mask"))
    return fn.at(fn.pointer(f"{ring}_ring"), b.shl(index, 2))


def push(fn: Fn, ring: str, slot: Any) -> None:
    """Put a slot at the tail of the ``ingress`` or ``egress`` queue."""
    fn.store(Space.CONTEXT, slot, _ring_place(fn, ring, "tail"), 4)
    fn.bump(f"{ring}_tail")


def ring_slot(fn: Fn, ring: str) -> Any:
    """Return the slot at the head of a queue."""
    return fn.load(Space.CONTEXT, _ring_place(fn, ring, "head"), I32, 4)


def share_packet(fn: Fn, slot: Any, home: Any) -> Any:
    """Return where the bytes of the packet in `slot` are for a copy of it whose state is `home`: the batch's, or its own."""
    b, size = fn.b, fn.unit.state.size
    own = fn.at(slot_pointer(fn, slot), size)
    packet, length = fn.internal("packet"), fn.internal("packet_length")
    place = fn.variable(PTR, packet)
    with b.if_then(b.icmp_unsigned("==", b.ptrtoint(packet, I64), b.ptrtoint(own, I64))):
        frame = fn.at(home, size)
        fn.copy(frame, packet, b.zext(length, I64))
        b.store(frame, place)
    return b.load(place, typ=PTR)


def move_field(fn: Fn, source: Any, target: Any, slot: FieldSlot) -> None:
    """Copy a field between the headers at `source` and `target`."""
    if slot.varbit:
        fn.store(Space.STATE, fn.load(Space.STATE, fn.at(source, 4), I32, 4), fn.at(target, 4), 4)
        fn.copy(fn.at(target, slot.offset), fn.at(source, slot.offset), (slot.width + 7) // 8)
    else:
        fn.store_raw(target, slot, fn.load_raw(source, slot))


def copy_fields(fn: Fn, number: Any, source: Any, target: Any) -> None:
    """Copy the fields of field list `number` (i32) between two states."""
    fn.call("copy_fields", number, source, target)


def write_copy_fields(unit: Unit) -> None:
    """Write ``copy_fields(list, st, to)``; a number that is no list copies nothing."""
    fn = Fn(unit, "copy_fields", [("list", I32), ("st", PTR), ("to", PTR)], VOID)
    done = fn.b.append_basic_block("done")
    switch = fn.b.switch(fn.args["list"], done)
    for number, fields in unit.program.field_lists.items():
        block = fn.b.append_basic_block(f"list.{number}")
        switch.add_case(number, block)
        fn.b.position_at_end(block)
        for field in fields:
            _copy_field(fn, field)
        fn.b.branch(done)
    fn.b.position_at_end(done)
    fn.b.ret_void()


def _copy_field(fn: Fn, field: ir.Expr) -> None:
    if not isinstance(field, ir.FieldRef):
        return
    fn.st = fn.args["st"]
    source, slot = Expressions(fn).field_place(field)
    fn.st = fn.args["to"]
    move_field(fn, source, fn.field_pointer(field.header), slot)
