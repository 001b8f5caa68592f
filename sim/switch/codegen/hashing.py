"""Hashes and checksums: packing their inputs into bytes, and the algorithms.

As in BMv2, inputs are packed bit after bit, most significant first, fields of invalid headers are left out, and the last
byte is filled with zero bits.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from llvmlite import ir as ll

from sim.switch import ir
from sim.switch.codegen.emit import I8, I16, I64, PTR, Fn, Space, Unit, i, joined, resize
from sim.switch.codegen.expressions import Expressions

# polynomial, initial value, final xor, width; all are reflected
_CRCS = {
    "crc16": (0x8005, 0, 0, 16),
    "crc16_custom": (0x8005, 0, 0, 16),
    "crc32": (0x04C11DB7, 0xFFFFFFFF, 0xFFFFFFFF, 32),
    "crc32_custom": (0x04C11DB7, 0xFFFFFFFF, 0xFFFFFFFF, 32),
}


def _reflect(value: int, width: int) -> int:
    return int(f"{value:0{width}b}"[::-1], 2)


def _crc_table(polynomial: int, width: int) -> list[int]:
    table = []
    for byte in range(256):
        value, low = byte, _reflect(polynomial, width)
        for _ in range(8):
            value = (value >> 1) ^ (low if value & 1 else 0)
        table.append(value)
    return table


def _used(program: ir.Program) -> set[str]:
    algorithms = {c.algorithm for c in program.calculations.values()}
    return algorithms | {p.selector[0] for p in program.profiles.values() if p.selector}


def write_hash_functions(unit: Unit) -> None:
    """Write ``hash_<algorithm>(bytes, count) -> i64`` for every algorithm the program uses."""
    for algorithm in sorted(_used(unit.program)):
        fn = unit.fn(f"hash_{algorithm}", [("data", PTR), ("count", I64)], I64)
        if algorithm in _CRCS:
            _crc(fn, *_CRCS[algorithm])
        elif algorithm in ("csum16", "cksum16"):
            fn.b.ret(fold_sum(fn, _words_joined(fn, fn.b.add)))
        elif algorithm == "xor16":
            fn.b.ret(_words_joined(fn, fn.b.xor))
        else:
            _identity(fn)


def _byte(fn: Fn, offset: Any) -> Any:
    return fn.load(Space.STATISTICS, fn.at(fn.args["data"], offset), I8, 1)


def _crc(fn: Fn, polynomial: int, initial: int, final: int, width: int) -> None:
    kind = i(width)
    table = _crc_table(polynomial, width)
    content = b"".join(v.to_bytes(width // 8, "little") for v in table)
    base = fn.unit.constant_bytes(content)
    remainder = fn.variable(kind, _reflect(initial, width))
    with fn.loop(fn.args["count"]) as at:
        value = fn.b.load(remainder, typ=kind)
        index = fn.b.zext(fn.b.xor(resize(fn.b, value, 8), _byte(fn, at)), I64)
        place = fn.at(base, fn.b.mul(index, width // 8))
        entry = fn.load(Space.TABLE, place, kind, 1)
        fn.b.store(fn.b.xor(fn.b.lshr(value, ll.Constant(kind, 8)), entry), remainder)
    value = fn.b.xor(fn.b.load(remainder, typ=kind), final)
    fn.b.ret(fn.b.zext(value, I64))


def _words16(fn: Fn) -> Iterator[Any]:
    """Yield each big-endian 16-bit word within a loop, the last one padded with a zero byte."""
    count = fn.args["count"]
    with fn.loop(fn.b.lshr(count, 1)) as at:
        place = fn.at(fn.args["data"], fn.b.shl(at, 1))
        yield fn.b.zext(fn.bswap(fn.load(Space.STATISTICS, place, I16, 1)), I64)
    odd = fn.b.trunc(count, i(1))
    with fn.b.if_then(odd):
        last = fn.b.zext(_byte(fn, fn.b.sub(count, 1)), I64)
        yield fn.b.shl(last, 8)


def _words_joined(fn: Fn, join: Callable[[Any, Any], Any]) -> Any:
    total = fn.variable(I64, 0)
    for word in _words16(fn):
        fn.b.store(join(fn.b.load(total, typ=I64), word), total)
    return fn.b.load(total, typ=I64)


def fold_sum(fn: Fn, value: Any) -> Any:
    """Return the Internet checksum of which `value` is the sum of words."""
    for _ in range(3):
        low = fn.b.and_(value, 0xFFFF)
        value = fn.b.add(low, fn.b.lshr(value, 16))
    return fn.b.and_(fn.b.not_(value), 0xFFFF)


def _identity(fn: Fn) -> None:
    value = fn.variable(I64, 0)
    eight = ll.Constant(I64, 8)
    count = fn.args["count"]
    first = fn.b.select(fn.b.icmp_unsigned("<", count, eight), count, eight)
    with fn.loop(first) as at:
        byte = fn.b.zext(_byte(fn, at), I64)
        fn.b.store(fn.b.or_(fn.b.shl(fn.b.load(value, typ=I64), eight), byte), value)
    fn.b.ret(fn.b.load(value, typ=I64))


def payload(fn: Fn) -> tuple[Any, Any]:
    """Return the address and the size (i64) of what follows the parsed headers."""
    offset = fn.internal("payload_offset")
    size = fn.b.sub(fn.internal("packet_length"), offset)
    return fn.at(fn.internal("packet"), fn.b.zext(offset, I64)), fn.b.zext(size, I64)


def _chunks(
    expressions: Expressions, inputs: Sequence[tuple[ir.Expr, int]]
) -> Iterator[tuple[str | None, list[tuple[ir.Expr, int]]]]:
    """Group neighbours that are valid together: (the header that must be valid or None, inputs)."""
    headers = expressions.fn.unit.program.headers
    group: list[tuple[ir.Expr, int]] = []
    owner: str | None = None
    for expr, width in inputs:
        header = None
        if isinstance(expr, ir.FieldRef) and not headers[expr.header].metadata:
            header = expr.header
        varbit = isinstance(expr, ir.FieldRef) and expressions.slot_of(expr).varbit
        if group and (header != owner or varbit or sum(w for _, w in group) + width > 512):
            yield owner, group
            group = []
        owner = header
        group.append((expr, width))
        if varbit:
            yield owner, group
            group = []
    if group:
        yield owner, group


def hash_inputs(
    expressions: Expressions,
    algorithm: str,
    inputs: Sequence[tuple[ir.Expr, int]],
    with_payload: bool = False,
) -> Any:
    """Write code that packs `inputs` and hashes them; returns an i64."""
    fn = expressions.fn
    chunks = list(_chunks(expressions, inputs))
    if algorithm in ("csum16", "cksum16") and not with_payload and all(map(_is_words, chunks)):
        return _sum_of(expressions, chunks)
    most = sum(width for _, width in inputs) // 8 + 72
    buffer = fn.pointer("scratch") if with_payload else fn.buffer(most)
    fn.clear(buffer, most)
    cursor = fn.variable(I64, 0)
    for owner, chunk in chunks:
        if owner is None:
            _pack(expressions, chunk, buffer, cursor)
        else:
            with fn.b.if_then(expressions.is_valid(expressions.header(ir.HeaderRef(owner)))):
                _pack(expressions, chunk, buffer, cursor)
    bits = fn.b.load(cursor, typ=I64)
    count = fn.b.lshr(fn.b.add(bits, 7), 3)
    if with_payload:
        start, size = payload(fn)
        fn.copy(fn.at(buffer, count), start, size)
        count = fn.b.add(count, size)
    return fn.call(f"hash_{algorithm}", buffer, count)


def _is_words(chunk: tuple[str | None, list[tuple[ir.Expr, int]]]) -> bool:
    """Whether inputs are whole 16-bit words, so that what follows them is not shifted."""
    return sum(width for _, width in chunk[1]) % 16 == 0 and not any(
        isinstance(expr, ir.FieldRef) and expr.field == "" for expr, _ in chunk[1]
    )


def _sum_of(expressions: Expressions, chunks: Sequence[tuple[str | None, list[tuple[ir.Expr, int]]]]) -> Any:
    """Sum inputs word by word, without packing them into memory."""
    fn, b = expressions.fn, expressions.fn.b
    total: Any = ll.Constant(I64, 0)
    for owner, chunk in chunks:
        part, left = ll.Constant(I64, 0), sum(width for _, width in chunk)
        for expr, width in chunk:
            # Each piece of a field where it lies in its word.
            left -= width
            value, at, low = expressions.low(expr, width), left, 0
            while low < width:
                size = min(16 - at % 16, width - low)
                piece = b.lshr(value, low) if low else value
                piece = b.zext(resize(b, piece, size), I64) if size < 64 else resize(b, piece, 64)
                part = b.add(part, b.shl(piece, at % 16) if at % 16 else piece)
                low, at = low + size, at + size
        if owner is not None:
            valid = expressions.is_valid(expressions.header(ir.HeaderRef(owner)))
            part = b.select(valid, part, 0)
        total = b.add(total, part)
    return fold_sum(fn, total)


def _pack(expressions: Expressions, chunk: list[tuple[ir.Expr, int]], buffer: Any, cursor: Any) -> None:
    fn = expressions.fn
    b = fn.b
    at = b.load(cursor, typ=I64)
    place = fn.at(buffer, b.lshr(at, 3))
    first = chunk[0][0]
    if isinstance(first, ir.FieldRef) and expressions.slot_of(first).varbit:
        pointer, slot = expressions.field_place(first)
        bits = b.zext(expressions.varbit_bits(pointer), I64)
        fn.copy(place, fn.at(pointer, slot.offset), b.lshr(bits, 3))
        b.store(b.add(at, bits), cursor)
        return
    width = sum(w for _, w in chunk)
    room = (width + 7 + 7) // 8 * 8
    value = joined(b, ((expressions.low(expr, size), size) for expr, size in chunk), width, width)
    inside = resize(b, b.and_(at, 7), room)
    shift = b.sub(ll.Constant(i(room), room - width), inside)
    wide = fn.bswap(b.shl(resize(b, value, room), shift))
    before = fn.load(Space.STATISTICS, place, i(room), 1)
    fn.store(Space.STATISTICS, b.or_(before, wide), place, 1)
    b.store(b.add(at, width), cursor)


def calculated(expressions: Expressions, name: str) -> Any:
    """Write code that computes a hash of the program's; returns an i64."""
    how = expressions.fn.unit.program.calculations[name]
    return hash_inputs(expressions, how.algorithm, how.inputs, how.payload)


