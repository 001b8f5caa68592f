"""The slot protocol as a layer of scapy: ``from netsum.packets.layer import Netsum``.

Fields, names and widths come from the protocol's specification (docs/protocol.md). A malformed packet is shown as far as
possible, and goes out unchanged: no field is corrected or filled in.

>>> packet = IP(dst="10.0.0.254") / UDP() / Netsum(kind="PROBE", job_id=1, token=0xC0FFEE)  # doctest: +SKIP
>>> sr1(packet)[Netsum].workers_seen  # doctest: +SKIP
[0, 2]
"""

import struct
from collections.abc import Callable, Iterable
from typing import Any, Final

from scapy.fields import (
    BitEnumField,
    BitField,
    ByteField,
    ConditionalField,
    Field,
    FlagsField,
    IntField,
    ShortField,
    XBitField,
    XIntField,
)
from scapy.layers.inet import UDP
from scapy.packet import Packet, bind_bottom_up, bind_layers

from host_agent.wire import constants as c
from host_agent.wire.parts import BLOCK_EXPONENT, part_of


def _names(prefix: str) -> dict[int, str]:
    """Return the names of an enumeration of the specification, by value."""
    return {value: name.removeprefix(prefix) for name, value in vars(c).items() if name.startswith(prefix)}


KINDS: Final = _names("KIND_")
OPS: Final = _names("OP_")
FLAGS: Final = _names("FLAG_")


class _FlagsField(FlagsField):  # type: ignore[misc]  # scapy ships no types
    """Flags that say by themselves whether there are lanes, unless they are given."""

    def i2m(self, pkt: Any, x: Any) -> Any:
        if x is None:
            x = c.FLAG_LANES if pkt.getfieldval("lanes") else 0
        return super().i2m(pkt, x)


class _CompleterField(BitField):  # type: ignore[misc]
    """The rank of a worker; mostly not known."""

    def i2repr(self, pkt: Any, x: Any) -> str:
        return "unknown" if x == c.COMPLETER_UNKNOWN else str(x)


class _ExponentField(ShortField):  # type: ignore[misc]
    """A block's exponent as sent, shown with its meaning; a PROBE has its number there, and a STATUS that of its PROBE."""

    def i2repr(self, pkt: Any, x: Any) -> str:
        if pkt is not None and pkt.kind in (c.KIND_PROBE, c.KIND_STATUS):
            return f"{x} (number of the PROBE)"
        if x == c.EXPONENT_ALL_ZERO:
            return f"{x} (all zero)"
        if x == c.EXPONENT_NON_FINITE:
            return f"{x} (non-finite present)"
        part = part_of(x) or "unknown meaning"
        return f"{x} (2^{x - c.EXPONENT_BIAS})" if part == BLOCK_EXPONENT else f"{x} ({part})"


class _SeenField(IntField):  # type: ignore[misc]
    """A bitmap of workers, shown as their ids."""

    def i2repr(self, pkt: Any, x: Any) -> str:
        return f"{x:#x} (workers {', '.join(map(str, _workers(x))) or 'none'})"


class _LanesField(Field):  # type: ignore[misc]
    """The int32 lanes, as many as there are bytes for."""

    islist = 1

    def __init__(self, name: str) -> None:
        super().__init__(name, [], f"{c.LANE_BYTES}s")

    def any2i(self, pkt: Any, x: Any) -> list[int]:
        return [] if x is None else [int(lane) for lane in x]

    i2h = any2i

    def i2repr(self, pkt: Any, x: Any) -> str:
        shown = ", ".join(map(str, x[:4]))
        return f"[{shown}, … {len(x)} in all]" if len(x) > 4 else f"[{shown}]"

    def i2len(self, pkt: Any, x: Any) -> int:
        return c.LANE_BYTES * len(x)

    def addfield(self, pkt: Any, s: bytes, val: Iterable[int]) -> bytes:
        lanes = list(val)
        return s + struct.pack(f"!{len(lanes)}i", *lanes)

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, list[int]]:
        count = len(s) // c.LANE_BYTES
        end = count * c.LANE_BYTES
        return s[end:], list(struct.unpack(f"!{count}i", s[:end]))


def _has_lanes(packet: Any) -> bool:
    """Whether lanes follow: as the flags say, or, without flags, if there are any."""
    flags = packet.getfieldval("flags")
    return bool(packet.getfieldval("lanes")) if flags is None else bool(int(flags) & c.FLAG_LANES)


def _is_status(packet: Any) -> bool:
    return bool(packet.getfieldval("kind") == c.KIND_STATUS)


