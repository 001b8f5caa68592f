"""Machine code for cloning, from ingress and from egress, and what copies of a packet share with it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir as ll

from sim.switch import ir
from sim.switch.codegen.copies import copy_fields, push, share_packet, slot_pointer, take_slot
from sim.switch.codegen.emit import I32, I64, Fn, Space

_INGRESS_CLONE, _EGRESS_CLONE = 1, 2


def constant(value: int, kind: Any = I32) -> Any:
    """Return a constant of an integer type."""
    return ll.Constant(kind, value)


_c = constant


def session_record(fn: Fn, number: Any) -> Any:
    """Return the address of a clone session's record: offset, count, truncate, configured (i64 each)."""
    index = fn.b.zext(fn.b.and_(number, _c(0x7FFF)), I64)
    return fn.at(fn.pointer("sessions"), fn.b.shl(index, _c(5, I64)))


def set_replicas(fn: Fn, state: Any, record: Any) -> Any:
    """Note the replicas of a group's or session's record in a state; returns how many there are."""
    first = fn.b.trunc(fn.load(Space.TABLE, record, I64, 8), I32)
    count = fn.b.trunc(fn.load(Space.TABLE, fn.at(record, 8), I64, 8), I32)
    fn.set_internal("replica_offset", first, state)
    fn.set_internal("replica_count", count, state)
    fn.set_internal("replica_next", 0, state)
    return count


def _clear_requests(fn: Fn, state: Any) -> None:
    for name in ("clone_session", "clone_fields", "digest", "resubmit", "recirculate", "exit"):
        fn.set_internal(name, 0, state)


def another_pass(fn: Fn, state: Any) -> tuple[Any, Any]:
    """Return the number of the next pass and whether it is allowed, counting a packet that is not."""
    passes = fn.b.add(fn.internal("passes", state), _c(1))
    allowed = fn.b.icmp_unsigned("<=", fn.b.zext(passes, I64), fn.word("passes_limit"))
    with fn.b.if_then(fn.b.not_(allowed)):
        fn.bump("dropped_looping")
    return passes, allowed


def _clear_metadata(fn: Fn, state: Any) -> None:
    layout = fn.unit.state
    start = layout.metadata_start
    fn.clear(fn.at(state, start), layout.metadata_end - start)


@contextmanager
def _clone(fn: Fn, instance_type: int) -> Iterator[tuple[Any, Any]]:
    """Make a copy of the packet for egress, if a clone session is set and has replicas.

    Yields the copy's state, which the body fills, and the number of the copy's pass.
    """
    b = fn.b
    number, fields = fn.internal("clone_session"), fn.internal("clone_fields")
    with b.if_then(b.icmp_unsigned("!=", number, _c(0))):
        fn.set_internal("clone_session", 0)
        record = session_record(fn, number)
        count = fn.load(Space.TABLE, fn.at(record, 8), I64, 8)
        passes, allowed = another_pass(fn, fn.st)
        with b.if_then(b.and_(allowed, b.icmp_unsigned("!=", count, _c(0, I64)))):
            slot, copy = take_slot(fn)
            yield copy, passes
            _clear_metadata(fn, copy)
            copy_fields(fn, fields, fn.st, copy)
            fn.set_well_known("standard_metadata.instance_type", instance_type, copy)
            set_replicas(fn, copy, record)
            _set_truncation(fn, copy, record)
            push(fn, "egress", slot)


def ingress_clone(fn: Fn, size: Any) -> None:
    """Write the copy of a packet as it came, `size` bytes (i32) long, parsed again, if its session has replicas."""
    if not any(_uses(fn.unit.program, "clone_ingress_pkt_to_egress")):
        return
    with _clone(fn, _INGRESS_CLONE) as (copy, passes):
        start_copy(fn, copy, passes, size)
        share_packet(fn, fn.args["slot"], copy)
        fn.set_well_known("standard_metadata.ingress_port", fn.internal("ingress_port"), copy)
        packet, length = fn.internal("packet", copy), fn.internal("packet_length", copy)
        fn.call("parse", fn.ctx, copy, packet, length)


def _set_truncation(fn: Fn, state: Any, record: Any) -> None:
    length = fn.b.trunc(fn.load(Space.TABLE, fn.at(record, 16), I64, 8), I32)
    none = fn.b.icmp_unsigned("==", length, _c(0))
    fn.set_internal("truncate", fn.b.select(none, _c(0), fn.b.add(length, _c(1))), state)


def start_copy(fn: Fn, state: Any, passes: Any, size: Any) -> None:
    """Start a copy's state: all zero but what follows the packet round."""
    fn.clear(state, fn.unit.state.size)
    for name in ("ingress_length", "ingress_port"):
        fn.set_internal(name, fn.internal(name), state)
    fn.set_internal("passes", passes, state)
    fn.set_internal("length_register", size, state)


def _uses(program: ir.Program, *names: str) -> list[bool]:
    return [True for a in program.actions.values() for p in a.primitives if p.op in names]


def egress_clone(fn: Fn) -> None:
    """Write the copy of a packet as egress left it, if its session has replicas."""
    if not any(_uses(fn.unit.program, "clone_egress_pkt_to_egress", "clone_ingress_pkt_to_egress")):
        return
    with _clone(fn, _EGRESS_CLONE) as (copy, passes):
        front, size = fn.unit.state.front, fn.unit.state.size
        fn.copy(copy, fn.st, front)
        whole = slot_pointer(fn, fn.args["slot"])
        fn.copy(fn.at(copy, front), fn.at(whole, front), size - front)
        fn.set_internal("passes", passes, copy)
        share_packet(fn, fn.args["slot"], copy)
        _clear_requests(fn, copy)
