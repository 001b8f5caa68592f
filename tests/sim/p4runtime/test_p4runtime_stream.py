"""Messages on controllers' streams: arbitration, packets, digests, idle time-outs, errors."""

import queue
import threading
import time
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from netsum_common.p4rt import code_pb2, p4runtime_pb2
from sim.switch.ports import Chassis
from tests.raw_p4runtime import RawClient
from tests.sim.p4runtime.p4runtime_client import (
    CPU_PORT,
    DEADLINE_S,
    DEVICE,
    INSERT,
    LEARN,
    MODIFY,
    TABLES,
    TO_CPU,
    Bench,
    fields,
    number,
    parse,
    probe,
)

MS = 10**6
Request = p4runtime_pb2.StreamMessageRequest


class Stream:
    """A raw stream."""

    def __init__(self, stub: Any) -> None:
        self.requests: queue.Queue[Any] = queue.Queue()
        self.heard: queue.Queue[Any] = queue.Queue()
        self.error: Any = None
        self.call = stub.StreamChannel(iter(self.requests.get, None))
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()

    def _listen(self) -> None:
        try:
            for message in self.call:
                self.heard.put(message)
        except grpc.RpcError as error:
            self.error = error

    def arbitrate(self, low: int | None = None, device: int = DEVICE, role: str = "") -> None:
        request = Request()
        request.arbitration.device_id = device
        if low is not None:
            request.arbitration.election_id.low = low
        if role:
            request.arbitration.role.name = role
        self.requests.put(request)

    def next(self, kind: str) -> Any:
        message = self.heard.get(timeout=DEADLINE_S)
        assert message.WhichOneof("update") == kind
        return getattr(message, kind)

    def ended(self) -> str:
        """Wait for the end; returns the name of the status."""
        self.thread.join(DEADLINE_S)
        assert not self.thread.is_alive()
        return str(self.error.code().name) if self.error else "OK"

    def close(self) -> str:
        self.requests.put(None)
        return self.ended()


def test_primary_and_backup_over_grpc(bench: Bench) -> None:
    one = Stream(bench.stub)
    one.arbitrate(5)
    notice = one.next("arbitration")
    assert (notice.status.code, notice.election_id.low, notice.device_id) == (
        code_pb2.ALREADY_EXISTS,
        10,
        DEVICE,
    )
    two = Stream(bench.stub)
    two.arbitrate(20)
    assert two.next("arbitration").status.code == code_pb2.OK
    assert one.next("arbitration").election_id.low == 20
    # The stock client, first with 10, has lost its rank.
    with pytest.raises(grpc.RpcError) as caught:
        bench.write(INSERT, bench.entry("lpm_table", {}, ("forward", 3)))
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert two.close() == "OK"
    assert one.next("arbitration").election_id.low == 10
    bench.write(INSERT, bench.entry("lpm_table", {}, ("forward", 3)))
    assert one.close() == "OK"


def test_a_broken_connection_ends_the_rank_too(bench: Bench) -> None:
    with grpc.insecure_channel(bench.server.address) as channel:
        from netsum_common.p4rt import p4runtime_pb2_grpc

        one = Stream(p4runtime_pb2_grpc.P4RuntimeStub(channel))
        one.arbitrate(99)
        assert one.next("arbitration").status.code == code_pb2.OK
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        notice = bench.client.get_stream_packet("arbitration", timeout=DEADLINE_S)
        if notice.arbitration.status.code == code_pb2.OK:
            break
    bench.write(INSERT, bench.entry("lpm_table", {}, ("forward", 3)))


@pytest.mark.parametrize(
    ("low", "device", "status"), [(10, DEVICE, "INVALID_ARGUMENT"), (5, DEVICE + 1, "NOT_FOUND")]
)
def test_wrong_arbitration_ends_the_stream(bench: Bench, low: int, device: int, status: str) -> None:
    one = Stream(bench.stub)
    one.arbitrate(low, device)
    assert one.ended() == status


def test_moving_to_another_device_ends_the_stream(bench: Bench) -> None:
    one = Stream(bench.stub)
    one.arbitrate(5)
    one.next("arbitration")
    one.arbitrate(5, DEVICE + 1)
    assert one.ended() == "FAILED_PRECONDITION"


def test_roles_have_primaries_of_their_own(bench: Bench) -> None:
    one = Stream(bench.stub)
    one.arbitrate(1, role="ops")
    notice = one.next("arbitration")
    assert (notice.status.code, notice.role.name) == (code_pb2.OK, "ops")
    request = bench.request((INSERT, bench.entry("lpm_table", {}, ("forward", 3))))
    request.role, request.election_id.low = "ops", 1
    bench.stub.Write(request, timeout=DEADLINE_S)
    assert bench.one(TABLES)[0] == 3
    request.role = "unknown"
    with pytest.raises(grpc.RpcError) as caught:
        bench.stub.Write(request, timeout=DEADLINE_S)
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    one.close()


