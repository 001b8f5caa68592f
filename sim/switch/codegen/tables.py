"""Machine code for looking a key up, one function per table: ``lookup_<id>(ctx, st) -> entry``, 0 on a miss."""

from typing import Any

from llvmlite import ir as ll

from sim.switch import ir
from sim.switch.codegen.emit import I1, I64, PTR, Fn, Space, Unit, i, joined, resize
from sim.switch.codegen.expressions import Expressions
from sim.switch.table_layout import MIX, TOMBSTONE, TableShape, words


def write_lookup(unit: Unit, table: ir.Table, name: str) -> None:
    """Write the lookup function of a table that has a key."""
    fn = unit.fn(name, [("ctx", PTR), ("st", PTR)], I64)
    shape = TableShape.of(unit.program, table)
    expressions = Expressions(fn)
    key = key_words(expressions, table, shape)
    if shape.hashed:
        _probe(fn, table, shape, key)
    else:
        _scan(fn, table, shape, key, _range_values(expressions, table, shape))


def key_part(expressions: Expressions, field: ir.KeyField) -> Any:
    """Return the value of a key's field, without the bits that the program masks out."""
    value = expressions.low(field.target, field.width)
    if field.mask is not None:
        value = expressions.fn.b.and_(value, field.mask % (1 << field.width))
    return value


def key_words(expressions: Expressions, table: ir.Table, shape: TableShape) -> list[Any]:
    """Compute the key as 64-bit words, least significant first."""
    b = expressions.fn.b
    fields = [f for f in table.key if f.kind != "range"]
    wide = i(64 * max(shape.key_words, 1))
    parts = ((key_part(expressions, field), field.width) for field in fields)
    key = joined(b, parts, sum(f.width for f in fields), wide.width)
    return [resize(b, b.lshr(key, 64 * n) if n else key, 64) for n in range(shape.key_words)]


def _range_values(expressions: Expressions, table: ir.Table, shape: TableShape) -> list[Any]:
    b = expressions.fn.b
    return [
        resize(b, key_part(expressions, table.key[n]), 64 * words(table.key[n].width)) for n in shape.ranges
    ]


def _probe(fn: Fn, table: ir.Table, shape: TableShape, key: list[Any]) -> None:
    b, place = fn.b, fn.unit.context.tables[table.name]
    rows, mask = fn.pointer(place["rows"]), fn.word(place["row_count"])
    value: Any = ll.Constant(I64, 0)
    for word in key:
        value = b.mul(b.xor(value, word), MIX - (1 << 64))
        value = b.xor(value, b.lshr(value, 32))
    start = b.block
    head, check, following, done = (b.append_basic_block(n) for n in ("probe", "check", "following", "found"))
    b.branch(head)
    b.position_at_end(head)
    at = b.phi(I64)
    at.add_incoming(value, start)
    index = b.and_(at, mask)
    row = fn.at(rows, b.mul(index, 8 * shape.row_words))
    tag = fn.load(Space.TABLE, fn.at(row, 8 * shape.key_words), I64, 8)
    miss = b.append_basic_block("miss")
    b.cbranch(b.icmp_unsigned("==", tag, 0), miss, check)
    b.position_at_end(check)
    same: Any = b.icmp_unsigned("!=", tag, TOMBSTONE - (1 << 64))
    for n, word in enumerate(key):
        stored = fn.load(Space.TABLE, fn.at(row, 8 * n), I64, 8)
        same = b.and_(same, b.icmp_unsigned("==", stored, word))
    b.cbranch(same, done, following)
    b.position_at_end(following)
    at.add_incoming(b.add(index, 1), following)
    b.branch(head)
    b.position_at_end(miss)
    b.ret(0)
    b.position_at_end(done)
    b.ret(b.sub(tag, 1))


def _scan(fn: Fn, table: ir.Table, shape: TableShape, key: list[Any], ranges: list[Any]) -> None:
    b, place = fn.b, fn.unit.context.tables[table.name]
    rows, count = fn.pointer(place["rows"]), fn.word(place["row_count"])
    with fn.loop(count) as index:
        row = fn.at(rows, b.mul(index, 8 * shape.row_words))
        same: Any = ll.Constant(I1, 1)
        for n, word in enumerate(key):
            value = fn.load(Space.TABLE, fn.at(row, 8 * n), I64, 8)
            mask = fn.load(Space.TABLE, fn.at(row, 8 * (shape.key_words + n)), I64, 8)
            same = b.and_(same, b.icmp_unsigned("==", b.and_(word, mask), value))
        at = 16 * shape.key_words
        for value in ranges:
            for predicate in ("<=", ">="):
                bound = fn.load(Space.TABLE, fn.at(row, at), value.type, 8)
                same = b.and_(same, b.icmp_unsigned(predicate, bound, value))
                at += value.type.width // 8
        with b.if_then(same):
            entry = fn.load(Space.TABLE, fn.at(row, 8 * (shape.row_words - 1)), I64, 8)
            b.ret(entry)
    b.ret(0)
