"""Machine code for digests: a row per packet that asked for one, ``digest id, the fields' words``."""

from llvmlite import ir as ll

from sim.switch import ir
from sim.switch.codegen.emit import I64, Fn, Space, resize
from sim.switch.codegen.expressions import Expressions
from sim.switch.table_layout import words


def digest_row_words(program: ir.Program) -> int:
    """Return the 64-bit words of a digest row, enough for every digest of the program."""
    return 1 + max((sum(words(w) for _, w in fields) for _, fields in program.digests.values()), default=0)


def write_digest(fn: Fn) -> None:
    """Write code that stores the digest that the packet's actions asked for last, if any."""
    program = fn.unit.program
    if not program.digests:
        return
    b = fn.b
    number = fn.internal("digest")
    expressions = Expressions(fn)
    for identifier, (_, fields) in program.digests.items():
        with b.if_then(b.icmp_unsigned("==", number, identifier)):
            count = fn.word("digest_count")
            stride = ll.Constant(I64, 8 * digest_row_words(program))
            row = fn.at(fn.pointer("digest_rows"), b.mul(count, stride))
            fn.store(Space.STATISTICS, ll.Constant(I64, identifier), row, 8)
            at = 8
            for expr, width in fields:
                value = resize(b, expressions.low(expr, width), 64 * words(width))
                fn.store(Space.STATISTICS, value, fn.at(row, at), 8)
                at += 8 * words(width)
            fn.set_word("digest_count", b.add(count, 1))
    fn.set_internal("digest", 0)
