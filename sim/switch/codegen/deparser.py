"""Machine code for the deparser: ``deparse(ctx, st, whole, out) -> bytes written`` (headers, then the payload).

`whole` is the slot of the packet that `st` is a replica of; it alone has the headers that lie apart (`layout.StateLayout.apart`).
"""

from dataclasses import replace
from typing import Any

from sim.switch import ir
from sim.switch.codegen.actions import Primitives
from sim.switch.codegen.emit import I64, PTR, Fn, Unit
from sim.switch.codegen.hashing import payload, write_update
from sim.switch.codegen.queued import image
from sim.switch.codegen.wire import write_header


def header_room(program: ir.Program) -> int:
    """Return the most bytes that the deparser can put before the payload."""
    return sum((sum(f.width for f in program.headers[h].type.fields) + 7) // 8 for h in program.deparser)


def write_deparser(unit: Unit) -> None:
    """Write the checksum update, the deparser's own statements and the headers in order."""
    fn = Fn(unit, "deparse", [("ctx", PTR), ("st", PTR), ("whole", PTR), ("out", PTR)], I64)
    primitives = Primitives(fn)
    write_update(fn, primitives)
    for primitive in unit.program.deparser_ops:
        primitives.primitive(primitive)
    b = fn.b
    cursor = fn.variable(PTR, fn.args["out"])
    for name in unit.program.deparser:
        header = primitives.header(ir.HeaderRef(name))
        if name in unit.state.apart:
            header = replace(header, pointer=fn.at(fn.args["whole"], unit.state.headers[name]))
        lies = image(fn, fn.args["whole"], name) if unit.state.is_small(name) else None
        changed = [f for h, f in unit.program.written_leaving if h == name]
        with b.if_then(primitives.is_valid(header)):
            place = b.load(cursor, typ=PTR)
            b.store(write_header(fn, header.pointer, header.shape, place, lies, changed), cursor)
    end = b.load(cursor, typ=PTR)
    start, size = payload(fn)
    with b.if_then(b.icmp_unsigned("!=", size, 0)):
        fn.copy(end, start, size)
    total = b.add(b.sub(b.ptrtoint(end, I64), b.ptrtoint(fn.args["out"], I64)), size)
    b.ret(_truncated(fn, total))


def _truncated(fn: Fn, total: Any) -> Any:
    b = fn.b
    limit = fn.internal("truncate")
    wanted = b.zext(b.sub(limit, 1), I64)
    cut = b.and_(b.icmp_unsigned("!=", limit, 0), b.icmp_unsigned("<", wanted, total))
    return b.select(cut, wanted, total)
