"""Multicast groups and clone sessions, as arrays that machine code uses.

Failures raise `EntryError` or `UnknownNameError` with the reason.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.switch.switch_errors import EntryError, UnknownNameError

Replica = tuple[int, int]
_GROUPS = 1 << 16
_SESSIONS = 1 << 15


class Replication:
    """Who gets a copy."""

    def __init__(self) -> None:
        # The (port, rid) pairs of each multicast group, 1…65535.
        self.groups: dict[int, tuple[Replica, ...]] = {}
        # The replicas of each clone session, 0…32767, and the bytes its copies are cut to (0: not cut).
        self.sessions: dict[int, tuple[tuple[Replica, ...], int]] = {}
        self._group_rows = np.zeros((_GROUPS, 2), np.int64)  # The row of a deleted group is 0.
        self._session_rows = np.zeros((_SESSIONS, 4), np.int64)
        self._replicas = np.zeros((1, 2), np.uint32)

    @staticmethod
    def _check(replicas: Sequence[Replica]) -> tuple[Replica, ...]:
        for port, rid in replicas:
            if not (0 <= port < 1 << 16 and 0 <= rid < 1 << 16):
                raise EntryError(f"a replica is (port, rid) of 16 bits each, not ({port}, {rid})")
        return tuple((int(port), int(rid)) for port, rid in replicas)

    def set_group(self, group: int, replicas: Sequence[Replica]) -> None:
        """Make or replace a multicast group."""
        if not 1 <= group < _GROUPS:
            raise EntryError(f"multicast group {group} is not in 1…{_GROUPS - 1}")
        self.groups[group] = self._check(replicas)

    def delete_group(self, group: int) -> None:
        """Remove a multicast group."""
        if self.groups.pop(group, None) is None:
            raise UnknownNameError(f"there is no multicast group {group}")
        self._group_rows[group] = 0

    def set_session(self, session: int, replicas: Sequence[Replica], truncate_bytes: int) -> None:
        """Make or replace a clone session."""
        if not 0 <= session < _SESSIONS:
            raise EntryError(f"clone session {session} is not in 0…{_SESSIONS - 1}")
        if truncate_bytes < 0:
            raise EntryError("a clone session cuts its copies to a number of bytes, or 0 to leave them whole")
        self.sessions[session] = (self._check(replicas), truncate_bytes)

    def delete_session(self, session: int) -> None:
        """Remove a clone session."""
        if self.sessions.pop(session, None) is None:
            raise UnknownNameError(f"there is no clone session {session}")
        self._session_rows[session] = 0

    def sync(self, words: NDArray[np.int64], at: dict[str, int]) -> None:
        """Rebuild the arrays and write their addresses into the context.

        The rows of groups and sessions that there are not are never written, so their pages take no memory.
        """
        rows: list[Replica] = []
        for group, replicas in self.groups.items():
            self._group_rows[group] = (len(rows), len(replicas))
            rows += replicas
        for session, (replicas, truncate) in self.sessions.items():
            self._session_rows[session] = (len(rows), len(replicas), truncate, 1)
            rows += replicas
        self._replicas = np.array(rows or [(0, 0)], np.uint32)
        words[at["groups"]] = self._group_rows.ctypes.data
        words[at["sessions"]] = self._session_rows.ctypes.data
        words[at["replicas"]] = self._replicas.ctypes.data

    def arrays(self) -> list[NDArray[Any]]:
        """Return the arrays whose addresses `sync` wrote."""
        return [self._group_rows, self._session_rows, self._replicas]
