"""Writes small traces in the formats that are read, from lines that a reader of the tests can follow."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sim.traces.chakra import COLLECTIVES, VERSION, messages

_TYPES = {"metadata": 1, "load": 2, "store": 3, "compute": 4, "send": 5, "receive": 6}
_NUMBERS = {name: number for number, name in reversed(COLLECTIVES.items())}


def chakra_node(number: int, kind: str, after: Iterable[int] = (), micros: int = 0, **attributes: Any) -> Any:
    """Return a node: a collective by its name, or one of the types above."""
    node = messages()["Node"](id=number, type=_TYPES.get(kind, 7), data_deps=after, duration_micros=micros)
    if kind in _NUMBERS:
        attributes.setdefault("comm_type", _NUMBERS[kind])
    for name, value in attributes.items():
        made = node.attr.add(name=name)
        setattr(made, "string_val" if isinstance(value, str) else "int64_val", value)
    return node


def chakra_bytes(nodes: Iterable[Any], version: str = VERSION) -> bytes:
    """Return a file's bytes."""
    return b"".join(map(_delimited, [messages()["Metadata"](version=version), *nodes]))


def write_chakra(folder: Path, ranks: Iterable[Iterable[Any]], name: str = "trace") -> str:
    """Write a file for each rank, and return their pattern."""
    for rank, nodes in enumerate(ranks):
        (folder / f"{name}.{rank}.et").write_bytes(chakra_bytes(nodes))
    return str(folder / f"{name}.%d.et")


def _delimited(message: Any) -> bytes:
    raw: bytes = message.SerializeToString()
    length, prefix = len(raw), bytearray()
    while length >= 0x80:
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*prefix, length]) + raw
