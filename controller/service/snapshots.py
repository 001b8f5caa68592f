"""What the window shows: one JSON document a tick, shared by all viewers, and none without viewers."""

import asyncio
import concurrent.futures
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Generator, Mapping
from typing import Any, Final

from controller.service.client import as_dict
from controller.service.from_threads import RESULT_TIMEOUT_S, result_in
from controller.service.jobs import ServiceJob
from controller.service.registry import JobRegistry
from controller.service.views import add_rates, event_view, job_view, switch_view
from host_agent.job_api.jobs_pb2 import EventView, JobView, SwitchView, WorkerState, WorkerView

log = logging.getLogger(__name__)

TICK_S: Final = 0.5
RATES_S: Final = 4.0  # Rates are means over this time: workers report once a second.
LARGEST_SHARE: Final = 0.2
"""Largest share of the time in which a snapshot is being taken; beyond it there are fewer snapshots."""
EVENTS_SHOWN: Final = 200
ENDED_SHOWN: Final = 10


class Snapshots:
    """Takes snapshots of a registry in a thread of its own, for viewers in other threads."""

    def __init__(self, registry: JobRegistry, loop: asyncio.AbstractEventLoop) -> None:
        self._registry = registry
        self._loop = loop
        self._changed = threading.Condition()
        self._viewers = 0
        self._closed = False
        self._number, self._latest = 0, b""
        self._earlier: deque[tuple[float, Mapping[tuple[str, float], JobView]]] = deque()
        self._thread = threading.Thread(target=self._run, name="snapshots", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and the viewers' iterators."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def watch(self) -> Generator[bytes, None, None]:
        """Iterate over snapshots as they are taken; a viewer that was busy gets the newest one alone."""
        with self._changed:
            self._viewers += 1
            seen = self._number
            self._changed.notify_all()
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda seen=seen: self._closed or self._number != seen)  # type: ignore[misc]
                    if self._closed:
                        return
                    seen, latest = self._number, self._latest
                yield latest
        finally:
            with self._changed:
                self._viewers -= 1

    def events_of(self, job: str) -> bytes:
        """Return all that the event log has of a job, as a JSON document."""

        async def read() -> list[EventView]:
            return list(map(event_view, self._registry.events.of_job(job)))

        return _encoded(list(map(as_dict, result_in(self._loop, read()))))

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._viewers)
                if self._closed:
                    return
            began = time.monotonic()
            try:
                self._publish(_encoded(self._document(*result_in(self._loop, self._views()))))
            except (concurrent.futures.TimeoutError, concurrent.futures.CancelledError):
                log.debug("no snapshot within %g s", RESULT_TIMEOUT_S)
            except Exception:
                if self._loop.is_closed():
                    return
                log.exception("no snapshot for the window")
            took = time.monotonic() - began
            with self._changed:
                self._changed.wait_for(lambda: self._closed, max(TICK_S - took, took / LARGEST_SHARE - took))

    def _publish(self, latest: bytes) -> None:
        with self._changed:
            self._number, self._latest = self._number + 1, latest
            self._changed.notify_all()

    async def _views(self) -> tuple[list[JobView], list[SwitchView], list[EventView]]:
        """Read the registry, in its thread."""
        registry = self._registry
        jobs: list[ServiceJob] = [*list(registry.ended)[-ENDED_SHOWN:], *registry.jobs.values()]
        counted = await registry.switches.counted(jobs)
        switches = [await switch_view(registry, link) for link in list(registry.switches.links.values())]
        events = list(map(event_view, registry.events.last(EVENTS_SHOWN)))
        return list(map(job_view, jobs, counted)), switches, events

    def _document(
        self, jobs: list[JobView], switches: list[SwitchView], events: list[EventView]
    ) -> dict[str, Any]:
        now = time.monotonic()
        while self._earlier and now - self._earlier[0][0] > 2 * RATES_S:
            self._earlier.popleft()  # There was no viewer in between.
        then, before = self._earlier[0] if self._earlier else (now, {})
        for view in jobs:
            if (then_view := before.get((view.name, view.created))) is not None:
                add_rates(view, then_view, now - then)
        self._earlier.append((now, {(view.name, view.created): view for view in jobs}))
        if now - then >= RATES_S:
            self._earlier.popleft()
        hosts = self._registry.network.hosts.values()
        return {
            "at": time.time(),
            "hosts": [{"name": host.name, "ip": host.ip, "switch": host.switch} for host in hosts],
            "switches": list(map(as_dict, switches)),
            "jobs": list(map(_job, jobs)),
            "events": list(map(as_dict, events)),
        }


def _job(view: JobView) -> dict[str, Any]:
    """Return a job as `netsum job show --json` has it, but of its workers only what the window shows: there may be thousands."""
    rest = JobView()
    rest.CopyFrom(view)
    del rest.workers[:]
    return as_dict(rest) | {"workers": list(map(_worker, view.workers))}


def _worker(view: WorkerView) -> dict[str, Any]:
    report = view.report
    row = {
        "rank": view.rank,
        "state": WorkerState.Name(view.state).lower(),
        "host": view.host,
        "seen_s": round(view.seen_s, 1),
        "chunks": report.chunks,
        "chunks_per_s": round(view.chunks_per_s),
        "retransmissions": report.retransmissions,
        "retransmissions_per_s": round(view.retransmissions_per_s, 1),
        "in_flight": report.in_flight,
        "srtt_ns": report.srtt_ns,
    }
    if report.HasField("stuck"):
        row["stuck"] = as_dict(report.stuck)
    return row


def _encoded(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
