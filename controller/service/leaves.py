"""Leaves on hosts, and the jobs that wait for them.

A leaf is a switch that the ranks of a job on one machine share; it adds below the machine's switch. A rank starts a leaf when the
controller asks for it, and the leaf's agent then registers like that of any aggregator. The job waits for the leaf for a limited
time, then proceeds without it.
"""

import asyncio
import logging
from collections.abc import Callable

from controller.service.installation import Installation
from controller.service.jobs import ServiceJob
from controller.service.trees import JobTrees
from host_agent.job_api import jobs_pb2
from host_agent.job_api.jobs_pb2 import ToWorker

log = logging.getLogger(__name__)

RETRY_S = 60.0  # Time after a failed wait in which no job waits for the same leaf again, in seconds.


class Leaves:
    """The leaves that jobs wait for.

    `wait_s`: how long a job waits for a leaf, in seconds. `on_changed`: called when a waiting job may proceed.
    """

    def __init__(
        self, trees: JobTrees, switches: Installation, wait_s: float, on_changed: Callable[[], None]
    ) -> None:
        self._trees = trees
        self._switches = switches
        self._wait_s = wait_s
        self._on_changed = on_changed
        self._until: dict[str, float] = {}  # The end of the wait for each leaf, on the loop's clock.

    def wait_for(self, job: ServiceJob) -> bool:
        """Have ranks start the leaves that a job lacks; return whether the job waits, and set its reason."""
        loop, record = asyncio.get_running_loop(), job.record
        coming = set()
        for name in self._trees.leaves_of(record) - self._switches.ready:
            until = self._until.get(name)
            if until is None or loop.time() > until + RETRY_S:
                until = self._until[name] = loop.time() + self._wait_s
                loop.call_later(self._wait_s, self._too_late, name, until)
            if loop.time() < until:
                coming.add(name)
        for member in job.present():
            if member.worker.leaf in coming:
                member.send(ToWorker(leaf=jobs_pb2.Leaf(name=member.worker.leaf, ip=member.worker.ip)))
        if coming:
            job.reason = f"the switch {', '.join(sorted(coming))} for ranks that share a host starts"
        return bool(coming)

    def fail(self, name: str, reason: str) -> None:
        """Let jobs proceed without a leaf that cannot be started."""
        if (
            name not in self._switches.ready
            and self._until.get(name, 0.0) > asyncio.get_running_loop().time()
        ):
            log.warning("jobs go on without this leaf: %s", reason, extra={"switch": name})
            self._until[name] = asyncio.get_running_loop().time()
            self._on_changed()

    def lost(self, name: str) -> None:
        """Let jobs wait again for a leaf that is gone."""
        self._until.pop(name, None)

    def _too_late(self, name: str, until: float) -> None:
        if self._until.get(name) == until and name not in self._switches.ready:
            log.warning("it was not ready within %g s", self._wait_s, extra={"switch": name})
            self._on_changed()
