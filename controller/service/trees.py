"""On which switches a service's jobs are added, and what each switch holds of them. No I/O."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from controller.errors import JobRefusedError
from controller.jobs import Job, JobLedger, Reservation, WorkerEndpoint
from controller.service.network import Network
from controller.service.records import JobRecord
from controller.service.sizing import slots_for
from controller.trees import Branch, Place, Tree, TreeSwitch, place_tree
from host_agent.wire.constants import MAX_CHILDREN, MAX_WORLD_SIZE, UDP_PORT


class JobTrees:
    """The trees of the jobs of a controller. A job on one switch is a tree of that switch.

    Parameters
    ----------
    network
        The switches and hosts.
    ledgers
        What jobs hold on each switch.
    lanes
        int32 values a packet carries.
    possible
        Whether the switches' program knows trees.
    """

    def __init__(
        self, network: Network, ledgers: Mapping[str, JobLedger], lanes: int, possible: bool
    ) -> None:
        self._lanes = lanes
        self._network = network
        self._ledgers = ledgers
        self._possible = possible and len(network.switches) > 1
        self._switches = {
            name: TreeSwitch(
                name,
                site.ip,
                site.mac,
                {port.peer: number for number, port in site.ports.items() if port.peer in network.switches},
            )
            for name, site in network.switches.items()
        }

    def spreads(self, asked: str) -> bool:
        """Tell whether a job is added by each switch that has workers of it: its request names no switch."""
        return self._possible and not asked

    def most_workers(self, spread: bool) -> int:
        """Return how many workers a job can have."""
        if not spread:
            return MAX_CHILDREN
        leaves = {host.switch for host in self._network.hosts.values()}
        return min(MAX_WORLD_SIZE, MAX_CHILDREN * len(leaves))

    def place(self, record: JobRecord, usable: Collection[str] = ()) -> Tree:
        """Return a job's tree, whose workers are all known: the one that it has, or the best one now.

        Parameters
        ----------
        usable
            The switches it may have, if it has none yet; none: any.

        Raises
        ------
        JobRefusedError
            There is none; the message says why.
        """
        hosts = self._network.hosts
        places = []
        for rank in sorted(record.workers):
            worker = record.workers[rank]
            if worker.host not in hosts:
                raise JobRefusedError(f"host {worker.host} of worker {rank} is no longer in the network")
            places.append(
                Place(hosts[worker.host].switch if record.spread else record.switch, worker.endpoint)
            )
        allowed = record.slots_on.keys() or usable or self._switches.keys()
        switches = {name: switch for name, switch in self._switches.items() if name in allowed}
        return place_tree(switches, places, self._load, record.switch)

    def reserve(self, record: JobRecord, ready: Collection[str]) -> dict[str, Reservation]:
        """Reserve one job id, and slots on each of a job's switches: on all of them or on none.

        Parameters
        ----------
        ready
            Switches that answer; a job on a tree has others only where it must.

        Returns
        -------
        dict
            By switch, the root first.

        Raises
        ------
        JobRefusedError
            With the reason.
        """
        names = [record.switch]
        if record.spread:
            try:
                tree = self.place(record, ready)
            except JobRefusedError:
                tree = self.place(record)
            names = [branch.switch for branch in tree.branches]
        ledgers = [self._ledgers[name] for name in names]
        count = slots_for(record.slots, self._lanes, min(ledger.capacity for ledger in ledgers))
        if record.if_full == "take less":
            count = min(count, min(ledger.largest_free for ledger in ledgers) or count)
        common = set.intersection(*(set(ledger.free_job_ids) for ledger in ledgers))
        job_id = min(common) if common else None
        if job_id is None and len(names) > 1:
            raise JobRefusedError(f"no job id is free on all of {', '.join(names)}: end a job first")
        held: dict[str, Reservation] = {}
        try:
            for name, ledger in zip(names, ledgers, strict=True):
                held[name] = ledger.reserve(record.name, count, job_id)
        except JobRefusedError as refusal:
            for name in held:
                self._ledgers[name].release(record.name)
            where = f"switch {names[len(held)]}: " if len(names) > 1 else ""
            raise JobRefusedError(f"{where}{refusal}") from None
        return held

    def renew(self, record: JobRecord, tree: Tree, token: int, unix_seconds: int) -> dict[str, Job]:
        """Give a job its next epoch on all its switches, whose slots are reserved or held.

        Returns
        -------
        dict
            What each switch is to hold, the root first.

        Raises
        ------
        JobRefusedError
            A switch cannot admit its part.
        """
        last = max(self._ledgers[branch.switch].last_epoch for branch in tree.branches)
        epoch = max(last + 1, unix_seconds)
        parts = {}
        for branch in tree.branches:
            ledger = self._ledgers[branch.switch]
            children = self._children(branch)
            present = next((job for job in ledger.jobs if job.name == record.name), None)
            if present is not None:
                parts[branch.switch] = ledger.renew(
                    present, token=token, unix_seconds=epoch, workers=children, parent=branch.parent
                )
            else:
                parts[branch.switch] = ledger.admit(
                    record.name,
                    children,
                    record.slot_count,
                    switch=None,
                    token=token,
                    unix_seconds=epoch,
                    parent=branch.parent,
                )
        return parts

    def restore(self, record: JobRecord) -> tuple[Tree, dict[str, Job]] | None:
        """Take up what an earlier controller's job holds, and its epoch if it runs.

        Raises
        ------
        JobRefusedError
            It cannot be as it was; nothing is held.
        """
        held = record.slots_on
        for name in held:
            if name not in self._ledgers:
                raise JobRefusedError(f"switch {name} is no longer in the network")
        if not held or not record.running:
            for name, slots in held.items():
                self._ledgers[name].restore(Reservation(record.name, record.job_id, slots))
            return None
        tree = self.place(record)
        if {branch.switch for branch in tree.branches} != held.keys():
            raise JobRefusedError(f"the network has no tree of switches {', '.join(held)} any more")
        parts = {
            branch.switch: Job(
                record.name,
                record.job_id,
                record.epoch,
                record.token,
                held[branch.switch],
                record.lanes,
                tuple(
                    replace(child, worker_id=number) for number, child in enumerate(self._children(branch))
                ),
                branch.parent,
            )
            for branch in tree.branches
        }
        try:
            for name, part in parts.items():
                self._ledgers[name].restore(part)
        except JobRefusedError:
            self.discard(record)
            raise
        return tree, parts

    def discard(self, record: JobRecord) -> None:
        """Free what a job holds on all switches."""
        for name in record.slots_on:
            if name in self._ledgers:
                self._ledgers[name].discard(record.name)

    def _children(self, branch: Branch) -> list[WorkerEndpoint]:
        """Return the children of a switch, which send to its address unless they say otherwise."""
        address = self._switches[branch.switch].ip, UDP_PORT
        return [replace(child, switch=child.switch or address) for child in branch.children]

    def _load(self, switch: str) -> float:
        ledger = self._ledgers[switch]
        return 1 - ledger.free_slots / ledger.capacity
