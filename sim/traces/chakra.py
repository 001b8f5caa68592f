"""Chakra execution traces: a file for each rank, of protobuf messages that each follow their length.

Source: MLCommons Chakra, `schema/protobuf/et_def.proto` (package ChakraProtoMsg): the first message is the `GlobalMetadata`,
each other one a `Node`. The fields that are read are declared here; others are skipped. A node waits for its `data_deps`, as with
Chakra's own feeder; its `ctrl_deps` are the operator that called it. Sizes are as ASTRA-sim takes them (`Workload.cc`,
`Ring.cc`): the size of an all-gather is each rank's contribution, any other a rank's whole array. The root is the lowest rank:
the schema has none.
"""

import ast
import json
from collections.abc import Iterable, Iterator
from functools import cache
from operator import index
from pathlib import Path
from reprlib import repr as shown
from typing import Any, BinaryIO, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from sim.traces.graph import MOST_NODES, Kind, TraceError, TraceNode
from sim.traces.values import MOST_BYTES, MOST_NS, whole_number

_STRING, _MESSAGE, _INT64, _UINT64, _INT32, _UINT32, _BOOL, _DOUBLE = 9, 11, 3, 4, 5, 13, 8, 1
_FIELDS: Final = {
    "Attribute": (
        ("name", 1, _STRING),
        ("double_val", 3, _DOUBLE),
        ("int32_val", 7, _INT32),
        ("int64_val", 9, _INT64),
        ("uint32_val", 11, _UINT32),
        ("uint64_val", 13, _UINT64),
        ("bool_val", 27, _BOOL),
        ("string_val", 29, _STRING),
    ),
    "Metadata": (("version", 1, _STRING), ("attr", 2, "Attribute")),
    "Values": (("values", 1, _STRING),),
    "Node": (
        ("id", 1, _UINT64),
        ("name", 2, _STRING),
        ("type", 3, _INT32),
        ("data_deps", 5, _UINT64),
        ("duration_micros", 7, _UINT64),
        ("inputs", 8, "Values"),
        ("attr", 10, "Attribute"),
    ),
}
_REPEATED: Final = ("attr", "data_deps")

VERSION: Final = "0.0.4"
_SCHEMAS: Final = ("1.0.", "1.1.")
"""How the attribute `schema` begins in files that PyTorch's traces and text were converted to; those have no `version`."""
_LONGEST: Final = 1 << 26  # Bytes of a message; those of a real trace have up to some 100 kB.

DENSITY: Final = "density"
"""An attribute of netsum's own: the share of blocks of 256 elements of the sum that are not zero."""

_METADATA, _LOAD, _STORE, _COMPUTE, _SEND, _RECEIVE, _COLLECTIVE = range(1, 8)
COLLECTIVES: Final[dict[int, Kind]] = {
    0: "all-reduce",
    1: "reduce",
    2: "all-gather",
    5: "broadcast",
    6: "all-to-all",
    7: "reduce-scatter",
    8: "reduce-scatter",
}


@cache
def messages() -> dict[str, Any]:
    """Return the classes of the schema's messages, by their names here."""
    described = descriptor_pb2.FileDescriptorProto(
        name="netsum/chakra.proto", package="netsum.chakra", syntax="proto3"
    )
    for name, fields in _FIELDS.items():
        message = described.message_type.add(name=name)
        for field, number, kind in fields:
            label = 3 if field in _REPEATED else 1
            made = message.field.add(name=field, number=number, label=label)
            if isinstance(kind, str):
                made.type, made.type_name = _MESSAGE, f".netsum.chakra.{kind}"
            else:
                made.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(described)
    # GetPrototype is gone from protobuf 5, GetMessageClass is not in 3.20 yet.
    class_of: Any = (
        getattr(message_factory, "GetMessageClass", None) or message_factory.MessageFactory(pool).GetPrototype
    )
    return {name: class_of(pool.FindMessageTypeByName(f"netsum.chakra.{name}")) for name in _FIELDS}


_TYPES: Final = {
    "metadata": _METADATA,
    "load": _LOAD,
    "store": _STORE,
    "compute": _COMPUTE,
    "send": _SEND,
    "receive": _RECEIVE,
}
_NUMBERS: Final = {kind: number for number, kind in reversed(COLLECTIVES.items())}


def made_node(
    number: int, kind: str, after: Iterable[int] = (), micros: int = 0, name: str = "", **attributes: Any
) -> Any:
    """Return a node: a collective by its name in `COLLECTIVES`, or one of metadata, load, store, compute, send and receive."""
    node = messages()["Node"](id=number, name=name, type=_TYPES.get(kind, _COLLECTIVE), data_deps=after)
    node.duration_micros = micros
    if kind in _NUMBERS:
        attributes.setdefault("comm_type", _NUMBERS[kind])
    for title, value in attributes.items():
        made = node.attr.add(name=title)
        setattr(made, {str: "string_val", float: "double_val"}.get(type(value), "int64_val"), value)
    return node


def file_bytes(nodes: Iterable[Any], version: str = VERSION) -> bytes:
    """Return the bytes of a rank's file."""
    return b"".join(map(_delimited, [messages()["Metadata"](version=version), *nodes]))


def write_nodes(path: Path, nodes: Iterable[Any]) -> None:
    """Write a rank's file, all of it or nothing; raises OSError."""
    written = path.with_suffix(".new")
    written.write_bytes(file_bytes(nodes))
    written.replace(path)


def _delimited(message: Any) -> bytes:
    raw: bytes = message.SerializeToString()
    length, prefix = len(raw), bytearray()
    while length >= 0x80:
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*prefix, length]) + raw


