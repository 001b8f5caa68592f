"""BPF objects as LLVM writes them: functions, and the places in them that name maps and helpers of the kernel."""

import struct
from dataclasses import dataclass


@dataclass(frozen=True)
class Relocation:
    """An instruction (its byte offset in its function) that refers to a symbol; ``map.constants``: to a byte of them."""

    offset: int
    symbol: str
    at: int = 0


@dataclass(frozen=True)
class BpfObject:
    """The functions of an object by name, their references, and its constants."""

    code: dict[str, bytes]
    relocations: dict[str, tuple[Relocation, ...]]
    constants: bytes


def read_elf(data: bytes) -> BpfObject:
    """Read an ELF object."""
    table, size, count, names_index = struct.unpack_from("<Q10xHHH", data, 40)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + n * size) for n in range(count)]

    def content(section: tuple[int, ...]) -> bytes:
        return data[section[4] : section[4] + section[5]]

    def text(strings: bytes, at: int) -> str:
        return strings[at : strings.index(b"\0", at)].decode()

    names = [text(content(sections[names_index]), s[0]) for s in sections]
    symbols_at = next(n for n, s in enumerate(sections) if s[1] == 2)
    strings = content(sections[sections[symbols_at][6]])
    symbols = [
        (text(strings, s[0]), s[1] & 15, s[3], s[4], s[5])
        for s in struct.iter_unpack("<IBBHQQ", content(sections[symbols_at]))
    ]
    code: dict[str, bytes] = {}
    places: dict[str, tuple[int, int]] = {}
    for name, kind, section, value, length in symbols:
        if kind == 2:
            code[name] = content(sections[section])[value : value + length]
            places[name] = (section, value)
    constants, starts = b"", {}
    for number, section in enumerate(sections):
        if names[number].startswith(".rodata"):
            constants += bytes(-len(constants) % 8)
            starts[number] = len(constants)
            constants += content(section)
    relocations: dict[str, list[Relocation]] = {name: [] for name in code}
    for section in sections:
        if section[1] != 9 or not names[section[7]].startswith(".text"):
            continue
        for offset, info in struct.iter_unpack("<QQ", content(section)):
            name, kind, where, value, _ = symbols[info >> 32]
            target, at = (name if kind != 3 else names[where]), 0
            if where in starts:
                target, at = "map.constants", starts[where] + value
            owner = next(
                f for f, (s, at) in places.items() if s == section[7] and at <= offset < at + len(code[f])
            )
            place = Relocation(offset - places[owner][1], target, at)
            relocations[owner].append(place)
    return BpfObject(code, {name: tuple(r) for name, r in relocations.items()}, constants)