def condition_of(expressions: Expressions, checksum: ir.Checksum) -> Any:
    """Return whether a checksum's condition holds (i1)."""
    if checksum.condition is None:
        return ll.Constant(i(1), 1)
    return expressions.boolean(checksum.condition)


def write_verify(fn: Fn, expressions: Expressions) -> None:
    """Write code that verifies the program's checksums and notes a failure in the packet's state."""
    for checksum in fn.unit.program.checksums:
        if not checksum.verify:
            continue
        target = expressions.header(ir.HeaderRef(checksum.target.header))
        wanted = fn.b.and_(expressions.is_valid(target), condition_of(expressions, checksum))
        with fn.b.if_then(wanted):
            value = calculated(expressions, checksum.calculation)
            stored = expressions.low(checksum.target, 64)
            with fn.b.if_then(fn.b.icmp_unsigned("!=", value, stored)):
                fn.set_internal("checksum_error", 1)


def write_update(fn: Fn, expressions: Expressions) -> None:
    """Write code that computes the program's checksums into their fields."""
    for checksum in fn.unit.program.checksums:
        if not checksum.update:
            continue
        with fn.b.if_then(condition_of(expressions, checksum)):
            value = calculated(expressions, checksum.calculation)
            fn.write_field(checksum.target, value)
