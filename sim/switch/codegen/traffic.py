"""Machine code for what lies between the controls: cloning, resubmission, multicast, recirculation, output.

``run(ctx) -> status`` takes each packet of the batch through parser, ingress, replication, egress and deparser, and
everything that it gives rise to, before the next one. The order is BMv2's: egress before ingress, recirculated and
resubmitted packets before new ones, each first come, first served.

`run` stops between two steps when memory is short and says what for; called again with more, it goes on. A
packet that goes round for ever is cut off: see `passes_limit` and `steps_limit` in `sim.switch.layout.CONTEXT`.
"""

from typing import Any

from llvmlite import ir as ll

from sim.switch.codegen.actions import DROP, DROP_PORT
from sim.switch.codegen.cloning import (
    another_pass,
    clear_metadata,
    egress_clone,
    ingress_clone,
    set_replicas,
    start_copy,
)
from sim.switch.codegen.copies import (
    copy_fields,
    free_slot,
    push,
    ring_slot,
    share_packet,
    slot_pointer,
    take_slot,
    write_copy_fields,
)
from sim.switch.codegen.deparser import header_room
from sim.switch.codegen.digests import write_digest
from sim.switch.codegen.emit import I1, I8, I16, I32, I64, PTR, VOID, Fn, Space, Unit, resize
from sim.switch.codegen.pipeline import egress_spec, set_egress_metadata
from sim.switch.codegen.queued import begin, clear_all_but, keep, take_up

DONE, NEED_OUTPUT, NEED_SLOTS, NEED_DIGESTS, NEED_WIDTH = range(5)

_NORMAL, _RECIRCULATED, _REPLICATED, _RESUBMITTED = 0, 4, 5, 6
# The most slots one step can take: a clone, a copy to resubmit or recirculate, and one to spare.
_SLOTS_PER_STEP = 3


def write_run(unit: Unit) -> None:
    """Write the traffic functions and the exported ``run``."""
    write_copy_fields(unit)
    _write_ingress_step(unit)
    _write_egress_step(unit)
    _write_loop(unit)


def _write_ingress_step(unit: Unit) -> None:
    fn = Fn(unit, "ingress_step", [("ctx", PTR), ("slot", I32)], VOID)
    b = fn.b
    home = slot_pointer(fn, fn.args["slot"])
    # Fields of a large header that the parser does not see are cleared once they are known not to be in the packet.
    late = [h for h in unit.state.large if h not in unit.program.headers_seen_arriving]
    _arrive(fn, home, late)
    size = fn.internal("length_register")
    fn.call("parse", fn.ctx, fn.st, fn.internal("packet"), fn.internal("packet_length"))
    for header in late:
        place = fn.field_pointer(header)
        with b.if_then(b.icmp_unsigned("==", fn.load(Space.STATE, place, I8, 8), 0)):
            fn.clear(fn.at(place, 8), unit.state.shape(header).size - 8)
    fn.set_well_known("standard_metadata.parser_error", fn.internal("parser_error"))
    fn.set_well_known("standard_metadata.checksum_error", fn.internal("checksum_error"))
    fn.call("ingress", fn.ctx, fn.st)
    with b.if_then(b.icmp_unsigned("==", fn.internal("exit"), DROP)):
        free_slot(fn, fn.args["slot"])
        b.ret_void()
    fn.set_internal("exit", 0)
    ingress_clone(fn, size)
    write_digest(fn)
    with b.if_then(b.icmp_unsigned("!=", fn.internal("resubmit"), 0)):
        _resubmit(fn, size)
        b.ret_void()
    _replicate(fn, home)
    _unicast(fn, home)
    b.ret_void()


def _arrive(fn: Fn, home: Any, late: list[str]) -> None:
    """Begin work on the packet that came to ingress; of headers `late`, only clear whether they are valid."""
    program, state = fn.unit.program, fn.unit.state
    begin(fn, home)
    for name in ("packet", "packet_length", "length_register", "ingress_length", "ingress_port", "passes"):
        fn.set_internal(name, fn.internal(name, home))
    if program.uses("resubmit", "recirculate"):
        first, end = state.metadata_start, state.metadata_end
        fn.copy(fn.at(fn.st, first), fn.at(home, first), end - first)
    else:
        _note_arrival(fn)
    clear_all_but(fn, home, state.local, late)