def _has_seen(packet: Any) -> bool:
    return _is_status(packet) or bool(
        packet.getfieldval("kind") == c.KIND_RESULT and packet.getfieldval("quorum")
    )


_SPECIAL: Final[dict[str, Callable[[str, int], Any]]] = {
    "version": lambda name, bits: BitField(name, c.VERSION, bits),
    "kind": lambda name, bits: BitEnumField(name, c.KIND_CONTRIBUTE, bits, KINDS),
    "op": lambda name, bits: BitEnumField(name, c.OP_SUM, bits, OPS),
    "flags": lambda name, bits: _FlagsField(name, None, bits, FLAGS),
    "token": lambda name, _: XIntField(name, 0),
    "exponent": lambda name, _: _ExponentField(name, 0),
    "completer": lambda name, bits: _CompleterField(name, c.COMPLETER_UNKNOWN, bits),
    "fingerprint": lambda name, bits: XBitField(name, 0, bits),
    "seen": lambda name, _: _SeenField(name, 0),
}
_PLAIN: Final = {8: ByteField, 16: ShortField, 32: IntField}


def _field(name: str, bits: int) -> Any:
    if name in _SPECIAL:
        return _SPECIAL[name](name, bits)
    return _PLAIN[bits](name, 0) if bits in _PLAIN else BitField(name, 0, bits)


class Netsum(Packet):  # type: ignore[misc]  # scapy ships no types
    """A packet of the slot protocol: header, `seen` and `slot_chunk` in a STATUS and the RESULT of a quorum chunk, lanes.

    `flags` says LANES by itself if `lanes` are given and `flags` is not.
    """

    name = "netsum"
    fields_desc = [  # noqa: RUF012  # scapy's way
        *(_field(name, bits) for name, bits in c.HEADER_FIELDS),
        *(ConditionalField(_field(name, bits), _has_seen) for name, bits in c.STATUS_FIELDS),
        ConditionalField(_LanesField("lanes"), _has_lanes),
    ]

    @property
    def slot(self) -> int:
        """The slot, relative to the job's range."""
        return int(self.pool_index) // c.POOL_VERSIONS

    @property
    def pool_version(self) -> int:
        """Pool version of the slot."""
        return int(self.pool_index) % c.POOL_VERSIONS

    @property
    def part(self) -> str | None:
        """Content of a CONTRIBUTE or RESULT, as its exponent encodes it; None if it does not."""
        return part_of(int(self.exponent)) if self.kind in (c.KIND_CONTRIBUTE, c.KIND_RESULT) else None

    @property
    def workers_seen(self) -> list[int]:
        """In a STATUS and the RESULT of a quorum chunk: ids of the workers whose contribution the slot holds, ascending."""
        return _workers(self.seen or 0)

    def answers(self, other: Any) -> bool:
        """Whether this answers another packet, for scapy's ``sr``: a STATUS or RESULT for the same chunk and worker."""
        if not isinstance(other, Netsum):
            return False
        same = all(
            getattr(self, name) == getattr(other, name)
            for name in ("job_id", "token", "worker_id", "pool_index", "chunk")
        )
        return (
            same
            and self.kind in (c.KIND_RESULT, c.KIND_STATUS)
            and other.kind in (c.KIND_CONTRIBUTE, c.KIND_PROBE)
        )

    def mysummary(self) -> str:
        """Return one line on the packet."""
        said = f"netsum {KINDS.get(self.kind, f'kind {self.kind}')} {OPS.get(self.op, f'op {self.op}')}"
        said += f" job {self.job_id} worker {self.worker_id} chunk {self.chunk} slot {self.slot}.{self.pool_version}"
        if _is_status(self):
            said += f" seen {self.workers_seen} of chunk {self.slot_chunk}"
        if self.quorum and not _is_status(self):
            said += " quorum" + (f" of workers {self.workers_seen}" if self.kind == c.KIND_RESULT else "")
        said += f" {len(self.lanes)} lanes" if _has_lanes(self) else ""
        return said + (f", {self.part}" if self.part else "")


def bind_port(port: int) -> None:
    """Dissect UDP datagrams to and from another port, such as a switch port of a loopback testbed."""
    bind_bottom_up(UDP, Netsum, dport=port)
    bind_bottom_up(UDP, Netsum, sport=port)


def _workers(bitmap: int) -> list[int]:
    return [worker_id for worker_id in range(c.MAX_CHILDREN) if bitmap >> worker_id & 1]


bind_port(c.UDP_PORT)
bind_layers(UDP, Netsum, sport=c.UDP_PORT, dport=c.UDP_PORT)
