"""Common parts of the tests of the P4Runtime server: a running switch, a client, and entities by name."""

import contextlib
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import text_format

from netsum_common.p4rt import code_pb2, p4info_pb2, p4runtime_pb2, p4runtime_pb2_grpc, status_pb2
from sim.switch import Packets
from sim.switch.p4runtime import P4RuntimeServer
from sim.switch.ports import Chassis
from tests.raw_p4runtime import RawClient

Message = Any
"""A message of protobuf, whose base class has no types."""
Kind = Any
"""INSERT, MODIFY or DELETE."""
Update = tuple[Kind, Message]

PROGRAMS = Path(__file__).parents[2] / "programs"
DEVICE = 1
DEADLINE_S = 400

INSERT = p4runtime_pb2.Update.INSERT
MODIFY = p4runtime_pb2.Update.MODIFY
DELETE = p4runtime_pb2.Update.DELETE

CPU_PORT = 510
TABLES, MULTICAST, CLONE, TO_CPU, LEARN, STATE, PROFILE, METER, VALUE_SET = range(1, 10)


def probe(
    op: int, a: int = 0, b: int = 0, c: int = 0, d: int = 0, mark: int = 0, payload: bytes = b""
) -> bytes:
    """A packet of entities.p4."""
    parts = [(op, 1), (a, 4), (b, 2), (c, 1), (d, 6), (mark, 1)]
    return b"".join(value.to_bytes(size, "big") for value, size in parts) + payload


def parse(frame: bytes) -> dict[str, int]:
    """The fields of a probe."""
    sizes = {"op": 1, "a": 4, "b": 2, "c": 1, "d": 6, "mark": 1}
    found, at = {}, 0
    for name, size in sizes.items():
        found[name] = int.from_bytes(frame[at : at + size], "big")
        at += size
    return found


def fields(op: int, **given: int) -> dict[str, int]:
    """The fields of a probe, those not given being zero."""
    return {"op": op, "a": 0, "b": 0, "c": 0, "d": 0, "mark": 0} | given


def number(value: int) -> bytes:
    """The shortest byte string of an integer."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


@functools.cache
def p4info_of(path: Path) -> p4info_pb2.P4Info:
    """A program's P4Info; parsed once, which takes longer than all else of a bench."""
    info = p4info_pb2.P4Info()
    text_format.Parse(path.read_text(), info)
    return info