def _note_arrival(fn: Fn, state: Any = None) -> None:
    """Store a program's view of the arrival of a packet from outside into `state`, a whole one, or into the one in hand."""
    fn.set_well_known("standard_metadata.ingress_port", fn.internal("ingress_port", state), state)
    fn.set_well_known("standard_metadata.packet_length", fn.internal("packet_length", state), state)
    fn.set_well_known("intrinsic_metadata.ingress_global_timestamp", fn.word("now_us"), state)


def _resubmit(fn: Fn, size: Any) -> None:
    b, state = fn.b, fn.st
    passes, allowed = another_pass(fn, state)
    with b.if_then(allowed):
        slot, copy = take_slot(fn)
        start_copy(fn, copy, passes, size)
        fn.set_internal("packet", share_packet(fn, fn.args["slot"], copy), copy)
        fn.set_internal("packet_length", fn.internal("packet_length"), copy)
        copy_fields(fn, fn.internal("resubmit"), state, copy)
        fn.set_well_known("standard_metadata.instance_type", _RESUBMITTED, copy)
        fn.set_well_known("standard_metadata.packet_length", size, copy)
        push(fn, "ingress", slot)
    free_slot(fn, fn.args["slot"])


def _replicate(fn: Fn, home: Any) -> None:
    """Send the packet to its multicast group, if it has one; then the function returns."""
    b = fn.b
    target = fn.unit.program.well_known("intrinsic_metadata.mcast_grp")
    if target is None:
        return
    group = resize(b, fn.read_field(target), 64)
    with b.if_then(b.icmp_unsigned("!=", group, 0)):
        fn.set_well_known("standard_metadata.instance_type", _REPLICATED)
        record = fn.at(fn.pointer("groups"), b.shl(b.and_(group, 0xFFFF), 4))
        count = set_replicas(fn, home, record)
        with b.if_else(b.icmp_unsigned("==", count, 0)) as (empty, full):
            with empty:
                fn.bump("dropped_ingress")
                free_slot(fn, fn.args["slot"])
            with full:
                keep(fn, home)
                push(fn, "egress", fn.args["slot"])
        b.ret_void()


def _unicast(fn: Fn, home: Any) -> None:
    b = fn.b
    port = egress_spec(fn)
    with b.if_else(b.icmp_unsigned("==", port, DROP_PORT)) as (drop, send):
        with drop:
            fn.bump("dropped_ingress")
            free_slot(fn, fn.args["slot"])
        with send:
            fn.set_well_known("standard_metadata.instance_type", _NORMAL)
            fn.set_internal("replica_count", 0, home)
            fn.set_internal("egress_port", port, home)
            keep(fn, home)
            push(fn, "egress", fn.args["slot"])


def _write_egress_step(unit: Unit) -> None:
    """Write ``egress_step(ctx, slot, work, port)``: one replica of the packet in `slot`.

    `work` is the state that has the replica's own stacks, unions and large headers.
    """
    arguments = [("ctx", PTR), ("slot", I32), ("work", PTR), ("port", I32)]
    fn = Fn(unit, "egress_step", arguments, VOID)
    b = fn.b
    begin(fn, fn.args["work"])
    take_up(fn, slot_pointer(fn, fn.args["slot"]))
    now = fn.word("now_us")
    for name in ("intrinsic_metadata.egress_global_timestamp", "queueing_metadata.enq_timestamp"):
        fn.set_well_known(name, now)
    set_egress_metadata(fn, fn.args["port"])
    fn.call("egress", fn.ctx, fn.st)
    with b.if_then(b.icmp_unsigned("==", fn.internal("exit"), DROP)):
        b.ret_void()
    fn.set_internal("exit", 0)
    egress_clone(fn)
    with b.if_then(b.icmp_unsigned("==", egress_spec(fn), DROP_PORT)):
        fn.bump("dropped_egress")
        b.ret_void()
    if unit.program.uses("recirculate"):
        with b.if_then(b.icmp_unsigned("!=", fn.internal("recirculate"), 0)):
            _recirculate(fn)
            b.ret_void()
    _transmit(fn)
    b.ret_void()


