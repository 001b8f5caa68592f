"""Snapshots for the window: one JSON document per tick, shared by all viewers; without viewers, none is taken."""

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

from controller.service.client import as_dict
from controller.service.from_threads import result_in
from controller.service.jobs import ServiceJob
from controller.service.registry import JobRegistry
from controller.service.views import add_rates, event_view, job_view, switch_view
from host_agent.job_api.jobs_pb2 import EventView, JobView, SwitchView, WorkerState, WorkerView

log = logging.getLogger(__name__)

TICK_S: Final = 0.5
RATES_S: Final = 4.0  # Rates are means over this time: workers report once a second.
LARGEST_SHARE: Final = 0.2
"""Maximum share of time spent on taking snapshots; if they take longer, they are taken less often."""
EVENTS_SHOWN: Final = 200
ENDED_SHOWN: Final = 10


class Snapshots:
    """Takes snapshots, for viewers in this thread's event loop, of a registry in another thread's loop."""

    def __init__(self, registry: JobRegistry, loop: asyncio.AbstractEventLoop) -> None:
        self._registry = registry
        self._loop = loop
        self._viewers = 0
        self._wanted = asyncio.Event()
        self._changed = asyncio.Condition()
        self._number, self._latest = 0, b""
        self._earlier: deque[tuple[float, Mapping[tuple[str, float], JobView]]] = deque()

    async def watch(self) -> AsyncGenerator[bytes, None]:
        """Iterate over snapshots as they are taken; a viewer that was busy gets only the newest one."""
        self._viewers += 1
        self._wanted.set()
        seen = self._number
        try:
            while True:
                async with self._changed:
                    while self._number == seen:
                        await self._changed.wait()
                seen = self._number
                yield self._latest
        finally:
            self._viewers -= 1
            if not self._viewers:
                self._wanted.clear()

    async def events_of(self, job: str) -> bytes:
        """Return the transitions of a job in the event log as a JSON document."""

        async def read() -> list[EventView]:
            return list(map(event_view, self._registry.events.of_job(job)))

        return _encoded(list(map(as_dict, await result_in(self._loop, read()))))

    async def run(self) -> None:
        """Take snapshots while there are viewers, until cancelled."""
        while await self._wanted.wait():
            began = time.monotonic()
            try:
                latest = _encoded(self._document(*await result_in(self._loop, self._views())))
                async with self._changed:
                    self._number, self._latest = self._number + 1, latest
                    self._changed.notify_all()
            except TimeoutError as error:
                log.debug("no snapshot: %s", error)
            except Exception:
                log.exception("no snapshot for the window")
            took = time.monotonic() - began
            await asyncio.sleep(max(TICK_S - took, took / LARGEST_SHARE - took))

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
            self._earlier.popleft()  # The earlier views are too old, as there was no viewer in between.
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
    """Return a job as in `netsum job show --json`, but with fewer fields of each worker, as there may be thousands."""
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
    if report.corrupted:
        row["corrupted"] = report.corrupted
    return row


def _encoded(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
