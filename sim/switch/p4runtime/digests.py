"""Digests: data that the program sends to the controller, in lists, and not again before they are acknowledged.

Times are those given to the methods; nothing here reads a clock, and the sender stamps the lists.
"""

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from netsum_common.p4rt import p4data_pb2, p4runtime_pb2
from sim.switch import Digest as Learned
from sim.switch.p4runtime import bytestrings
from sim.switch.p4runtime.catalog import Catalog, Digest, lookup
from sim.switch.p4runtime.status_errors import already_exists, invalid, not_found
from sim.switch.p4runtime.stores import EntityStore

Sample = tuple[int, ...]


@dataclass
class _Feed:
    """One configured digest: its settings, data that waits to be sent, and sent data that is not acknowledged."""

    digest: Digest
    entry: Any
    waiting: dict[Sample, None] = field(default_factory=dict)
    waiting_since_ns: int = 0
    sent: dict[int, tuple[int, tuple[Sample, ...]]] = field(default_factory=dict)
    unacknowledged: set[Sample] = field(default_factory=set)


class DigestLists(EntityStore):
    """The digests of one program."""

    CHANGED = ("_feeds",)

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._by_name = {digest.name: digest for digest in catalog.digests.values()}
        self._feeds: dict[int, _Feed] = {}
        # Numbers go on when a digest is configured anew, so that an old acknowledgement never hits a new
        # list.
        self._next_list_id: dict[int, int] = {}

    @property
    def configured(self) -> bool:
        """Whether any digest is to be sent."""
        return bool(self._feeds)

    def insert(self, entry: Any) -> None:
        """Begin to send a digest."""
        digest = lookup(self._catalog.digests, entry.digest_id, "digest")
        if digest.id in self._feeds:
            raise already_exists(f"digest {digest.name} is configured already; use MODIFY")
        self._feeds[digest.id] = _Feed(digest, _checked(entry))

    def modify(self, entry: Any) -> None:
        """Change how a digest is sent."""
        self._feed(entry).entry = _checked(entry)

    def delete(self, entry: Any) -> None:
        """Stop sending a digest, and evict what waits."""
        del self._feeds[self._feed(entry).digest.id]

    def read(self, entry: Any) -> Iterator[Any]:
        """Yield the settings of one digest, or of all if none is named."""
        feeds = [self._feed(entry)] if entry.digest_id else list(self._feeds.values())
        return iter([p4runtime_pb2.Entity(digest_entry=feed.entry) for feed in feeds])

    def add(self, samples: Iterable[Learned], now_ns: int) -> list[Any]:
        """Take the program's digests. Returns the lists that are full, or need not wait."""
        ready = []
        for sample in samples:
            values = sample.values
            digest = self._by_name.get(sample.name)
            feed = self._feeds.get(digest.id) if digest is not None else None
            if feed is None or values in feed.unacknowledged or values in feed.waiting:
                continue
            if not feed.waiting:
                feed.waiting_since_ns = now_ns
            feed.waiting[values] = None
            if feed.entry.config.max_timeout_ns == 0 or len(feed.waiting) == feed.entry.config.max_list_size:
                ready.append(self._close(feed, now_ns))
        return ready

    def due(self, now_ns: int) -> list[Any]:
        """Close the lists that have waited long enough, and drop data that was not acknowledged in time."""
        ready = []
        for feed in self._feeds.values():
            for list_id, (sent_ns, _) in list(feed.sent.items()):
                if now_ns - sent_ns >= feed.entry.config.ack_timeout_ns:
                    self._evict(feed, list_id)
            if feed.waiting and now_ns - feed.waiting_since_ns >= feed.entry.config.max_timeout_ns:
                ready.append(self._close(feed, now_ns))
        return ready

    def acknowledge(self, ack: Any) -> None:
        """Take a controller's `DigestListAck`. Raises P4RuntimeError: INVALID_ARGUMENT: no such digest."""
        digest = lookup(self._catalog.digests, ack.digest_id, "digest")
        feed = self._feeds.get(digest.id)
        if feed is not None:
            self._evict(feed, ack.list_id)

    def _feed(self, entry: Any) -> _Feed:
        digest = lookup(self._catalog.digests, entry.digest_id, "digest")
        try:
            return self._feeds[digest.id]
        except KeyError:
            raise not_found(f"digest {digest.name} is not configured; use INSERT") from None

    def _close(self, feed: _Feed, now_ns: int) -> Any:
        list_id = self._next_list_id.get(feed.digest.id, 1)
        self._next_list_id[feed.digest.id] = list_id + 1
        samples = tuple(feed.waiting)
        feed.waiting.clear()
        if feed.entry.config.ack_timeout_ns:
            feed.sent[list_id] = (now_ns, samples)
            feed.unacknowledged.update(samples)
        message = p4runtime_pb2.DigestList(digest_id=feed.digest.id, list_id=list_id)
        message.data.extend(_encode(feed.digest, sample) for sample in samples)
        return message

    def _evict(self, feed: _Feed, list_id: int) -> None:
        _, samples = feed.sent.pop(list_id, (0, ()))
        feed.unacknowledged.difference_update(samples)


def _checked(entry: Any) -> Any:
    """Copy a `DigestEntry`, whose settings must make sense."""
    config = entry.config
    if min(config.max_timeout_ns, config.max_list_size, config.ack_timeout_ns) < 0:
        raise invalid("times and sizes of a digest must not be negative")
    return copy.deepcopy(entry)


def _encode(digest: Digest, values: Sample) -> Any:
    encoded = [p4data_pb2.P4Data(bitstring=bytestrings.encode(value)) for value in values]
    if digest.shape == "bitstring":
        return encoded[0]
    data = p4data_pb2.P4Data()
    (data.struct if digest.shape == "struct" else data.tuple).members.extend(encoded)
    return data
