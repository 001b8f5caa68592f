"""Integers as P4Runtime writes them: big-endian byte strings, as short as they can be.

A server must take any length whose value fits the bit width, and must answer with the shortest.
"""

from sim.switch.p4runtime.status_errors import out_of_range, unimplemented


def decode(value: bytes, bitwidth: int, what: str) -> int:
    """Read a ``bit<bitwidth>`` value.

    `value`: big-endian bytes, at least one. `bitwidth`: width of the P4 type in bits. `what`: the value's name in the
    error. Raises P4RuntimeError: OUT_OF_RANGE: the string is empty, or its value needs more bits than the type
    has. UNIMPLEMENTED: the type has no bits for controllers.
    """
    if not bitwidth:
        raise unimplemented(
            f"{what} is of a type that has no bits for controllers, such as error or a translated one"
        )
    if not value:
        raise out_of_range(f"{what} is an empty byte string; send at least one byte (zero is \\x00)")
    number = int.from_bytes(value, "big")
    if number >> bitwidth:
        raise out_of_range(f"{what} is {number:#x}, which does not fit into bit<{bitwidth}>")
    return number


def decode_signed(value: bytes, bitwidth: int, what: str) -> int:
    """Read an ``int<bitwidth>`` value (two's complement).

    Raises P4RuntimeError: OUT_OF_RANGE: the string is empty, or its value needs more bits than the type has.
    """
    if not value:
        raise out_of_range(f"{what} is an empty byte string; send at least one byte (zero is \\x00)")
    number = int.from_bytes(value, "big", signed=True)
    if not -(1 << (bitwidth - 1)) <= number < 1 << (bitwidth - 1):
        raise out_of_range(f"{what} is {number}, which does not fit into int<{bitwidth}>")
    return number


def encode(number: int) -> bytes:
    """Write a non-negative integer as the shortest byte string."""
    return number.to_bytes(max(1, (number.bit_length() + 7) // 8), "big")


def encode_signed(number: int) -> bytes:
    """Write a signed integer as the shortest two's complement byte string."""
    bits = (number if number >= 0 else ~number).bit_length() + 1
    return number.to_bytes((bits + 7) // 8, "big", signed=True)