# Packets


def test_packet_in_goes_to_the_primary_with_its_metadata(bench: Bench) -> None:
    backup = Stream(bench.stub)
    backup.arbitrate(5)
    backup.next("arbitration")
    packet = probe(TO_CPU, a=1, c=77, payload=b"hello")
    bench.inject(300, packet)
    heard = bench.client.get_stream_packet("packet", timeout=DEADLINE_S).packet
    assert heard.payload == packet
    assert {each.metadata_id: each.value for each in heard.metadata} == {
        1: number(300),
        2: number(77),
        3: number(len(packet)),
    }
    assert backup.heard.empty()
    backup.close()


def packet_out(port: int, handled: int, payload: bytes) -> Request:
    request = Request()
    request.packet.payload = payload
    request.packet.metadata.add(metadata_id=1, value=number(port))
    request.packet.metadata.add(metadata_id=2, value=number(handled))
    request.packet.metadata.add(metadata_id=3, value=b"\x00")
    return request


def test_packet_out_enters_by_the_cpu_port(bench: Bench) -> None:
    """The program sends a packet-out back to the CPU on request, which brings it to us again."""
    bench.client.stream_out_q.put(packet_out(CPU_PORT, 1, probe(TABLES, a=4, payload=b"ping")))
    heard = bench.client.get_stream_packet("packet", timeout=DEADLINE_S).packet
    assert {each.metadata_id: each.value for each in heard.metadata}[1] == number(CPU_PORT)
    assert parse(heard.payload) == fields(TABLES, a=4, mark=1)
    assert heard.payload.endswith(b"ping")


def test_wrong_packet_outs_are_reported(bench: Bench) -> None:
    wrong = packet_out(1, 1, probe(TABLES))
    wrong.packet.metadata.add(metadata_id=7, value=b"\x00")
    bench.client.stream_out_q.put(wrong)
    error = bench.client.get_stream_packet("error", timeout=DEADLINE_S).error
    assert error.canonical_code == code_pb2.INVALID_ARGUMENT
    assert error.packet_out.packet_out == wrong.packet


def test_backups_may_not_send_packets(bench: Bench) -> None:
    one = Stream(bench.stub)
    one.requests.put(packet_out(1, 1, probe(TABLES)))
    assert one.next("error").canonical_code == code_pb2.PERMISSION_DENIED
    one.arbitrate(5)
    one.next("arbitration")
    one.requests.put(packet_out(1, 1, probe(TABLES)))
    assert one.next("error").canonical_code == code_pb2.PERMISSION_DENIED
    one.requests.put(Request())
    assert one.next("error").WhichOneof("details") == "other"
    one.close()


def test_packet_out_without_a_program_is_reported(bare: Bench) -> None:
    bare.client.stream_out_q.put(packet_out(1, 1, probe(TABLES)))
    error = bare.client.get_stream_packet("error", timeout=DEADLINE_S).error
    assert error.canonical_code == code_pb2.FAILED_PRECONDITION


# Digests


def digest_entry(bench: Bench, **config: int) -> p4runtime_pb2.DigestEntry:
    entry = p4runtime_pb2.DigestEntry(digest_id=bench.id("learned_t"))
    for name, value in config.items():
        setattr(entry.config, name, value)
    entry.config.SetInParent()
    return entry


def learned(message: Any) -> list[tuple[int, ...]]:
    return [
        tuple(int.from_bytes(member.bitstring, "big") for member in each.struct.members)
        for each in message.digest.data
    ]