class Bench:
    """A switch in process with a P4Runtime server, and a client that is primary."""

    def __init__(self, program: str = "entities", set_config: bool = True) -> None:
        self.stack = contextlib.ExitStack()
        self.chassis = Chassis()
        self.server = self.stack.enter_context(P4RuntimeServer(self.chassis, "127.0.0.1:0", device_id=DEVICE))
        self.json = PROGRAMS / f"{program}.json"
        self.p4info_path = PROGRAMS / f"{program}.p4info.txtpb"
        self.p4info = p4info_of(self.p4info_path)
        self.client = RawClient(DEVICE, self.server.address, (0, 10))
        self.stack.callback(self.client.tear_down)
        channel = self.stack.enter_context(grpc.insecure_channel(self.server.address))
        self.stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
        if set_config:
            self._set_config()

    def _set_config(self) -> None:
        request = p4runtime_pb2.SetForwardingPipelineConfigRequest(
            device_id=DEVICE,
            action=p4runtime_pb2.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
            config=p4runtime_pb2.ForwardingPipelineConfig(
                p4info=self.p4info, p4_device_config=self.json.read_bytes()
            ),
        )
        request.election_id.low = 10
        self.stub.SetForwardingPipelineConfig(request, timeout=60)

    def close(self) -> None:
        self.stack.close()

    def id(self, alias: str) -> int:
        """The id of the object with this alias."""
        for kind in self.p4info.DESCRIPTOR.fields:
            if kind.name not in ("pkg_info", "type_info", "externs"):
                for each in getattr(self.p4info, kind.name):
                    if alias in (each.preamble.alias, each.preamble.name):
                        return int(each.preamble.id)
        raise KeyError(alias)

    def inject(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Send a frame in by a port; returns [(port, frame)]."""
        return list(self.chassis.inject(Packets.of([(port, frame)])))

    def one(self, op: int, **given: Any) -> Any:
        """Send one probe in by port 3; returns (port, fields) of the only packet that leaves, or None."""
        left = self.inject(3, probe(op, **given))
        assert len(left) <= 1
        return (left[0][0], parse(left[0][1])) if left else None

    # Entities

    def action(self, alias: str, *params: int) -> p4runtime_pb2.Action:
        action = p4runtime_pb2.Action(action_id=self.id(alias))
        for identifier, value in enumerate(params, 1):
            action.params.add(param_id=identifier, value=number(value))
        return action

    def entry(
        self,
        table: str,
        match: Mapping[int, Any] | None = None,
        action: tuple[Any, ...] | None = None,
        priority: int = 0,
        **rest: Any,
    ) -> p4runtime_pb2.TableEntry:
        """A table entry; `match` is {field id: int | ("lpm", v, n) | ("ternary", v, m) | …}."""
        entry = p4runtime_pb2.TableEntry(table_id=self.id(table), priority=priority, **rest)
        for identifier, value in (match or {}).items():
            field = entry.match.add(field_id=identifier)
            if isinstance(value, int):
                field.exact.value = number(value)
            elif value[0] == "lpm":
                field.lpm.value, field.lpm.prefix_len = number(value[1]), value[2]
            elif value[0] == "ternary":
                field.ternary.value, field.ternary.mask = number(value[1]), number(value[2])
            elif value[0] == "range":
                field.range.low, field.range.high = number(value[1]), number(value[2])
            else:
                field.optional.value = number(value[1])
        if action is not None:
            entry.action.action.CopyFrom(self.action(*action))
        return entry

    # Calls

    def request(self, *updates: Update, atomicity: Any = 0) -> p4runtime_pb2.WriteRequest:
        request = p4runtime_pb2.WriteRequest(device_id=DEVICE, atomicity=atomicity)
        request.election_id.low = 10
        for kind, entity in updates:
            request.updates.add(type=kind).entity.CopyFrom(entity_of(entity))
        return request

    def write(self, kind: Kind, *entities: Message) -> None:
        """Write entities by the client."""
        request = self.request(*((kind, entity) for entity in entities))
        self.client.write(request)

    def refused(self, kind: Kind, entity: Message) -> tuple[str, str]:
        """Write an entity that is refused; returns (code name, message)."""
        return self.outcomes((kind, entity))[0]

    def outcomes(self, *updates: Update, **options: Any) -> list[tuple[str, str]]:
        """Write a batch of which something fails; returns (code name, message) of each update."""
        with pytest.raises(grpc.RpcError) as caught:
            self.stub.Write(self.request(*updates, **options), timeout=DEADLINE_S)
        assert caught.value.code() is grpc.StatusCode.UNKNOWN
        return [(code_pb2.Code.Name(each.canonical_code), each.message) for each in details(caught.value)]

    def read(self, entity: Message) -> list[Message]:
        """Read the entities that one selects, by the client; returns the messages without their envelope."""
        found: list[Message] = []
        for response in self.client.read_one(entity_of(entity)):
            found += [unwrapped(each) for each in response.entities]
        return found

    def read_refused(self, entity: Message) -> str:
        """Read something that is refused; returns the code."""
        request = p4runtime_pb2.ReadRequest(device_id=DEVICE, entities=[entity_of(entity)])
        with pytest.raises(grpc.RpcError) as caught:
            list(self.stub.Read(request, timeout=DEADLINE_S))
        return str(caught.value.code().name)


def details(error: Any) -> list[p4runtime_pb2.Error]:
    """The `p4.v1.Error` of each update, from the trailing metadata."""
    (packed,) = [value for key, value in error.trailing_metadata() if key == "grpc-status-details-bin"]
    status = status_pb2.Status.FromString(packed)
    assert status.code == error.code().value[0]
    assert status.message == error.details()
    found = []
    for each in status.details:
        detail = p4runtime_pb2.Error()
        assert each.Unpack(detail)
        found.append(detail)
    return found


def entity_of(message: Message) -> p4runtime_pb2.Entity:
    """Put a message into the envelope it travels in."""
    if isinstance(message, p4runtime_pb2.Entity):
        return message
    engine = p4runtime_pb2.PacketReplicationEngineEntry
    if isinstance(message, p4runtime_pb2.MulticastGroupEntry):
        message = engine(multicast_group_entry=message)
    elif isinstance(message, p4runtime_pb2.CloneSessionEntry):
        message = engine(clone_session_entry=message)
    for field in p4runtime_pb2.Entity.DESCRIPTOR.fields:
        if field.message_type == message.DESCRIPTOR:
            return p4runtime_pb2.Entity(**{field.name: message})
    raise TypeError(message)


def unwrapped(entity: p4runtime_pb2.Entity) -> Message:
    message = getattr(entity, entity.WhichOneof("entity"))
    if isinstance(message, p4runtime_pb2.PacketReplicationEngineEntry):
        message = getattr(message, message.WhichOneof("type"))
    return message
