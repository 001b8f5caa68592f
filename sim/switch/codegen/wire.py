"""Headers between a packet's bytes and a packet's state.

Fields are moved in the largest units that work: a run of equal fields of 16, 32 or 64 bits as vectors with their
bytes reversed, everything else as the shortest byte-aligned group of fields.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from llvmlite import ir as ll

from sim.switch.codegen.emit import I32, I64, Fn, Space, i, joined, resize
from sim.switch.layout import FieldSlot, HeaderShape, WireSlot

_RUN = 4


@dataclass(frozen=True)
class _Piece:
    """Fields moved together: a `run` of equal ones, a `group` within whole bytes, or one `varbit`."""

    kind: str
    slots: tuple[FieldSlot, ...]

    @property
    def bits(self) -> int:
        return sum(s.width for s in self.slots)


def _pieces(shape: HeaderShape) -> list[_Piece]:
    slots = list(shape.fields.values())
    pieces: list[_Piece] = []
    at, bit = 0, 0
    while at < len(slots):
        slot = slots[at]
        if slot.varbit:
            pieces.append(_Piece("varbit", (slot,)))
            at += 1
            continue
        if bit % 8 == 0 and slot.width in (8, 16, 32, 64):
            end = at
            while end < len(slots) and slots[end].width == slot.width and not slots[end].varbit:
                end += 1
            if end - at >= _RUN:
                pieces.append(_Piece("run", tuple(slots[at:end])))
                at = end
                continue
        end, bits = at, 0
        while end < len(slots) and not slots[end].varbit:
            bits += slots[end].width
            end += 1
            if bits % 8 == 0:
                break
        pieces.append(_Piece("group", tuple(slots[at:end])))
        at = end
    return pieces


def _chunks(count: int, width: int, most: int) -> list[tuple[int, int]]:
    """Cut `count` lanes of `width` bits into (first, lanes) of at most `most` bits and a power of two each."""
    chunks, at, size = [], 0, max(most // width, 1)
    while at < count:
        while size > count - at:
            size //= 2
        chunks.append((at, size))
        at += size
    return chunks


def _move_run(fn: Fn, piece: _Piece, header: Any, wire: Any, offset: int, *, extract: bool) -> None:
    width, first = piece.slots[0].width, piece.slots[0].offset
    size = width // 8
    if width == 8 or isinstance(piece.slots[0], WireSlot):
        source, target = (wire, header) if extract else (header, wire)
        shift = (offset, first) if extract else (first, offset)
        fn.copy(fn.at(target, shift[1]), fn.at(source, shift[0]), size * len(piece.slots))
        return
    for lane, lanes in _chunks(len(piece.slots), width, fn.unit.vector_bits):
        kind = i(width) if lanes == 1 else ll.VectorType(i(width), lanes)
        swap = fn.unit.intrinsic("llvm.bswap", [kind], ll.FunctionType(kind, [kind]))
        outside, inside = fn.at(wire, offset + lane * size), fn.at(header, first + lane * size)
        if extract:
            fn.store(Space.STATE, fn.b.call(swap, [fn.load(Space.FRAME, outside, kind, 1)]), inside, size)
        else:
            fn.store(Space.FRAME, fn.b.call(swap, [fn.load(Space.STATE, inside, kind, size)]), outside, 1)


def extract_header(fn: Fn, header: Any, shape: HeaderShape, packet: Any, varbit_bits: Any = None) -> None:
    """Write code that fills a header's fields from the packet.

    `header`, `packet`: where the header's state is, and its first byte in the packet; enough bytes must be there.
    `varbit_bits`: the varbit field's width in bits (i32, a multiple of 8), where the type has one.
    """
    offset = 0
    for piece in _pieces(shape):
        if piece.kind == "varbit":
            slot = piece.slots[0]
            fn.store(Space.STATE, varbit_bits, fn.at(header, 4), 4)
            size = fn.b.lshr(varbit_bits, 3)
            fn.copy(fn.at(header, slot.offset), fn.at(packet, offset), fn.b.zext(size, I64))
            packet = fn.at(packet, fn.b.zext(size, I64))
            continue
        if piece.kind == "run":
            _move_run(fn, piece, header, packet, offset, extract=True)
        else:
            bits = (piece.bits + 7) // 8 * 8
            value = fn.bswap(fn.load(Space.FRAME, fn.at(packet, offset), i(bits), 1))
            left = bits
            for slot in piece.slots:
                left -= slot.width
                part = fn.b.lshr(value, left) if left else value
                fn.store_slot(header, slot, resize(fn.b, part, slot.width))
        offset += piece.bits // 8


def write_header(
    fn: Fn, header: Any, shape: HeaderShape, out: Any, image: Any = None, changed: Collection[str] = ()
) -> Any:
    """Write code that puts a header's fields into `out`; returns the address after them.

    `image`: where the header is as it was in packets before some of the fields named by `changed` were written.
    """
    offset, pieces = 0, _pieces(shape)
    same: set[_Piece] = set()
    if image is not None:
        same = {p for p in pieces if not any(shape.fields[name] in p.slots for name in changed)}
        if same:
            fn.copy(out, image, sum(p.bits for p in pieces) // 8)
    for piece in pieces:
        if piece in same:
            offset += piece.bits // 8
            continue
        if piece.kind == "varbit":
            slot = piece.slots[0]
            bits = fn.load(Space.STATE, fn.at(header, 4), I32, 4)
            size = fn.b.zext(fn.b.lshr(bits, 3), I64)
            fn.copy(fn.at(out, offset), fn.at(header, slot.offset), size)
            out = fn.at(out, size)
            continue
        if piece.kind == "run":
            _move_run(fn, piece, header, out, offset, extract=False)
        else:
            bits = (piece.bits + 7) // 8 * 8
            parts = ((fn.load_slot(header, slot), slot.width) for slot in piece.slots)
            value = joined(fn.b, parts, bits, bits)
            fn.store(Space.FRAME, fn.bswap(value), fn.at(out, offset), 1)
        offset += piece.bits // 8
    return fn.at(out, offset)
