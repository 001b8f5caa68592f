"""The small programs in front, for packets and for copies at each interface, which say which port it is and go on."""

import struct
from collections.abc import Mapping

from sim.switch.layout import INTERNAL

_MAP_LOOKUP, _TAIL_CALL = 1, 12


def instruction(code: int, target: int = 0, source: int = 0, offset: int = 0, immediate: int = 0) -> bytes:
    """Return one instruction."""
    return struct.pack("<BBhi", code, source << 4 | target, offset, immediate)


def load_address(target: int, kind: int, descriptor: int, offset: int = 0) -> bytes:
    """Return the instructions that load a map's address (kind 1) or that of a byte in an array's value (kind 2)."""
    return instruction(0x18, target, kind, 0, descriptor) + instruction(0, 0, 0, 0, offset)


def stub(state: int, programs: int, position: int, values: Mapping[str, int]) -> bytes:
    """Return a program that stores bookkeeping values in the packet's state and calls a program.

    `state`, `programs`: descriptors of the state map and of the map of programs.
    """
    stores = b"".join(instruction(0x62, 0, 0, INTERNAL[name], value) for name, value in values.items())
    call = (
        instruction(0xBF, 1, 6)
        + load_address(2, 1, programs)
        + instruction(0xB7, 3, 0, 0, position)
        + instruction(0x85, immediate=_TAIL_CALL)
    )
    return (
        instruction(0xBF, 6, 1)
        + instruction(0x62, 10, 0, -4, 0)
        + instruction(0xBF, 2, 10)
        + instruction(0x07, 2, 0, 0, -4)
        + load_address(1, 1, state)
        + instruction(0x85, immediate=_MAP_LOOKUP)
        + instruction(0x15, 0, 0, (len(stores) + len(call)) // 8)
        + stores
        + call
        + instruction(0xB7, 0)
        + instruction(0x95)
    )
