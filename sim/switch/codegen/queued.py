"""Machine code for a packet's state in variables, and for the state in its slot while it waits for egress.

While a function works on a packet, the first part of the packet's state is in variables of the function
(`layout.StateLayout`). In its slot, that part holds bookkeeping and metadata that egress reads, and the small headers as they
are in packets. A replica takes from there the fields that egress reads, and fields that egress does not write leave unchanged.
"""

from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

from llvmlite import ir as ll

from sim.switch.codegen.copies import CLONES, move_field
from sim.switch.codegen.emit import I8, I32, Fn, Space, resize
from sim.switch.codegen.wire import extract_header, write_header
from sim.switch.layout import INTERNAL


def begin(fn: Fn, home: Any) -> None:
    """Begin work on the packet whose slot is at `home`: all that may be in registers is zero."""
    fn.st = fn.variable(ll.ArrayType(I8, fn.unit.state.local), align=64)
    fn.clear(fn.st, fn.unit.state.local)
    fn.store(Space.STATE, home, fn.at(fn.st, INTERNAL["home"]))


def clear_all_but(fn: Fn, state: Any, first: int, headers: Iterable[str]) -> None:
    """Clear a state from byte `first` on, but of these headers, in the order of their places, only that they are valid."""
    layout = fn.unit.state
    for header in headers:
        fn.clear(fn.at(state, first), layout.headers[header] + 8 - first)
        first = layout.headers[header] + layout.shape(header).size
    fn.clear(fn.at(state, first), layout.size - first)


def image(fn: Fn, home: Any, header: str) -> Any:
    """Return where a slot has a small header's bytes."""
    return fn.at(home, fn.unit.state.headers[header] + 8)


def keep(fn: Fn, home: Any) -> None:
    """Store the fields that are read after replication into the slot at `home`."""
    state, seen = fn.unit.state, fn.unit.program.headers_seen_leaving
    _move_bookkeeping(fn, fn.st, home)
    for header in filter(state.is_small, state.headers):
        place, shape = fn.field_pointer(header), state.shape(header)
        valid = fn.load(Space.STATE, place, I8, 8)
        fn.store(Space.STATE, valid, fn.at(home, state.headers[header]), 8)
        # Fields that egress does not name are read by the deparser alone.
        with nullcontext() if header in seen else fn.b.if_then(resize(fn.b, valid, 1)):
            write_header(fn, place, shape, image(fn, home, header))


def take_up(fn: Fn, whole: Any) -> None:
    """Load what egress reads of the packet whose slot is at `whole`."""
    state = fn.unit.state
    _move_bookkeeping(fn, whole, fn.st)
    for header in filter(state.is_small, state.headers):
        place = fn.field_pointer(header)
        fn.store(Space.STATE, fn.load(Space.STATE, fn.at(whole, state.headers[header]), I8, 8), place, 8)
        extract_header(fn, place, state.shape(header), image(fn, whole, header))


def _move_bookkeeping(fn: Fn, source: Any, target: Any) -> None:
    state, program = fn.unit.state, fn.unit.program
    names = ["packet", "packet_length", "payload_offset", "length_register", "ingress_length", "ingress_port"]
    if program.uses(*CLONES, "recirculate", "truncate"):
        names += ["clone_session", "clone_fields", "truncate", "recirculate", "passes"]
    for name in names:
        fn.set_internal(name, fn.internal(name, source), target)
    for header, field in program.metadata_seen_leaving:
        at = state.headers[header]
        move_field(fn, fn.at(source, at), fn.at(target, at), state.shape(header).fields[field])
    for stack in (*state.stacks.values(), *state.union_stacks.values()):
        count = fn.load(Space.STATE, fn.at(source, stack.next), I32, 4)
        fn.store(Space.STATE, count, fn.at(target, stack.next), 4)
