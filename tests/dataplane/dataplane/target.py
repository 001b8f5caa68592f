"""A switch under test, of any engine: packets in, packets out, tables, groups and counters."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from netsum_common import targets

PORTS = 8
CPU_PORT = 510
CHECK_SEQUENCE_BYTES = 4
BUILD = Path(__file__).resolve().parents[3] / "p4" / "build"

Packet = tuple[int, bytes]
"""(port, frame)"""


@dataclass(frozen=True)
class Entry:
    """A table entry by the last components of the program's names. An lpm key is (value, prefix length)."""

    table: str
    key: Mapping[str, int | tuple[int, int]]
    action: str
    params: Mapping[str, int] = field(default_factory=dict)


class Target(Protocol):
    """An engine with the compiled program in it, ports 0 to PORTS - 1 cabled."""

    lanes: int

    kind: targets.Target
    """Kind of the switch. In ingress, Tofino does not see where frames end: bytes behind the IPv4 packet count as padding, and up
    to 4 bytes missing at a frame's end are taken from its check sequence."""

    can: targets.Capabilities
    """Capabilities of the switch's program."""

    growth_bytes: int
    """Bytes by which an answer may be larger than the packet that it answers."""

    def send(self, packets: Sequence[Packet]) -> list[Packet]:
        """Put packets in, one after the other, and return all that came out, in order per port."""
        ...

    def send_from_controller(self, egress_port: int, frame: bytes) -> list[Packet]:
        """Send a packet-out and return all that came out."""
        ...

    def received_by_controller(self, count: int) -> list[Packet]:
        """Return this many packet-ins: (ingress port, frame)."""
        ...

    def insert(self, entries: Iterable[Entry]) -> None: ...

    def delete(self, entries: Iterable[Entry]) -> None: ...

    def set_default(self, table: str, action: str, params: Mapping[str, int]) -> None: ...

    def set_group(self, group: int, replicas: Sequence[tuple[int, int]]) -> None:
        """Make a multicast group of (port, replica id)."""
        ...

    def delete_group(self, group: int) -> None: ...

    def set_up(self, group: int, replicas: Sequence[tuple[int, int]], entries: Iterable[Entry]) -> None:
        """Make a multicast group and insert entries, in one request."""
        ...

    def tear_down(self, group: int, entries: Iterable[Entry]) -> None:
        """Delete entries and a multicast group, in one request."""
        ...

    def counters(self, names: Sequence[str], index: int) -> dict[str, int]:
        """Read how many packets each counter counted."""
        ...

    def close(self) -> None: ...


def program_files(lanes: int) -> tuple[Path, Path]:
    """Name the compiled program and its P4Info."""
    return BUILD / f"netsum_v1model_{lanes}.json", BUILD / f"netsum_v1model_{lanes}.p4info.txtpb"
