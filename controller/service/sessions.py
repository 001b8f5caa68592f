"""The sessions with the switches: each begins with a reconciliation, which the jobs' next steps follow."""

import asyncio
import logging
import secrets
import time
import zlib

from controller.errors import JobRefusedError
from controller.service.aggregators import AggregatorHost
from controller.service.link import SwitchLink
from controller.service.network import SwitchSite
from controller.service.scheduler import Scheduler
from host_agent.job_api import jobs_pb2

log = logging.getLogger(__name__)


class Sessions:
    """Keeps the links to a controller's switches, and to those that agents have started on hosts.

    Parameters
    ----------
    scheduler
        Takes the jobs on from where a reconciliation leaves them.
    """

    def __init__(self, scheduler: Scheduler, election_id: int) -> None:
        self._scheduler = scheduler
        self._registry = scheduler.registry
        self._election_id = election_id
        self._program = zlib.crc32(self._registry.files.device_config())
        """A number for the switches' program; a switch with another one gets it."""
        self._host_links: dict[str, asyncio.Task[None]] = {}
        self._links = self._registry.switches.links
        for site in self._registry.network.switches.values():
            self._add_link(site)

    async def run(self) -> None:
        """Keep the links to all switches until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for link in self._links.values():
                    group.create_task(link.run())
        finally:
            for host_link in self._host_links.values():
                host_link.cancel()

    def register(self, offer: jobs_pb2.Offer) -> AggregatorHost:
        """Take in a host whose agent can start a switch; raises as `Aggregators.register`."""
        return self._registry.aggregators.register(offer)

    def started(self, host: AggregatorHost, message: jobs_pb2.Started) -> None:
        """Connect to the switch that an agent has started on its host, unless it failed; raises as `Aggregators.started`."""
        site = self._registry.aggregators.started(host, message)
        if site is not None:
            self._registry.trees.add_aggregator(site, host.udp_port, self._registry.new_ledger(site.name))
            link = self._add_link(site)
            self._host_links[site.name] = asyncio.get_running_loop().create_task(link.run())

    def lost(self, host: AggregatorHost) -> None:
        """Restart a host's jobs elsewhere: its agent is gone, and its switch with it."""
        self._registry.aggregators.lost(host)
        if host.name in self._host_links:
            self._host_links.pop(host.name).cancel()
            reason = f"aggregator {host.name} is gone"
            for job in self._registry.jobs.values():
                if job.record.aggregator != host.name:
                    continue
                job.reason = reason
                self._scheduler.release(job)
                if job.record.running:
                    self._scheduler.begin(self._scheduler.restart(job, reason))
                elif job.queue_place:
                    self._scheduler.serve_soon(job.record.queue)
            self._registry.trees.remove_aggregator(host.name)
            del self._links[host.name]
        self._scheduler.serve_all_soon()

    def _add_link(self, site: SwitchSite) -> SwitchLink:
        link = SwitchLink(
            site, self._registry.files, self._election_id, self._bring_up, self._registry.events
        )
        self._links[site.name] = link
        return link

    async def _bring_up(self, link: SwitchLink) -> None:
        """Reconcile a switch at the beginning of a session with it."""
        name, site = link.site.name, link.site
        mark = self._registry.store.switch(name)[1]
        cookie = await link.cookie()
        running = [job for job in self._registry.jobs.values() if name in job.parts and job.record.running]
        if cookie == 0 or cookie != mark or mark >> 31 != self._program:
            new_mark = self._program << 31 | secrets.randbits(31)
            await link.set_pipeline(new_mark)
            self._registry.store.mark_switch(name, new_mark)
            if mark:
                link.restarts += 1
                lost = "restarted without its state: %d jobs begin a new epoch"
                log.warning(lost, len(running), extra={"switch": name})
            for job in running:
                job.reason = f"switch {name} was restarted"
                job.record.restarts += 1
                try:
                    self._scheduler.renew(job)
                except JobRefusedError as refusal:
                    self._scheduler.refuse(job, refusal)
        held = [(job, job.parts[name]) for job in running if job.record.running]
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
                continue  # It ended, or another of its switches was restarted, in the meantime.
            job.installed[name] = part.epoch
            if job.installed.keys() >= job.parts.keys():
                self._scheduler.admit(job)
            else:
                self._scheduler.begin(self._scheduler.install_rest(job))
        self._scheduler.room_on(name)
