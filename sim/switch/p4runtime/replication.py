"""Multicast groups and clone sessions: who gets copies of a packet."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Any

from netsum_common.p4rt import p4runtime_pb2
from sim.switch.control_plane import ControlPlane
from sim.switch.p4runtime import bytestrings
from sim.switch.p4runtime.status_errors import already_exists, invalid, not_found, out_of_range, unimplemented
from sim.switch.p4runtime.stores import EntityStore

FIRST_RESERVED_GROUP = 1 << 15
"""BMv2 keeps the groups from here on for itself; the same limit makes the same requests valid on both."""

MAX_SESSION = (1 << 15) - 1
_PORT_BITS = 9
_INSTANCE_BITS = 16


class _Copies(EntityStore, ABC):
    """Entries of the packet replication engine that are numbered and have replicas."""

    CHANGED = ("_kept",)
    # The name of the kind in errors, the field with an entry's number, and the form of the engine's entry.
    what: str
    number_field: str
    form: str

    def __init__(self, switch: ControlPlane) -> None:
        self._switch = switch
        self._kept: dict[int, Any] = {}

    def insert(self, entry: Any) -> None:
        """Add an entry."""
        number = self._number(entry)
        if number in self._kept:
            raise already_exists(f"{self.what} {number} exists already; use MODIFY")
        self._put(number, entry)

    def modify(self, entry: Any) -> None:
        """Replace an entry."""
        self._put(self._existing(entry), entry)

    def delete(self, entry: Any) -> None:
        """Remove an entry; nothing is copied by it from now on."""
        number = self._existing(entry)
        self._remove(number)
        del self._kept[number]

    def _existing(self, entry: Any) -> int:
        number = self._number(entry)
        if number not in self._kept:
            raise not_found(f"{self.what} {number} does not exist; use INSERT")
        return number

    def _put(self, number: int, entry: Any) -> None:
        self._write(number, entry, f"{self.what} {number}")
        self._kept[number] = deepcopy(entry)

    def read(self, entry: Any) -> Iterator[Any]:
        """Yield one entry, or all if none is named."""
        wanted = [self._existing(entry)] if getattr(entry, self.number_field) else list(self._kept)
        found = [p4runtime_pb2.PacketReplicationEngineEntry(**{self.form: self._kept[n]}) for n in wanted]
        return iter([p4runtime_pb2.Entity(packet_replication_engine_entry=each) for each in found])

    @abstractmethod
    def _number(self, entry: Any) -> int:
        """Return the number of an entry."""

    @abstractmethod
    def _write(self, number: int, entry: Any, what: str) -> None:
        """Write an entry into the switch."""

    @abstractmethod
    def _remove(self, number: int) -> None:
        """Take an entry out of the switch."""


class MulticastGroups(_Copies):
    """The multicast groups of a switch."""

    what, number_field, form = "multicast group", "multicast_group_id", "multicast_group_entry"

    def _number(self, entry: Any) -> int:
        group: int = entry.multicast_group_id
        if group == 0:
            raise invalid("0 is no multicast group; groups are numbered from 1")
        if group >= FIRST_RESERVED_GROUP:
            raise out_of_range(
                f"expected a multicast group between 1 and {FIRST_RESERVED_GROUP - 1}, not {group}"
            )
        return group

    def _write(self, number: int, entry: Any, what: str) -> None:
        self._switch.mcast_set(number, _replicas(entry.replicas, what))

    def _remove(self, number: int) -> None:
        self._switch.mcast_delete(number)


class CloneSessions(_Copies):
    """The clone sessions of a switch."""

    what, number_field, form = "clone session", "session_id", "clone_session_entry"

    def _number(self, entry: Any) -> int:
        session: int = entry.session_id
        if not 1 <= session <= MAX_SESSION:
            raise invalid(f"expected a clone session between 1 and {MAX_SESSION}, not {session}")
        return session

    def _write(self, number: int, entry: Any, what: str) -> None:
        if entry.class_of_service:
            raise unimplemented(f"{what}: there are no classes of service; leave class_of_service 0")
        if not 0 <= entry.packet_length_bytes < 1 << 16:
            raise invalid(
                f"{what}: expected packet_length_bytes between 0 and 65535, not {entry.packet_length_bytes}"
            )
        self._switch.clone_set(number, _replicas(entry.replicas, what), entry.packet_length_bytes)

    def _remove(self, number: int) -> None:
        self._switch.clone_delete(number)


def _replicas(replicas: Iterable[Any], what: str) -> list[tuple[int, int]]:
    """List the (port, instance) of each replica, in order."""
    found: list[tuple[int, int]] = []
    for replica in replicas:
        kind = replica.WhichOneof("port_kind")
        if kind is None:
            raise invalid(f"{what}: a replica without a port")
        port = replica.egress_port
        if kind == "port":
            port = bytestrings.decode(replica.port, 32, f"{what}: port")
        if port >> _PORT_BITS:
            raise invalid(f"{what}: expected a port below {1 << _PORT_BITS}, not {port}")
        if replica.instance >> _INSTANCE_BITS:
            raise invalid(f"{what}: expected an instance below {1 << _INSTANCE_BITS}, not {replica.instance}")
        pair = (port, replica.instance)
        if pair in found:
            raise invalid(f"{what}: port {port} with instance {replica.instance} is there twice")
        found.append(pair)
    return found
