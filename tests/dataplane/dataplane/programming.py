"""A target's tables, groups and counters through a P4Runtime server, by a client of its own."""

import queue
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from netsum_common.p4rt import p4info_pb2, p4runtime_pb2
from netsum_common.targets import TARGETS, Target
from tests.raw_p4runtime import RawClient

from .target import Entry, Packet

CPU_TIMEOUT_S = 30.0


def canonical(value: int) -> bytes:
    """Write a value as P4Runtime wants it: the shortest byte string, at least one byte."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


class Programming:
    """A session with the P4Runtime server at an address.

    Parameters
    ----------
    address
        As gRPC writes it.
    device_id
        The switch's.
    program, p4info
        What to install.
    """

    def __init__(self, address: str, device_id: int, program: Path, p4info: Path) -> None:
        self.info = text_format.Parse(p4info.read_text(), p4info_pb2.P4Info())
        self.client = RawClient(device_id, address, (0, 1))
        self.client.set_fwd_pipe_config(str(p4info), str(program))

    def close(self) -> None:
        self.client.tear_down()

    def insert(self, entries: Iterable[Entry]) -> None:
        self._write(p4runtime_pb2.Update.INSERT, [self._table_entry(entry) for entry in entries])

    def delete(self, entries: Iterable[Entry]) -> None:
        self._write(p4runtime_pb2.Update.DELETE, [self._table_entry(entry) for entry in entries])

    def set_default(self, table: str, action: str, params: Mapping[str, int]) -> None:
        entity = p4runtime_pb2.Entity()
        entity.table_entry.table_id = self._named(self.info.tables, table).preamble.id
        entity.table_entry.is_default_action = True
        self._set_action(entity.table_entry, action, params)
        self._write(p4runtime_pb2.Update.MODIFY, [entity])

    def set_group(self, group: int, replicas: Sequence[tuple[int, int]]) -> None:
        self._write(p4runtime_pb2.Update.INSERT, [self._group(group, replicas)])

    def delete_group(self, group: int) -> None:
        self._write(p4runtime_pb2.Update.DELETE, [self._group(group, [])])

    def set_up(self, group: int, replicas: Sequence[tuple[int, int]], entries: Iterable[Entry]) -> None:
        rows = [self._table_entry(entry) for entry in entries]
        self._write(p4runtime_pb2.Update.INSERT, [self._group(group, replicas), *rows])

    def tear_down(self, group: int, entries: Iterable[Entry]) -> None:
        rows = [self._table_entry(entry) for entry in entries]
        self._write(p4runtime_pb2.Update.DELETE, [*rows, self._group(group, [])])

    def counters(self, names: Sequence[str], index: int) -> dict[str, int]:
        name_of = {self._named(self.info.counters, name).preamble.id: name for name in names}
        request = p4runtime_pb2.ReadRequest(device_id=self.client.device_id)
        for counter_id in name_of:
            wanted = request.entities.add().counter_entry
            wanted.counter_id, wanted.index.index = counter_id, index
        found = [
            entity.counter_entry for answer in self.client.stub.Read(request) for entity in answer.entities
        ]
        return {name_of[entry.counter_id]: int(entry.data.packet_count) for entry in found}

    def packet_out(self, egress_port: int, frame: bytes) -> None:
        request = p4runtime_pb2.StreamMessageRequest()
        request.packet.payload = frame
        metadata = request.packet.metadata.add()
        metadata.metadata_id, metadata.value = 1, canonical(egress_port)
        self.client.stream_out_q.put(request)

    def packet_ins(self, count: int) -> list[Packet]:
        """Return this many packet-ins, in the order they came."""
        packets: list[Packet] = []
        for _ in range(count):
            try:
                message = self.client.stream_in_q["packet"].get(timeout=CPU_TIMEOUT_S)
            except queue.Empty:
                raise AssertionError(f"{len(packets)} packet-ins came instead of {count}") from None
            packets.append((int.from_bytes(message.packet.metadata[0].value, "big"), message.packet.payload))
        return packets

    def _write(self, kind: Any, entities: Sequence[Any]) -> None:
        request = p4runtime_pb2.WriteRequest()
        for entity in entities:
            request.updates.add(type=kind, entity=entity)
        if request.updates:
            self.client.write(request)

    @staticmethod
    def _named(things: Iterable[Any], name: str) -> Any:
        return next(thing for thing in things if thing.preamble.alias == name)

    def _set_action(self, table_entry: Any, name: str, params: Mapping[str, int]) -> None:
        action = self._named(self.info.actions, name)
        table_entry.action.action.action_id = action.preamble.id
        for param in action.params:
            table_entry.action.action.params.add(param_id=param.id, value=canonical(params[param.name]))

    def _table_entry(self, entry: Entry) -> Any:
        entity = p4runtime_pb2.Entity()
        table = self._named(self.info.tables, entry.table)
        entity.table_entry.table_id = table.preamble.id
        for match_field in table.match_fields:
            value = entry.key[match_field.name]
            match = entity.table_entry.match.add(field_id=match_field.id)
            if isinstance(value, tuple):
                match.lpm.value, match.lpm.prefix_len = canonical(value[0]), value[1]
            else:
                match.exact.value = canonical(value)
        self._set_action(entity.table_entry, entry.action, entry.params)
        return entity

    @staticmethod
    def _group(group: int, replicas: Sequence[tuple[int, int]]) -> Any:
        entity = p4runtime_pb2.Entity()
        multicast = entity.packet_replication_engine_entry.multicast_group_entry
        multicast.multicast_group_id = group
        for port, replica in replicas:
            multicast.replicas.add(egress_port=port, instance=replica)
        return entity


class Programmed:
    """The part of a target that goes through P4Runtime."""

    kind: Target = TARGETS["embedded"]
    programming: Programming

    def insert(self, entries: Iterable[Entry]) -> None:
        self.programming.insert(entries)

    def delete(self, entries: Iterable[Entry]) -> None:
        self.programming.delete(entries)

    def set_default(self, table: str, action: str, params: Mapping[str, int]) -> None:
        self.programming.set_default(table, action, params)

    def set_group(self, group: int, replicas: Sequence[tuple[int, int]]) -> None:
        self.programming.set_group(group, replicas)

    def delete_group(self, group: int) -> None:
        self.programming.delete_group(group)

    def set_up(self, group: int, replicas: Sequence[tuple[int, int]], entries: Iterable[Entry]) -> None:
        self.programming.set_up(group, replicas, entries)

    def tear_down(self, group: int, entries: Iterable[Entry]) -> None:
        self.programming.tear_down(group, entries)

    def counters(self, names: Sequence[str], index: int) -> dict[str, int]:
        return self.programming.counters(names, index)

    def received_by_controller(self, count: int) -> list[Packet]:
        return self.programming.packet_ins(count)
