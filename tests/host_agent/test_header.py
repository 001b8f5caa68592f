import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_agent.wire import Header
from host_agent.wire.constants import HEADER_BYTES, HEADER_FIELDS

headers = st.builds(Header, **{name: st.integers(0, 2**bits - 1) for name, bits in HEADER_FIELDS})


def packed_by_hand(header: Header) -> bytes:
    number = 0
    for name, bits in HEADER_FIELDS:
        number = number << bits | getattr(header, name)
    return number.to_bytes(HEADER_BYTES, "big")


@given(headers)
def test_fields_lie_where_the_specification_says(header: Header) -> None:
    assert header.to_bytes() == packed_by_hand(header)


@given(headers, st.binary(max_size=40))
def test_unpacking_undoes_packing(header: Header, rest: bytes) -> None:
    assert Header.from_bytes(header.to_bytes() + rest) == header


@given(st.binary(max_size=HEADER_BYTES - 1))
def test_too_few_bytes_are_refused(datagram: bytes) -> None:
    with pytest.raises(ValueError, match="24 bytes"):
        Header.from_bytes(datagram)


def test_values_are_cut_to_their_field() -> None:
    wide = Header(*[2**40 + 1] * len(HEADER_FIELDS))
    assert Header.from_bytes(wide.to_bytes()) == Header(*[1] * len(HEADER_FIELDS))