def read_chakra(path: Path, rank: int, ranks: int, most: int = MOST_NODES) -> list[TraceNode]:
    """Read the trace of a rank, message by message, so that a long file is not in memory before an error is found.

    Raises TraceError and OSError; `most`: how many nodes it may have.
    """
    nodes: list[TraceNode] = []
    groups: dict[str, tuple[int, ...]] = {}
    with path.open("rb") as file:
        stream = _stream(file, nodes)
        _check_version(next(stream, b""))
        for raw in stream:
            node = _parsed("Node", raw)
            if node is None:
                raise TraceError(f"expected a node {_after(nodes)}, found another message")
            if node.type == _METADATA:
                groups.update(_groups(node, ranks))
            nodes.append(_node(node, rank, ranks, groups))
            if len(nodes) > most:
                raise TraceError(
                    f"expected at most {MOST_NODES:,} nodes of all ranks together, found more, from node {node.id} on"
                )
    return nodes


def _parsed(name: str, raw: bytes) -> Any:
    try:
        return messages()[name].FromString(raw)
    except DecodeError:
        return None


def _after(nodes: list[TraceNode]) -> str:
    return f"after {nodes[-1]}" if nodes else "at its beginning"


def _stream(file: BinaryIO, nodes: list[TraceNode]) -> Iterator[bytes]:
    """Iterate over messages that each follow their length, a varint; `nodes`: those that were read so far."""
    while True:
        length = shift = 0
        while byte := file.read(1):
            length |= (byte[0] & 0x7F) << shift
            shift += 7
            if byte[0] < 0x80 or length > _LONGEST:
                break
        if not byte and not shift:
            return
        if length > _LONGEST:
            raise TraceError(f"a message {_after(nodes)} is longer than {_LONGEST:,} bytes")
        raw = file.read(length)
        if not byte or len(raw) < length:
            raise TraceError(f"the file is cut off in the message {_after(nodes)}")
        yield raw


def _check_version(raw: bytes) -> None:
    found = _parsed("Metadata", raw)
    if found is None:
        raise TraceError("expected a Chakra trace, found a first message that is no metadata")
    schema = next((each.string_val for each in found.attr if each.name == "schema"), "")
    if found.version != VERSION and not schema.startswith(_SCHEMAS):
        expected = f"expected Chakra's version {VERSION}, or a schema 1.0.x or 1.1.x"
        raise TraceError(f"{expected}, found {found.version or schema or 'none'}")


def _attributes(node: Any) -> dict[str, Any]:
    return {
        each.name: next((value for kind, value in each.ListFields() if kind.name != "name"), 0)
        for each in node.attr
    }


def _groups(node: Any, ranks: int) -> dict[str, tuple[int, ...]]:
    """Return the process groups that PyTorch wrote into a metadata node: a list with a text of JSON."""
    if "pg_name" not in node.inputs.values:
        return {}
    try:
        (text,) = ast.literal_eval(node.inputs.values)
        return {
            each["pg_name"]: tuple(sorted(map(index, each["ranks"])) or range(ranks))
            for each in json.loads(text)
        }
    except (ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError):
        raise TraceError(f"node {node.id}: expected a list of process groups, found another text") from None


def _node(node: Any, rank: int, ranks: int, groups: dict[str, tuple[int, ...]]) -> TraceNode:
    where = f"node {node.id} of rank {rank}"
    duration_ns = whole_number(node.duration_micros, f"{where}: duration_micros", most=MOST_NS // 1000) * 1000
    made = TraceNode(node.id, after=list(node.data_deps), duration_ns=duration_ns)
    if not _METADATA <= node.type <= _COLLECTIVE:
        raise TraceError(f"{where} has the type {node.type}: expected one from {_METADATA} to {_COLLECTIVE}")
    found = _attributes(node)
    call = node.type == _COLLECTIVE and "comm_type" not in found and found.get("is_cpu_op")
    if node.type < _SEND or call:  # The kernel that communicates has a node of its own.
        if not duration_ns and found.get("num_ops"):
            raise TraceError(
                f"{where} has num_ops but no duration: expected duration_micros, as no processor's speed is known here"
            )
        return made
    number = whole_number(found.get("comm_type", 0), f"{where}: comm_type")
    peer = {_SEND: "comm_dst", _RECEIVE: "comm_src"}.get(node.type)
    for name in ("comm_size", peer):
        if name and name not in found:
            raise TraceError(f"{where} communicates: expected an attribute {name}")
    made.size, made.duration_ns = whole_number(found["comm_size"], f"{where}: comm_size", most=MOST_BYTES), 0
    if peer:
        made.tag = whole_number(found.get("comm_tag", 0), f"{where}: comm_tag", -(1 << 63))
        made.kind = "send" if node.type == _SEND else "receive"
        made.ranks = (rank, whole_number(found[peer], f"{where}: {peer}"))[:: 1 if node.type == _SEND else -1]
        return made
    if number not in COLLECTIVES:
        raise TraceError(f"{where} is a collective of type {number}, which no contender supports")
    group = str(found.get("pg_name", "")) or "0"
    if group not in groups and group != "0":
        raise TraceError(f"{where}: the process group {group!r} is not in the trace")
    made.kind, made.ranks = COLLECTIVES[number], groups.get(group, tuple(range(ranks)))
    made.density = found.get(DENSITY, 1.0)
    if isinstance(made.density, str) or not 0 <= made.density <= 1:
        raise TraceError(f"{where}: {DENSITY}: expected a share from 0 to 1, found {shown(made.density)}")
    if made.kind == "all-gather":
        made.size *= len(made.ranks)
    return made
