"""Table entries that no packet has hit for some time.

The switch keeps no time of the last hit; it counts hits. So the counts are read periodically, and an entry was
hit when its count has changed: times are as exact as the period is short.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sim.switch import TableEntry
from sim.switch.p4runtime.stores import EntityStore


@dataclass
class _Seen:
    """An entry as it was seen last."""

    entry: TableEntry
    timeout_ns: int
    hits: int
    since_ns: int


class IdleWatch(EntityStore):
    """The entries of the tables that have idle time-outs."""

    CHANGED = ("_seen",)

    def __init__(self, hits: Callable[[str, TableEntry], int]) -> None:
        self._hits = hits
        self._seen: dict[tuple[str, object], _Seen] = {}

    def watch(self, table: str, entry: TableEntry, timeout_ns: int, now_ns: int) -> None:
        """Begin with an entry, or go on with a changed one, which counts as hit now."""
        self._seen[table, entry.identity] = _Seen(entry, timeout_ns, self._hits(table, entry), now_ns)

    def evict(self, table: str, entry: TableEntry) -> None:
        """Stop with an entry that is to be removed."""
        del self._seen[table, entry.identity]

    def elapsed_ns(self, table: str, entry: TableEntry, now_ns: int) -> int:
        """Return how long ago the entry was hit."""
        seen = self._seen[table, entry.identity]
        self._poll(table, seen, now_ns)
        return now_ns - seen.since_ns

    def expired(self, now_ns: int) -> list[tuple[str, TableEntry]]:
        """List the entries whose time is out; their time begins anew, as the specification wants it."""
        found = []
        for (table, _), seen in self._seen.items():
            if seen.timeout_ns == 0:
                continue
            self._poll(table, seen, now_ns)
            if now_ns - seen.since_ns >= seen.timeout_ns:
                seen.since_ns = now_ns
                found.append((table, seen.entry))
        return found

    def _poll(self, table: str, seen: _Seen, now_ns: int) -> None:
        hits = self._hits(table, seen.entry)
        if hits != seen.hits:
            seen.hits, seen.since_ns = hits, now_ns
