"""Digest lists: times of sending, suppressed repeats, acknowledgements and time-outs."""

from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf import text_format

from netsum_common.p4rt import p4info_pb2, p4runtime_pb2
from sim.switch import Digest
from sim.switch.p4runtime.catalog import Catalog
from sim.switch.p4runtime.digests import DigestLists
from sim.switch.p4runtime.status_errors import Code, P4RuntimeError

P4INFO = Path(__file__).parents[2] / "programs" / "entities.p4info.txtpb"
MS = 1_000_000
Make = Callable[..., p4runtime_pb2.DigestEntry]


@pytest.fixture
def catalog() -> Catalog:
    return Catalog(text_format.Parse(P4INFO.read_text(), p4info_pb2.P4Info()))


@pytest.fixture
def lists(catalog: Catalog) -> DigestLists:
    return DigestLists(catalog)


@pytest.fixture
def entry(catalog: Catalog) -> Make:
    (digest,) = catalog.digests.values()

    def make(
        max_timeout_ns: int = 0, max_list_size: int = 0, ack_timeout_ns: int = 0
    ) -> p4runtime_pb2.DigestEntry:
        made = p4runtime_pb2.DigestEntry(digest_id=digest.id)
        made.config.max_timeout_ns = max_timeout_ns
        made.config.max_list_size = max_list_size
        made.config.ack_timeout_ns = ack_timeout_ns
        return made

    return make


def sample(*values: int) -> Digest:
    return Digest("learned_t", values)


def contents(message: p4runtime_pb2.DigestList) -> list[tuple[int, ...]]:
    return [
        tuple(int.from_bytes(member.bitstring, "big") for member in each.struct.members)
        for each in message.data
    ]


def test_nothing_is_sent_before_it_is_configured(lists: DigestLists) -> None:
    assert lists.add([sample(1, 2)], 0) == []
    assert not lists.configured


def test_without_a_time_out_every_sample_is_a_list(lists: DigestLists, entry: Make) -> None:
    lists.insert(entry())
    sent = lists.add([sample(1, 2), sample(3, 4)], 0)
    assert [contents(each) for each in sent] == [[(1, 2)], [(3, 4)]]
    assert [each.list_id for each in sent] == [1, 2]


def test_a_list_is_sent_when_it_is_full(lists: DigestLists, entry: Make) -> None:
    lists.insert(entry(max_timeout_ns=1000 * MS, max_list_size=2))
    assert lists.add([sample(1, 2)], 0) == []
    assert lists.add([sample(1, 2)], 0) == []
    (sent,) = lists.add([sample(3, 4), sample(5, 6)], 0)
    assert contents(sent) == [(1, 2), (3, 4)]


def test_a_list_is_sent_when_its_oldest_sample_has_waited(lists: DigestLists, entry: Make) -> None:
    lists.insert(entry(max_timeout_ns=100 * MS))
    lists.add([sample(1, 2)], 50 * MS)
    assert lists.due(149 * MS) == []
    (sent,) = lists.due(150 * MS)
    assert contents(sent) == [(1, 2)]
    assert lists.due(500 * MS) == []


def test_a_sample_is_not_sent_again_before_it_is_acknowledged(lists: DigestLists, entry: Make) -> None:
    lists.insert(entry(ack_timeout_ns=1000 * MS))
    (sent,) = lists.add([sample(1, 2)], 0)
    assert lists.add([sample(1, 2)], 1) == []
    lists.acknowledge(p4runtime_pb2.DigestListAck(digest_id=sent.digest_id, list_id=sent.list_id + 1))
    assert lists.add([sample(1, 2)], 2) == []
    lists.acknowledge(p4runtime_pb2.DigestListAck(digest_id=sent.digest_id, list_id=sent.list_id))
    assert len(lists.add([sample(1, 2)], 3)) == 1


def test_a_sample_is_sent_again_when_no_acknowledgement_came(lists: DigestLists, entry: Make) -> None:
    lists.insert(entry(ack_timeout_ns=100 * MS))
    lists.add([sample(1, 2)], 0)
    lists.due(99 * MS)
    assert lists.add([sample(1, 2)], 99 * MS) == []
    lists.due(100 * MS)
    assert len(lists.add([sample(1, 2)], 100 * MS)) == 1


def test_settings_can_be_read_changed_and_removed(lists: DigestLists, entry: Make) -> None:
    with pytest.raises(P4RuntimeError) as caught:
        lists.modify(entry())
    assert caught.value.code is Code.NOT_FOUND
    lists.insert(entry(1, 2, 3))
    with pytest.raises(P4RuntimeError) as caught:
        lists.insert(entry())
    assert caught.value.code is Code.ALREADY_EXISTS
    lists.modify(entry(4, 5, 6))
    (read,) = lists.read(p4runtime_pb2.DigestEntry())
    assert read.digest_entry == entry(4, 5, 6)
    lists.delete(entry())
    assert lists.add([sample(1, 2)], 0) == []
    assert list(lists.read(p4runtime_pb2.DigestEntry())) == []


def test_unknown_digests_and_negative_times_are_invalid(lists: DigestLists, entry: Make) -> None:
    for call, message in [
        (lists.insert, p4runtime_pb2.DigestEntry(digest_id=1)),
        (lists.insert, entry(max_timeout_ns=-1)),
        (lists.acknowledge, p4runtime_pb2.DigestListAck(digest_id=1)),
    ]:
        with pytest.raises(P4RuntimeError) as caught:
            call(message)
        assert caught.value.code is Code.INVALID_ARGUMENT