def _recirculate(fn: Fn) -> None:
    b, state = fn.b, fn.st
    passes, allowed = another_pass(fn, state)
    with b.if_then(allowed):
        slot, copy = take_slot(fn)
        frame = fn.at(copy, fn.unit.state.size)
        size = b.trunc(fn.call("deparse", fn.ctx, state, slot_pointer(fn, fn.args["slot"]), frame), I32)
        start_copy(fn, copy, passes, size)
        fn.set_internal("ingress_length", size, copy)
        fn.set_internal("packet", frame, copy)
        fn.set_internal("packet_length", size, copy)
        copy_fields(fn, fn.internal("recirculate"), state, copy)
        fn.set_well_known("standard_metadata.instance_type", _RECIRCULATED, copy)
        fn.set_well_known("standard_metadata.packet_length", size, copy)
        push(fn, "ingress", slot)


def _transmit(fn: Fn) -> None:
    b = fn.b
    row = fn.word("out_count")
    frame = fn.at(fn.pointer("out_frames"), b.mul(row, fn.word("out_stride")))
    size = b.trunc(fn.call("deparse", fn.ctx, fn.st, slot_pointer(fn, fn.args["slot"]), frame), I32)
    fn.store(Space.FRAME, size, fn.at(fn.pointer("out_lengths"), b.shl(row, 2)), 4)
    port = b.trunc(fn.args["port"], I16)
    fn.store(Space.FRAME, port, fn.at(fn.pointer("out_ports"), b.shl(row, 1)), 2)
    fn.set_word("out_count", b.add(row, 1))


def _write_loop(unit: Unit) -> None:
    fn = Fn(unit, "run", [("ctx", PTR)], I32, exported=True)
    b = fn.b
    head = b.append_basic_block("next")
    b.branch(head)
    b.position_at_end(head)
    waiting = b.icmp_unsigned("!=", fn.word("egress_head"), fn.word("egress_tail"))
    with b.if_then(waiting):
        _return_if(fn, b.icmp_unsigned("<", fn.word("free_count"), _SLOTS_PER_STEP), NEED_SLOTS)
        full = b.icmp_unsigned("==", fn.word("out_count"), fn.word("out_capacity"))
        _return_if(fn, full, NEED_OUTPUT)
        _egress_turn(fn, head)
    again = unit.program.uses("resubmit", "recirculate")
    waiting = (
        b.icmp_unsigned("!=", fn.word("ingress_head"), fn.word("ingress_tail"))
        if again
        else ll.Constant(I1, 0)
    )
    new = b.icmp_unsigned("!=", fn.word("in_next"), fn.word("in_count"))
    _return_if(fn, b.not_(b.or_(waiting, new)), DONE)
    _return_if(fn, b.icmp_unsigned("<", fn.word("free_count"), _SLOTS_PER_STEP + 1), NEED_SLOTS)
    if unit.program.digests:
        full = b.icmp_unsigned("==", fn.word("digest_count"), fn.word("digest_capacity"))
        _return_if(fn, full, NEED_DIGESTS)
    if again:
        with b.if_then(waiting):
            slot = ring_slot(fn, "ingress")
            fn.bump("ingress_head")
            _spend(fn, slot, head)
            fn.call("ingress_step", fn.ctx, slot)
            b.branch(head)
    fn.call("ingress_step", fn.ctx, _admit(fn))
    b.branch(head)


def _return_if(fn: Fn, condition: Any, status: int) -> None:
    with fn.b.if_then(condition):
        fn.b.ret(status)


