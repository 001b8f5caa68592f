"""Table keys: P4Runtime's match fields to the engine's, and back.

A field that matches everything is left out of a message; the engine has it spelled out.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from netsum_common.p4rt import p4runtime_pb2
from sim.switch.entries import Exact, Lpm, Match, Optional, Range, Ternary
from sim.switch.p4runtime import bytestrings
from sim.switch.p4runtime.catalog import KeyField, MatchKind, by_field
from sim.switch.p4runtime.status_errors import invalid


def decode_key(matches: Iterable[Any], fields: Sequence[KeyField], what: str) -> tuple[Match, ...]:
    """Make the engine's key of a list of `FieldMatch`.

    `fields`: the key's fields; the result has one match for each, in this order. Raises P4RuntimeError: INVALID_ARGUMENT or
    OUT_OF_RANGE: an unknown, repeated, missing or malformed field.
    """
    given = by_field(matches, "field_id", fields, what, "key field")
    return tuple(
        decode_match(given[field.id], field, what) if field.id in given else _anything(field, what)
        for field in fields
    )


def _anything(field: KeyField, what: str) -> Match:
    everything: dict[MatchKind, Match] = {
        MatchKind.LPM: Lpm(0, 0),
        MatchKind.TERNARY: Ternary(0, 0),
        MatchKind.RANGE: Range(0, field.top),
        MatchKind.OPTIONAL: Optional(None),
    }
    if field.kind in everything:
        return everything[field.kind]
    raise invalid(f"{what}: exact key field {field.name} is missing; only other kinds may be left out")


def decode_match(match: Any, field: KeyField, what: str) -> Match:
    """Make the engine's match of one `FieldMatch`.

    Raises P4RuntimeError: INVALID_ARGUMENT or OUT_OF_RANGE: it is malformed, or of another kind than the field.
    """
    where = f"{what}: key field {field.name}"
    given = match.WhichOneof("field_match_type")
    if given != field.kind.value:
        raise invalid(f"{where} is matched as {field.kind.value}, not as {given or 'nothing'}")

    def number(value: bytes, part: str = "") -> int:
        return bytestrings.decode(value, field.bitwidth, f"{where}{part}")

    if field.kind is MatchKind.EXACT:
        return Exact(number(match.exact.value))
    if field.kind is MatchKind.OPTIONAL:
        return Optional(number(match.optional.value))
    omit = "leave the field out to match everything"
    if field.kind is MatchKind.LPM:
        value, length = number(match.lpm.value), match.lpm.prefix_len
        if not 0 < length <= field.bitwidth:
            raise invalid(
                f"{where}: expected a prefix length between 1 and {field.bitwidth}, not {length}; {omit}"
            )
        if value & ((1 << (field.bitwidth - length)) - 1):
            raise invalid(f"{where}: {value:#x} has bits set behind its prefix of {length} bits")
        return Lpm(value, length)
    if field.kind is MatchKind.TERNARY:
        value, mask = number(match.ternary.value), number(match.ternary.mask, " (mask)")
        if mask == 0:
            raise invalid(f"{where}: the mask is zero; {omit}")
        if value & ~mask:
            raise invalid(f"{where}: {value:#x} has bits set outside its mask {mask:#x}")
        return Ternary(value, mask)
    low, high = number(match.range.low, " (low)"), number(match.range.high, " (high)")
    if low > high:
        raise invalid(f"{where}: the range {low}…{high} is reversed")
    if low == 0 and high == field.top:
        raise invalid(f"{where}: the range covers every value; {omit}")
    return Range(low, high)


def canonical_key(key: Sequence[Match], fields: Sequence[KeyField]) -> tuple[Match, ...]:
    """Write the key of an entry of the program itself with the kinds of the P4Info.

    The compiler makes ternary fields of optional ones.
    """
    return tuple(
        Optional(match.value if match.mask else None)
        if field.kind is MatchKind.OPTIONAL and isinstance(match, Ternary)
        else match
        for match, field in zip(key, fields, strict=True)
    )


def encode_key(key: Sequence[Match], fields: Sequence[KeyField]) -> Iterator[Any]:
    """Yield the `FieldMatch` messages of an engine's key, in the order of the fields."""
    for given, field in zip(key, fields, strict=True):
        match given:
            case Lpm(_, 0) | Ternary(_, 0) | Optional(None):
                continue
            case Range(0, high) if high == field.top:
                continue
        message = p4runtime_pb2.FieldMatch(field_id=field.id)
        form = getattr(message, type(given).__name__.lower())
        for part, value in vars(given).items():
            if part == "prefix_length":
                form.prefix_len = value
            else:
                setattr(form, part, bytestrings.encode(value))
        yield message
