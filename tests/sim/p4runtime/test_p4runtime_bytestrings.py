"""Byte strings: every accepted length, the shortest answer, and what does not fit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.switch.p4runtime import bytestrings
from sim.switch.p4runtime.status_errors import Code, P4RuntimeError

# The specification's table of valid encodings: bytes, width, value.
UNSIGNED = [
    (b"\x63", 8, 99),
    (b"\x00\x63", 16, 99),
    (b"\x63", 16, 99),
    (b"\x30\x64", 16, 12388),
    (b"\x00\x30\x64", 16, 12388),
    (b"\x63", 7, 99),
    (b"\x00", 1, 0),
    (b"\x00\x00\x00", 1, 0),
    (b"\x01\xff", 9, 511),
]
SIGNED = [
    (b"\x63", 8, 99),
    (b"\x9d", 8, -99),
    (b"\xff\x9d", 8, -99),
    (b"\xcf\x9c", 16, -12388),
    (b"\x00\x80", 9, 128),
    (b"\xff", 1, -1),
]


@pytest.mark.parametrize(("value", "width", "number"), UNSIGNED)
def test_unsigned_values_of_any_length_are_taken(value: bytes, width: int, number: int) -> None:
    assert bytestrings.decode(value, width, "x") == number


@pytest.mark.parametrize(("value", "width", "number"), SIGNED)
def test_signed_values_of_any_length_are_taken(value: bytes, width: int, number: int) -> None:
    assert bytestrings.decode_signed(value, width, "x") == number


@pytest.mark.parametrize(("value", "width"), [(b"", 8), (b"\x02\x00", 9), (b"\x80", 7), (b"\x01\x00", 8)])
def test_what_does_not_fit_is_out_of_range(value: bytes, width: int) -> None:
    with pytest.raises(P4RuntimeError) as caught:
        bytestrings.decode(value, width, "port")
    assert caught.value.code is Code.OUT_OF_RANGE
    assert "port" in caught.value.message


@pytest.mark.parametrize(("value", "width"), [(b"", 8), (b"\x80", 7), (b"\x00\x80", 8), (b"\xff\x7f", 8)])
def test_signed_what_does_not_fit_is_out_of_range(value: bytes, width: int) -> None:
    with pytest.raises(P4RuntimeError) as caught:
        bytestrings.decode_signed(value, width, "x")
    assert caught.value.code is Code.OUT_OF_RANGE


@given(st.integers(0, 1 << 200))
def test_answers_are_the_shortest(number: int) -> None:
    encoded = bytestrings.encode(number)
    assert bytestrings.decode(encoded, 201, "x") == number
    assert len(encoded) == 1 or encoded[0] != 0


@given(st.integers(-(1 << 200), (1 << 200) - 1))
def test_signed_answers_are_the_shortest(number: int) -> None:
    encoded = bytestrings.encode_signed(number)
    assert bytestrings.decode_signed(encoded, 201, "x") == number
    shorter = encoded[1:]
    assert not shorter or int.from_bytes(shorter, "big", signed=True) != number
