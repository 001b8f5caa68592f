"""The sessions with the switches; each begins with a reconciliation, after which jobs take their next steps."""

import asyncio
import logging
import secrets
import time
import zlib
from collections.abc import Callable
from typing import Any

from controller.errors import ControllerError, JobRefusedError
from controller.p4runtime_writer import P4RuntimeWriter
from controller.service.aggregators import AggregatorHost, HostState
from controller.service.jobs import Kind, RefusalError, ServiceJob
from controller.service.link import SwitchLink, opened
from controller.service.network import SwitchSite
from controller.service.scheduler import Scheduler
from controller.service.states import JobState
from host_agent.job_api import jobs_pb2

log = logging.getLogger(__name__)

# The columns of an aggregator host in the store.
_OF_A_HOST = (
    "name",
    "ip",
    "leaf",
    "workers",
    "p4runtime",
    "device_id",
    "udp_port",
    "tls",
    "mac",
)


class Sessions:
    """Keeps the links to a controller's switches, and to the switches that agents have started on hosts.

    `scheduler`: takes the jobs' next steps after a reconciliation. `open_writer`: see `SwitchLink`.
    """

    def __init__(
        self, scheduler: Scheduler, election_id: int, open_writer: Callable[..., P4RuntimeWriter] = opened
    ) -> None:
        self._scheduler = scheduler
        self._registry = scheduler.registry
        self._election_id = election_id
        self._open_writer = open_writer
        self._program = zlib.crc32(self._registry.files.device_config())
        """A checksum of the switches' program; a switch with another checksum in its mark gets the program."""
        self._host_links: dict[str, asyncio.Task[None]] = {}
        self._links = self._registry.switches.links
        for site in self._registry.network.switches.values():
            self._add_link(site)
        for row in self._registry.store.hosts():
            self._restore(row)

    async def run(self) -> None:
        """Keep the links to all switches until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.Event().wait())  # The network may have no switches.
                for name in self._registry.network.switches:
                    group.create_task(self._links[name].run())
        finally:
            for host_link in self._host_links.values():
                host_link.cancel()

    def register(self, offer: jobs_pb2.Offer) -> AggregatorHost:
        """Register a host whose agent can start a switch, or has started one; raises as `Aggregators.register`."""
        aggregators = self._registry.aggregators
        if offer.workers and not (offer.leaf and offer.HasField("running")):
            raise RefusalError(
                Kind.WRONG, f"aggregator {offer.name}: expected a running leaf, as it names workers"
            )
        if (
            offer.leaf
            and not offer.workers
            and offer.name
            not in {
                worker.leaf
                for job in self._registry.jobs.values()
                for worker in job.record.workers.values()
                if worker.ip == offer.ip
            }
        ):
            raise RefusalError(Kind.WRONG, f"no job has ranks at {offer.ip} that could share {offer.name}")
        host = aggregators.register(offer)
        if offer.HasField("running") and host.name not in self._links:
            try:
                site = aggregators.runs(host, offer.running)
                if site is None:
                    raise RefusalError(Kind.WRONG, host.failure)
                self._connect(host, site)
            except ControllerError as refusal:
                aggregators.lost(host)
                self._scheduler.leaves.fail(offer.name, str(refusal))
                raise
        return host

    def started(self, host: AggregatorHost, message: jobs_pb2.Started) -> None:
        """Connect to the switch that an agent has started on a host, unless it failed; raises as `Aggregators.started`."""
        site = self._registry.aggregators.started(host, message)
        if site is not None:
            self._connect(host, site)

    def _connect(self, host: AggregatorHost, site: SwitchSite) -> None:
        """Connect to a switch that runs on a host, and save the host."""
        ledger = self._registry.new_ledger(site.name)
        self._registry.store.save_host({name: getattr(host, name) for name in _OF_A_HOST})
        self._registry.trees.add_aggregator(
            site,
            host.udp_port,
            ledger,
            leaf=host.leaf,
            workers=host.workers,
            at_interface=bool(host.mac),
        )
        link = self._add_link(site)
        self._host_links[site.name] = asyncio.get_running_loop().create_task(link.run())

    def _restore(self, row: dict[str, Any]) -> None:
        """Connect to an earlier controller's switch on a host; the host's agent has the recovery period to come back."""
        host = AggregatorHost(**row, state=HostState.RUNNING, attached=False)
        aggregators = self._registry.aggregators
        aggregators.hosts[host.name] = host
        self._connect(host, aggregators.site(host))
        host.timer.start(self._registry.options.recovery_s, self.lost, host)

    def lost(self, host: AggregatorHost) -> None:
        """Restart a host's jobs elsewhere, as the host's agent and switch are gone."""
        if not self._scheduler.closing:  # Otherwise the agent comes back to the next controller.
            self._scheduler.changes.certainly(self._lost, host)

    def _lost(self, host: AggregatorHost) -> None:
        changes, name = self._scheduler.changes, host.name
        if self._registry.aggregators.hosts.get(name) is not host:
            return
        jobs = [
            job
            for job in self._registry.jobs.values()
            if job.record.aggregator == name or name in job.record.below
        ]
        with changes.of(*jobs):
            if name in self._host_links:
                changes.write(self._registry.store.delete_host, name)
            changes.after(self._evict, host)
            for job in jobs:
                job.reason = f"aggregator {name} is gone"
                # The other switches hold the job until the scheduler places it anew.
                job.record.below.pop(name, None)
                if job.record.running:
                    self._scheduler.restart(job, job.reason)
                elif job.record.aggregator and job.state is not JobState.CLEARING:
                    self._scheduler.release(job)

    def _evict(self, host: AggregatorHost) -> None:
        """Evict a host on which no job holds slots any more."""
        self._registry.aggregators.lost(host)
        self._scheduler.leaves.lost(host.name)
        if host.name in self._host_links:
            self._host_links.pop(host.name).cancel()
            self._registry.trees.remove_aggregator(host.name)
            del self._links[host.name]
        self._scheduler.serve_all_soon()

    def _add_link(self, site: SwitchSite) -> SwitchLink:
        registry = self._registry
        link = SwitchLink(
            site, registry.files, self._election_id, self._bring_up, registry.events, self._open_writer
        )
        self._links[site.name] = link
        return link

    async def _bring_up(self, link: SwitchLink) -> None:
        """Reconcile a switch at the beginning of a session with it."""
        name, site, changes = link.site.name, link.site, self._scheduler.changes
        mark = self._registry.store.switch(name)[1]
        cookie = await link.cookie()
        if cookie == 0 or cookie != mark or mark >> 31 != self._program:
            new_mark = self._program << 31 | secrets.randbits(31)
            await link.set_pipeline(new_mark)
            running = self._running_on(name)
            # One transaction saves the mark and the epochs, so that no switch with the new mark has a job of an earlier epoch.
            with changes.of(*running):
                changes.write(self._registry.store.mark_switch, name, new_mark)
                for job in running:
                    job.reason = f"switch {name} was restarted"
                    job.record.restarts += 1
                    try:
                        self._scheduler.renew(job)
                    except JobRefusedError as refusal:
                        self._scheduler.refuse(job, refusal)
            if mark:
                link.restarts += 1
                lost = "restarted without its state: %d jobs begin a new epoch"
                log.warning(lost, len(running), extra={"switch": name})
        held = [(job, job.parts[name]) for job in self._running_on(name)]
        flood = {*site.stations.values(), *site.ports} - site.spare_ports
        found = await link.do(
            lambda tables: tables.reconcile(
                [part for _, part in held], (site.ip, site.mac), site.stations, flood
            )
        )
        link.reconciled = time.time(), found
        for finding in found.findings:
            log.info("%s", finding, extra={"switch": name})
        for job, part in held:
            if not job.record.running or job.record.epoch != part.epoch:
                continue  # The job ended, or another of its switches was restarted, in the meantime.
            job.installed[name] = part.epoch
            if job.installed.keys() >= job.parts.keys():
                self._scheduler.admit(job)
            else:
                self._scheduler.begin(self._scheduler.install_rest(job))
        self._scheduler.room_on(name)

    def _running_on(self, switch: str) -> list[ServiceJob]:
        """Return the running jobs whose entries a switch is to hold."""
        return [job for job in self._registry.jobs.values() if switch in job.parts and job.record.running]