def _spend(fn: Fn, slot: Any, head: Any) -> None:
    """Count one step of the work that a packet from outside may cause; past the limit, drop the slot instead."""
    b = fn.b
    left = fn.word("steps_left")
    with b.if_then(b.icmp_unsigned("==", left, 0)):
        fn.bump("dropped_looping")
        free_slot(fn, slot)
        b.branch(head)
    fn.set_word("steps_left", b.sub(left, 1))


def _admit(fn: Fn) -> Any:
    """Take the next packet of the batch into a slot."""
    b, unit = fn.b, fn.unit
    row = fn.word("in_next")
    fn.set_word("in_next", b.add(row, 1))
    fn.set_word("steps_left", fn.word("steps_limit"))
    slot, state = take_slot(fn)
    frame = fn.at(fn.pointer("in_frames"), b.mul(row, fn.word("in_stride")))
    size = fn.load(Space.TABLE, fn.at(fn.pointer("in_lengths"), b.shl(row, 2)), I32, 4)
    port = fn.load(Space.TABLE, fn.at(fn.pointer("in_ports"), b.shl(row, 1)), I16, 2)
    port = b.zext(port, I32)
    # The next packet is likely to be as long as this one.
    following = fn.at(frame, fn.word("in_stride"))
    lines = b.add(b.lshr(b.zext(size, I64), 6), 1)
    last = b.icmp_unsigned("==", fn.word("in_next"), fn.word("in_count"))
    with fn.loop(b.select(last, 0, lines)) as line:
        fn.prefetch(fn.at(following, b.shl(line, 6)))
    fn.set_internal("packet", frame, state)
    for name in ("packet_length", "length_register", "ingress_length"):
        fn.set_internal(name, size, state)
    fn.set_internal("ingress_port", port, state)
    fn.set_internal("passes", 0, state)
    if unit.program.uses("resubmit", "recirculate"):
        clear_metadata(fn, state)
        _note_arrival(fn, state)
    return slot


def _egress_turn(fn: Fn, head: Any) -> None:
    """Send the packet at the head of the egress queue, or its next replica."""
    b, unit = fn.b, fn.unit
    slot = ring_slot(fn, "egress")
    state = slot_pointer(fn, slot)
    payload = b.sub(fn.internal("packet_length", state), fn.internal("payload_offset", state))
    need = b.add(b.zext(payload, I64), header_room(unit.program))
    wide = b.icmp_unsigned(">", need, fn.word("out_stride"))
    with b.if_then(wide):
        fn.set_word("needed", need)
        b.ret(NEED_WIDTH)
    count, turn = fn.internal("replica_count", state), fn.internal("replica_next", state)
    following = b.add(turn, 1)
    last = b.icmp_unsigned(">=", following, count)
    with b.if_then(b.icmp_unsigned("==", fn.word("steps_left"), 0)):
        fn.bump("egress_head")
        fn.bump("dropped_looping")
        free_slot(fn, slot)
        b.branch(head)
    fn.set_word("steps_left", b.sub(fn.word("steps_left"), 1))
    work, port = fn.variable(PTR, state), fn.variable(I32, fn.internal("egress_port", state))
    with b.if_then(b.icmp_unsigned("!=", count, 0)):
        fn.set_internal("replica_next", following, state)
        with b.if_then(b.not_(last)):
            # Slot 0 is kept for this: all replicas but the last are made on a copy.
            first, end = unit.state.local, unit.state.copied
            if end > first:
                copy = fn.pointer("slots")
                fn.copy(fn.at(copy, first), fn.at(state, first), end - first)
                b.store(copy, work)
        index = b.zext(b.add(fn.internal("replica_offset", state), turn), I64)
        replica = fn.at(fn.pointer("replicas"), b.shl(index, 3))
        b.store(fn.load(Space.TABLE, replica, I32, 4), port)
        rid = fn.load(Space.TABLE, fn.at(replica, 4), I32, 4)
        fn.set_well_known("intrinsic_metadata.egress_rid", rid, state)
    with b.if_then(last):
        fn.bump("egress_head")
    fn.call("egress_step", fn.ctx, slot, b.load(work, typ=PTR), b.load(port, typ=I32))
    with b.if_then(last):
        free_slot(fn, slot)
    b.branch(head)