def test_digests_are_listed_acknowledged_and_not_repeated(bench: Bench) -> None:
    bench.inject(3, probe(LEARN, d=1))
    # A message after it shows that it was taken before there is an entry for digests.
    bench.inject(3, probe(TO_CPU))
    assert bench.client.get_stream_packet("packet", timeout=DEADLINE_S) is not None
    entry = digest_entry(bench, max_timeout_ns=0, max_list_size=1, ack_timeout_ns=3600 * 10**9)
    bench.write(INSERT, entry)
    assert bench.read(p4runtime_pb2.DigestEntry(digest_id=bench.id("learned_t"))) == [entry]
    bench.inject(3, probe(LEARN, d=0x020000000001))
    bench.inject(3, probe(LEARN, d=0x020000000001))
    bench.inject(4, probe(LEARN, d=0x020000000001))
    first = bench.client.get_stream_packet("digest", timeout=DEADLINE_S)
    second = bench.client.get_stream_packet("digest", timeout=DEADLINE_S)
    assert learned(first) == [(0x020000000001, 3)]
    assert learned(second) == [(0x020000000001, 4)]
    assert abs(first.digest.timestamp - time.time_ns()) < 60 * 10**9
    ack = Request()
    ack.digest_ack.digest_id, ack.digest_ack.list_id = first.digest.digest_id, first.digest.list_id
    bench.client.stream_out_q.put(ack)
    # Acknowledgements have no answer: ask until the sample comes again.
    deadline = time.monotonic() + DEADLINE_S
    again = None
    while again is None and time.monotonic() < deadline:
        bench.inject(3, probe(LEARN, d=0x020000000001))
        again = bench.client.get_stream_packet("digest", timeout=0.05)
    assert learned(again) == [(0x020000000001, 3)]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clock of switches made from here on, which stands still."""
    stands = SimpleNamespace(now_ns=10**9)
    monkeypatch.setattr(Chassis, "now_ns", lambda self: stands.now_ns)
    return stands


def test_digest_lists_wait_for_their_time_out(clock: SimpleNamespace, bench: Bench) -> None:
    bench.write(INSERT, digest_entry(bench, max_timeout_ns=200 * MS, max_list_size=100))
    for d in range(5):
        bench.inject(3, probe(LEARN, d=d))
    # A message after the samples shows that they have been noted.
    bench.inject(3, probe(TO_CPU))
    assert bench.client.get_stream_packet("packet", timeout=DEADLINE_S) is not None
    clock.now_ns += 149 * MS
    assert bench.client.get_stream_packet("digest", timeout=0.1) is None
    clock.now_ns += 51 * MS
    message = bench.client.get_stream_packet("digest", timeout=DEADLINE_S)
    assert learned(message) == [(d, 3) for d in range(5)]


def test_wrong_acknowledgements_are_reported(bench: Bench) -> None:
    ack = Request()
    ack.digest_ack.digest_id = 1
    bench.client.stream_out_q.put(ack)
    error = bench.client.get_stream_packet("error", timeout=DEADLINE_S).error
    assert error.canonical_code == code_pb2.INVALID_ARGUMENT
    assert error.WhichOneof("details") == "digest_list_ack"


# Idle time-outs


def idle_for(bench: Bench, d: int) -> int:
    """How long an entry of the table whose entries can be idle has not been hit."""
    asked = bench.entry("idle_table", {1: d})
    asked.time_since_last_hit.SetInParent()
    (read,) = bench.read(asked)
    return int(read.time_since_last_hit.elapsed_ns)


def test_idle_entries_are_reported_and_hits_put_it_off(clock: SimpleNamespace, bench: Bench) -> None:
    idle = bench.entry("idle_table", {1: 7}, ("forward", 4), idle_timeout_ns=300 * MS, metadata=b"who")
    lasting = bench.entry("idle_table", {1: 8}, ("forward", 4))
    bench.write(INSERT, idle, lasting)
    for _ in range(4):
        clock.now_ns += 299 * MS
        assert bench.one(TABLES, d=7)[0] == 4
        assert idle_for(bench, 7) == 0
    clock.now_ns += 249 * MS
    assert bench.client.get_stream_packet("idle_timeout_notification", timeout=0.1) is None
    clock.now_ns += 51 * MS
    notice = bench.client.get_stream_packet("idle_timeout_notification", timeout=DEADLINE_S)
    (entry,) = notice.idle_timeout_notification.table_entry
    assert (entry.table_id, entry.match, entry.idle_timeout_ns, entry.metadata) == (
        idle.table_id,
        idle.match,
        idle.idle_timeout_ns,
        b"who",
    )
    assert bench.read(idle) == [idle]
    # And again after as long.
    clock.now_ns += 300 * MS
    assert bench.client.get_stream_packet("idle_timeout_notification", timeout=DEADLINE_S) is not None


def test_time_since_last_hit_can_be_read(clock: SimpleNamespace, bench: Bench) -> None:
    bench.write(INSERT, bench.entry("idle_table", {1: 8}, ("forward", 4)))
    clock.now_ns += 100 * MS
    assert idle_for(bench, 8) == 100 * MS
    assert bench.one(TABLES, d=8)[0] == 4
    assert idle_for(bench, 8) == 0
    clock.now_ns += 7 * MS
    assert idle_for(bench, 8) == 7 * MS
    wrong = bench.entry("exact_table")
    wrong.time_since_last_hit.SetInParent()
    assert bench.read_refused(wrong) == "INVALID_ARGUMENT"
    wrong = bench.entry("idle_table", {1: 8})
    wrong.time_since_last_hit.SetInParent()
    assert bench.refused(MODIFY, wrong)[0] == "INVALID_ARGUMENT"


def test_the_stock_client_says_goodbye_and_comes_back(bench: Bench) -> None:
    other = RawClient(DEVICE, bench.server.address, (0, 11))
    other.tear_down()
    other = RawClient(DEVICE, bench.server.address, (0, 11))
    other.tear_down()
    assert bench.client.get_stream_packet("arbitration", timeout=DEADLINE_S) is not None
