"""Machine code for cloning, from ingress and from egress, and what copies of a packet share with it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sim.switch.codegen.copies import CLONES, copy_fields, push, share_packet, slot_pointer, take_slot
from sim.switch.codegen.emit import I32, I64, Fn, Space
from sim.switch.codegen.queued import begin, keep

_INGRESS_CLONE, _EGRESS_CLONE = 1, 2


def session_record(fn: Fn, number: Any) -> Any:
    """Return the address of a clone session's record: offset, count, truncate, configured (i64 each)."""
    index = fn.b.zext(fn.b.and_(number, 0x7FFF), I64)
    return fn.at(fn.pointer("sessions"), fn.b.shl(index, 5))


def set_replicas(fn: Fn, state: Any, record: Any) -> Any:
    """Note the replicas of a group's or session's record in a state; returns how many there are."""
    first = fn.b.trunc(fn.load(Space.TABLE, record, I64, 8), I32)
    count = fn.b.trunc(fn.load(Space.TABLE, fn.at(record, 8), I64, 8), I32)
    fn.set_internal("replica_offset", first, state)
    fn.set_internal("replica_count", count, state)
    fn.set_internal("replica_next", 0, state)
    return count


def another_pass(fn: Fn, state: Any) -> tuple[Any, Any]:
    """Return the number of the next pass and whether it is allowed, counting a packet that is not."""
    passes = fn.b.add(fn.internal("passes", state), 1)
    allowed = fn.b.icmp_unsigned("<=", fn.b.zext(passes, I64), fn.word("passes_limit"))
    with fn.b.if_then(fn.b.not_(allowed)):
        fn.bump("dropped_looping")
    return passes, allowed


def clear_metadata(fn: Fn, state: Any) -> None:
    """Clear a state's metadata."""
    layout = fn.unit.state
    start = layout.metadata_start
    fn.clear(fn.at(state, start), layout.metadata_end - start)


@contextmanager
def _clone(fn: Fn, instance_type: int) -> Iterator[tuple[Any, Any]]:
    """Make a copy of the packet for egress, if a clone session is set and has replicas.

    Yields the packet's state, while the function works on the copy, and the copy's slot; the body fills both.
    """
    b, source = fn.b, fn.st
    number, fields = fn.internal("clone_session"), fn.internal("clone_fields")
    with b.if_then(b.icmp_unsigned("!=", number, 0)):
        fn.set_internal("clone_session", 0)
        record = session_record(fn, number)
        count = fn.load(Space.TABLE, fn.at(record, 8), I64, 8)
        passes, allowed = another_pass(fn, fn.st)
        with b.if_then(b.and_(allowed, b.icmp_unsigned("!=", count, 0))):
            slot, home = take_slot(fn)
            kept = {"packet": share_packet(fn, fn.args["slot"], home), "passes": passes}
            for name in ("packet_length", "ingress_length", "ingress_port", "length_register"):
                kept[name] = fn.internal(name)
            begin(fn, home)
            for name, value in kept.items():
                fn.set_internal(name, value)
            yield source, home
            clear_metadata(fn, fn.st)
            copy_fields(fn, fields, source, fn.st)
            fn.set_well_known("standard_metadata.instance_type", instance_type)
            _set_truncation(fn, record)
            keep(fn, home)
            set_replicas(fn, home, record)
            push(fn, "egress", slot)
            fn.st = source


def ingress_clone(fn: Fn, size: Any) -> None:
    """Write the copy of a packet as it came, `size` bytes (i32) long, parsed again, if its session has replicas."""
    if not fn.unit.program.uses(CLONES[0]):
        return
    with _clone(fn, _INGRESS_CLONE) as (_, home):
        layout = fn.unit.state
        fn.clear(fn.at(home, layout.local), layout.size - layout.local)
        fn.set_internal("length_register", size)
        fn.set_well_known("standard_metadata.ingress_port", fn.internal("ingress_port"))
        fn.call("parse", fn.ctx, fn.st, fn.internal("packet"), fn.internal("packet_length"))


def _set_truncation(fn: Fn, record: Any) -> None:
    length = fn.b.trunc(fn.load(Space.TABLE, fn.at(record, 16), I64, 8), I32)
    none = fn.b.icmp_unsigned("==", length, 0)
    fn.set_internal("truncate", fn.b.select(none, 0, fn.b.add(length, 1)))


def start_copy(fn: Fn, state: Any, passes: Any, size: Any) -> None:
    """Start a copy's state: all zero but what follows the packet round."""
    fn.clear(state, fn.unit.state.metadata_end)
    fn.set_internal("home", state, state)
    for name in ("ingress_length", "ingress_port"):
        fn.set_internal(name, fn.internal(name), state)
    fn.set_internal("passes", passes, state)
    fn.set_internal("length_register", size, state)


def egress_clone(fn: Fn) -> None:
    """Write the copy of a packet as egress left it, if its session has replicas."""
    if not fn.unit.program.uses(*CLONES):
        return
    with _clone(fn, _EGRESS_CLONE) as (source, home):
        state, whole = fn.unit.state, slot_pointer(fn, fn.args["slot"])
        fn.set_internal("payload_offset", fn.internal("payload_offset", source))
        first, end = state.metadata_end, state.local
        fn.copy(fn.at(fn.st, first), fn.at(source, first), end - first)
        fn.copy(fn.at(home, end), fn.at(fn.internal("home", source), end), state.copied - end)
        fn.copy(fn.at(home, state.copied), fn.at(whole, state.copied), state.size - state.copied)
