"""The scapy layer reads packets of the worker library, and the other way round."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_agent.codecs.packed import PACKED
from host_agent.codecs.table import CODEC_OF
from host_agent.protocol.records import PROBE_NUMBERS
from host_agent.wire import Header
from host_agent.wire.constants import (
    EXPONENT_ALL_ZERO,
    EXPONENT_BIAS,
    EXPONENT_NON_FINITE,
    FLAG_LANES,
    HEADER_BYTES,
    HEADER_FIELDS,
    KIND_CONTRIBUTE,
    KIND_PROBE,
    KIND_RESULT,
    KIND_STATUS,
    STATUS_FIELDS,
    UDP_PORT,
)
from host_agent.wire.parts import BLOCK_EXPONENT, PART_BITMAP, PARTS
from netsum_common.lane_counts import LANE_COUNTS

pytest.importorskip("scapy", reason="needs scapy: pip install 'netsum[packets]'")

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from netsum.packets.layer import Netsum, bind_port

WORD = st.integers(0, 2**32 - 1)
headers = st.builds(Header, **{name: st.integers(0, 2**bits - 1) for name, bits in HEADER_FIELDS})
lanes = st.builds(
    lambda count, seed: np.random.default_rng(seed).integers(-(2**31), 2**31, count).tolist(),
    st.sampled_from((0, 1, *LANE_COUNTS)),
    st.integers(0, 2**32),
)


def has_seen(header: Header) -> bool:
    return header.kind == KIND_STATUS or (header.kind == KIND_RESULT and bool(header.quorum))


def payload(header: Header, values: list[int], status: tuple[int, int]) -> bytes:
    """The bytes behind the header on the wire, by NumPy."""
    packed = np.array(status, ">u4").tobytes() if has_seen(header) else b""
    return packed + (np.array(values, ">i4").tobytes() if header.flags & FLAG_LANES else b"")


@settings(max_examples=200)
@given(headers, lanes, st.tuples(WORD, WORD))
def test_scapy_reads_what_the_worker_packs(
    header: Header, values: list[int], status: tuple[int, int]
) -> None:
    packet = Netsum(header.to_bytes() + payload(header, values, status))
    assert {name: int(getattr(packet, name)) for name in Header._fields} == header._asdict()
    if has_seen(header):
        assert tuple(getattr(packet, name) for name, _ in STATUS_FIELDS) == status
    if header.flags & FLAG_LANES:
        assert packet.lanes == values
    assert not packet.payload


@settings(max_examples=200)
@given(headers, lanes, st.tuples(WORD, WORD))
def test_the_worker_reads_what_scapy_packs(
    header: Header, values: list[int], status: tuple[int, int]
) -> None:
    fields = header._asdict()
    if has_seen(header):
        fields |= zip((name for name, _ in STATUS_FIELDS), status, strict=True)
    if header.flags & FLAG_LANES:
        fields["lanes"] = values
    datagram = bytes(Netsum(**fields))
    assert Header.from_bytes(datagram) == header
    assert datagram[HEADER_BYTES:] == payload(header, values, status)


@settings(max_examples=300)
@given(st.binary(max_size=90))
def test_any_datagram_goes_out_as_it_came_in(datagram: bytes) -> None:
    sent = bytes(UDP(sport=UDP_PORT, dport=UDP_PORT, chksum=0) / datagram)
    received = UDP(sent)
    received.clear_cache()
    assert bytes(received) == sent
    assert received.summary()


def test_datagrams_of_the_port_are_of_the_protocol() -> None:
    frame = bytes(Ether() / IP(dst="10.0.0.254") / UDP() / Netsum(kind="PROBE", job_id=7))
    packet = Ether(frame)
    assert (packet[UDP].dport, packet[Netsum].job_id) == (UDP_PORT, 7)


def test_another_port_can_be_bound() -> None:
    frame = bytes(IP() / UDP(sport=40_000, dport=40_123) / bytes(Netsum(kind="PROBE")))
    assert Netsum not in IP(frame)
    bind_port(40_123)
    assert Netsum in IP(frame)


def test_flags_follow_the_lanes_unless_they_are_given() -> None:
    assert Header.from_bytes(bytes(Netsum(lanes=[1] * 64))).flags == FLAG_LANES
    assert Header.from_bytes(bytes(Netsum())).flags == 0
    assert bytes(Netsum(lanes=[1] * 64, flags=0)) == bytes(Netsum(flags=0))


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        (
            {
                "kind": "CONTRIBUTE",
                "op": "MAX",
                "job_id": 3,
                "worker_id": 1,
                "chunk": 17,
                "pool_index": 35,
                "lanes": [0] * 64,
            },
            "netsum CONTRIBUTE MAX job 3 worker 1 chunk 17 slot 17.1 64 lanes",
        ),
        (
            {"kind": "STATUS", "chunk": 4, "seen": 0b101, "slot_chunk": 2},
            "netsum STATUS SUM job 0 worker 0 chunk 4 slot 0.0 seen [0, 2] of chunk 2",
        ),
        (
            {"kind": "CONTRIBUTE", "quorum": 1},
            "netsum CONTRIBUTE SUM job 0 worker 0 chunk 0 slot 0.0 quorum",
        ),
        (
            {"kind": "RESULT", "quorum": 1, "seen": 0b1010, "lanes": [0] * 64},
            "netsum RESULT SUM job 0 worker 0 chunk 0 slot 0.0 quorum of workers [1, 3] 64 lanes",
        ),
        ({"kind": 9, "op": 0}, "netsum kind 9 op 0 job 0 worker 0 chunk 0 slot 0.0"),
    ],
)
def test_summary(fields: dict[str, object], line: str) -> None:
    assert Netsum(bytes(Netsum(**fields))).summary() == line


@pytest.mark.parametrize(
    ("exponent", "shown"),
    [
        (EXPONENT_ALL_ZERO, "0 (all zero)"),
        (EXPONENT_NON_FINITE, "65535 (non-finite present)"),
        (EXPONENT_BIAS - 3, f"{EXPONENT_BIAS - 3} (2^-3)"),
    ],
)
def test_exponents_are_shown_as_what_they_mean(exponent: int, shown: str) -> None:
    assert shown in Netsum(exponent=exponent).show(dump=True)


def test_a_probe_has_its_number_where_others_have_the_exponent() -> None:
    assert "5 (number of the PROBE)" in Netsum(kind="PROBE", exponent=5).show(dump=True)


def test_flags_and_completers_are_named() -> None:
    assert "flags     = LANES+CONGESTED" in Netsum(kind="RESULT", flags=9).show(dump=True)
    assert "completer = unknown" in Netsum(kind="RESULT").show(dump=True)
    assert "completer = 7" in Netsum(kind="RESULT", completer=7).show(dump=True)


def test_an_answer_is_known_as_one() -> None:
    fields = {"job_id": 2, "token": 9, "worker_id": 1, "pool_index": 4, "chunk": 2}
    probe = Netsum(kind=KIND_PROBE, **fields)
    assert Netsum(kind=KIND_STATUS, seen=1, **fields).answers(probe)
    assert Netsum(kind=KIND_RESULT, **fields).answers(Netsum(kind=KIND_CONTRIBUTE, **fields))
    assert not Netsum(kind=KIND_STATUS, **(fields | {"chunk": 3})).answers(probe)
    assert not probe.answers(probe)
    assert not probe.answers(Raw(b"other"))


def test_what_a_packet_is_part_of() -> None:
    bitmap = Netsum(op="BOR", job_id=1, exponent=PART_BITMAP, lanes=[1] * 64)
    assert bitmap.part == "bitmap of blocks"
    assert bitmap.summary().endswith("64 lanes, bitmap of blocks")
    assert Netsum(kind="PROBE", exponent=PART_BITMAP).part is None
    assert Netsum(exponent=EXPONENT_ALL_ZERO).part is None


def test_the_ranges_of_parts_are_those_of_the_codecs() -> None:
    meanings = {meaning: (least, most) for least, most, meaning in PARTS}
    assert meanings["number of a PROBE"] == (1, PROBE_NUMBERS)
    assert meanings["scale of packed lanes"] == PACKED.exponents
    exponents = [codec.exponents for codec in CODEC_OF.values() if codec.exponent is not None]
    assert meanings[BLOCK_EXPONENT] == (min(exponents)[0], max(most for _, most in exponents))
    ends = [end for least, most, _ in PARTS for end in (least, most)]
    assert ends == sorted(ends), "ranges overlap"
    assert ends[0] > EXPONENT_ALL_ZERO
    assert ends[-1] < EXPONENT_NON_FINITE
