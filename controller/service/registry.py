"""The state of one controller: its jobs, their slots on switches, and the parts that decide on slots.

Only `scheduler` takes a job to its next state. The registry is used only in the event loop's thread.

Failures raise `RefusalError` with the reason.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from controller.errors import JobRefusedError
from controller.ledger import JobLedger, Ledgers
from controller.program import CompiledFiles
from controller.service.aggregators import START_S, Aggregators
from controller.service.changes import Changes
from controller.service.events import EventLog
from controller.service.installation import Installation
from controller.service.jobs import Kind, RefusalError, ServiceJob
from controller.service.network import ControlledNetwork, HostSite
from controller.service.queues import JobQueues
from controller.service.records import JobRecord
from controller.service.requests import check_new_name, check_request, check_world
from controller.service.reservations import Reservations
from controller.service.shares import Shares
from controller.service.store import JobStore
from controller.service.trees import JobTrees
from controller.sharing import Policy
from host_agent.job_api.job_request import JobRequest
from host_agent.job_api.slot_request import Share, Slots
from netsum_common.channel import PLAINTEXT, TlsFiles

ENDED_JOBS_KEPT = 100
MAX_JOBS = 10_000
"""The maximum number of jobs that have not ended; nearly all of them wait, as a switch has slots for a few hundred."""


@dataclass(frozen=True)
class RegistryOptions:
    """Sizes and times of a controller service."""

    slots: Slots = 64  # Slots of a job whose request does not state a number.
    grace_s: float = 2.0  # How long a worker whose stream broke may take to reattach, in seconds.
    recovery_s: float = 30.0  # How long workers may take to reattach after a restart of the controller, in s.
    idle_s: float = 600.0  # How long a created job waits for its first worker, in seconds.
    report_s: float = 1.0  # Interval of the workers' reports, in seconds.
    share: Policy = "fixed"  # The rule by which jobs share slots.
    least_slots: int = 1  # The fewest slots that a job gets where jobs share them; a power of two.
    move_s: float = 5.0  # How long a move to other slots may wait for a worker, in seconds.
    start_s: float = START_S  # How long an aggregator on a host may take to start, in seconds.
    # How long a job waits for a leaf that its ranks on one host are to share, in seconds.
    leaf_s: float = 30.0
    unix_seconds: Callable[[], float] = time.time  # The clock from which epoch numbers are derived.


class JobRegistry:
    """The jobs of one controller."""

    def __init__(
        self,
        network: ControlledNetwork,
        store: JobStore,
        files: CompiledFiles,
        options: RegistryOptions,
        tls: TlsFiles = PLAINTEXT,
    ) -> None:
        self.network = network
        self.store = store
        self.files = files
        self.options = options
        self.jobs: dict[str, ServiceJob] = {}  # The jobs that have not ended, by name.
        self.ended: deque[ServiceJob] = deque(maxlen=ENDED_JOBS_KEPT)  # The jobs that ended last.
        self.queues = JobQueues()  # The jobs that wait.
        self.events = EventLog(store)  # The transitions of jobs, members and links.
        ledgers = Ledgers({name: self.new_ledger(name) for name in network.switches})
        # Carries out changes of jobs in memory, on disk, and then in messages.
        self.changes = Changes(store, self.events, ledgers, self.queues.put_back)
        self.switches = Installation()  # The links to the switches, and the jobs' entries on them.
        # The hosts that can add for jobs that no switch takes.
        self.aggregators = Aggregators(network, options.start_s, tls)
        # trees, shares, reservations: placement of jobs, their shares of the slots, and the slots available to them now.
        self.trees = JobTrees(network, ledgers, files.capabilities)
        self.shares = Shares(options.share, options.least_slots, self.trees, self.jobs)
        self.reservations = Reservations(
            self.jobs, self.queues, self.switches, self.trees, self.shares, self.aggregators
        )

    def new_ledger(self, switch: str) -> JobLedger:
        """Return an empty ledger for a switch; its epochs continue from the last one in the store."""
        return JobLedger(self.files.capabilities, self.store.switch(switch)[0])

    def find(self, name: str) -> ServiceJob:
        """Return a job that has not ended."""
        if name not in self.jobs:
            ended = next((job for job in reversed(self.ended) if job.name == name), None)
            raise RefusalError(
                Kind.UNKNOWN,
                f"job {name} has ended: {ended.reason}" if ended else f"there is no job named {name}",
            )
        return self.jobs[name]

    def new_job(
        self, request: JobRequest, host: HostSite | None = None, operated: bool = False
    ) -> ServiceJob:
        """Return a new job for a request; the job holds no slots, and is not among `jobs` yet.

        `request`: an operator's, or that of the job's first worker. Raises RefusalError if the request is invalid, no switch
        could ever grant it, or the controller has `MAX_JOBS` jobs.
        """
        check_new_name(request.name, "job")
        if len(self.jobs) >= MAX_JOBS:
            raise RefusalError(
                Kind.FULL,
                f"the controller has {MAX_JOBS} jobs that have not ended, and takes no more: delete some that wait",
            )
        check_request(request)
        on_host = request.on_host or not self.network.switches
        spread = self.trees.spreads(request.switch) and not request.quorum and not on_host
        check_world(request.world_size, self.trees.most_workers(spread))
        # A request without a number of slots, where the default is a share, may get fewer instead of being refused.
        takes_less = (
            request.slots is None and isinstance(self.options.slots, Share) and request.if_full == "refuse"
        )
        settled = replace(
            request,
            slots=self.options.slots if request.slots is None else request.slots,
            if_full="take less" if takes_less else request.if_full,
            weight=request.weight or 1.0,
            on_host=on_host,
            idle_s=(request.idle_s or self.options.idle_s) if operated else 0.0,
        )
        switch = self._switch_for(request.switch, host, spread)
        record = JobRecord(
            settled, switch, spread=spread, operated=operated, created=self.options.unix_seconds()
        )
        try:
            self.reservations.check(record)
        except JobRefusedError as refusal:
            raise RefusalError(Kind.FULL, str(refusal)) from None
        return self.job_of(record)

    def job_of(self, record: JobRecord) -> ServiceJob:
        """Return a job that has a record as its state."""
        return ServiceJob(record, self.queues.on, self.changes)

    def _switch_for(self, asked: str, host: HostSite | None, spread: bool) -> str:
        """Return the switch that adds for a job: the requested one, else the switch of its first worker, else the first.

        The result is empty for a job on a tree of switches, whose root is chosen when all its workers have joined.
        """
        if spread:
            return ""
        if asked and asked not in self.network.switches:
            raise RefusalError(
                Kind.WRONG,
                f"there is no switch {asked}: the switches are {', '.join(self.network.switches) or 'none'}",
            )
        return asked or (host.switch if host else "") or next(iter(self.network.switches), "")
