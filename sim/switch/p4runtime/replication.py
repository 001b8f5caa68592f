"""Multicast groups and clone sessions: who gets copies of a packet."""

from collections.abc import Iterable, Iterator
from typing import Any

from common.p4rt import p4runtime_pb2
from sim.switch.control_plane import ControlPlane
from sim.switch.p4runtime import bytestrings
from sim.switch.p4runtime.errors import already_exists, invalid, not_found, out_of_range, unimplemented

FIRST_RESERVED_GROUP = 1 << 15
"""BMv2 keeps the groups from here on for itself; the same limit makes the same requests valid on both."""

MAX_SESSION = (1 << 15) - 1
_PORT_BITS = 9
_INSTANCE_BITS = 16


class MulticastGroups:
    """The multicast groups of a switch."""

    def __init__(self, switch: ControlPlane) -> None:
        self._switch = switch
        self._groups: dict[int, Any] = {}

    def insert(self, entry: Any) -> None:
        """Add a group."""
        group = _group_id(entry)
        if group in self._groups:
            raise already_exists(f"multicast group {group} exists already; use MODIFY")
        self._put(group, entry)

    def modify(self, entry: Any) -> None:
        """Replace the replicas of a group."""
        self._put(self._existing(entry), entry)

    def delete(self, entry: Any) -> None:
        """Remove a group; packets for it are dropped from now on."""
        group = self._existing(entry)
        self._switch.mcast_delete(group)
        del self._groups[group]

    def read(self, entry: Any) -> Iterator[Any]:
        """Yield one group, or all if none is named."""
        wanted = [self._existing(entry)] if entry.multicast_group_id else list(self._groups)
        return iter([_in_engine_entity(multicast_group_entry=self._groups[group]) for group in wanted])

    def save(self) -> Any:
        """Return what `restore` takes."""
        return dict(self._groups)

    def restore(self, saved: Any) -> None:
        """Go back to what was saved."""
        self._groups = dict(saved)

    def _existing(self, entry: Any) -> int:
        group = _group_id(entry)
        if group not in self._groups:
            raise not_found(f"multicast group {group} does not exist; use INSERT")
        return group

    def _put(self, group: int, entry: Any) -> None:
        self._switch.mcast_set(group, _replicas(entry.replicas, f"multicast group {group}"))
        self._groups[group] = _copy(entry)


class CloneSessions:
    """The clone sessions of a switch."""

    def __init__(self, switch: ControlPlane) -> None:
        self._switch = switch
        self._sessions: dict[int, Any] = {}

    def insert(self, entry: Any) -> None:
        """Add a session."""
        session = _session_id(entry)
        if session in self._sessions:
            raise already_exists(f"clone session {session} exists already; use MODIFY")
        self._put(session, entry)

    def modify(self, entry: Any) -> None:
        """Replace a session."""
        self._put(self._existing(entry), entry)

    def delete(self, entry: Any) -> None:
        """Remove a session; packets are no longer cloned to it."""
        session = self._existing(entry)
        self._switch.clone_delete(session)
        del self._sessions[session]

    def read(self, entry: Any) -> Iterator[Any]:
        """Yield one session, or all if none is named."""
        wanted = [self._existing(entry)] if entry.session_id else list(self._sessions)
        return iter([_in_engine_entity(clone_session_entry=self._sessions[session]) for session in wanted])

    def save(self) -> Any:
        """Return what `restore` takes."""
        return dict(self._sessions)

    def restore(self, saved: Any) -> None:
        """Go back to what was saved."""
        self._sessions = dict(saved)

    def _existing(self, entry: Any) -> int:
        session = _session_id(entry)
        if session not in self._sessions:
            raise not_found(f"clone session {session} does not exist; use INSERT")
        return session

    def _put(self, session: int, entry: Any) -> None:
        what = f"clone session {session}"
        if entry.class_of_service:
            raise unimplemented(f"{what}: there are no classes of service; leave class_of_service 0")
        if not 0 <= entry.packet_length_bytes < 1 << 16:
            raise invalid(
                f"{what}: expected packet_length_bytes between 0 and 65535, not {entry.packet_length_bytes}"
            )
        self._switch.clone_set(session, _replicas(entry.replicas, what), entry.packet_length_bytes)
        self._sessions[session] = _copy(entry)


def _in_engine_entity(**entry: Any) -> Any:
    engine_entry = p4runtime_pb2.PacketReplicationEngineEntry(**entry)
    return p4runtime_pb2.Entity(packet_replication_engine_entry=engine_entry)


def _copy(entry: Any) -> Any:
    kept = type(entry)()
    kept.CopyFrom(entry)
    return kept


def _group_id(entry: Any) -> int:
    group: int = entry.multicast_group_id
    if group == 0:
        raise invalid("0 is no multicast group; groups are numbered from 1")
    if group >= FIRST_RESERVED_GROUP:
        raise out_of_range(
            f"expected a multicast group between 1 and {FIRST_RESERVED_GROUP - 1}, not {group}"
        )
    return group


def _session_id(entry: Any) -> int:
    session: int = entry.session_id
    if not 1 <= session <= MAX_SESSION:
        raise invalid(f"expected a clone session between 1 and {MAX_SESSION}, not {session}")
    return session


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
