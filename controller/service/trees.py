"""The switches that add for a service's jobs, and the jobs' slots on them. No I/O.

Failures raise `JobRefusedError` with the reason.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from controller.errors import JobRefusedError
from controller.jobs import Job, Reservation, WorkerEndpoint
from controller.ledger import JobLedger, Ledgers
from controller.service.network import ControlledNetwork, HostSite, SwitchSite
from controller.service.records import JobRecord, WorkerRecord
from controller.service.sizing import slots_for
from controller.trees import Place, Tree, TreeSwitch, place_tree
from host_agent.wire.constants import MAX_CHILDREN, MAX_WORLD_SIZE, POOL_SLOTS
from netsum_common.targets import Capabilities
from topologies.addresses import mac_of

HOST_PORT: Final = 0  # The only port of an aggregator on a host.
JOBS_OF_A_HOST: Final = 8  # A job gets at most 1/8 of a host's slots, so a host has room for 8 jobs.


class JobTrees:
    """The trees of the jobs of a controller. A job on one switch is a tree of that switch.

    `capabilities`: the capabilities of the switches' program.
    """

    def __init__(self, network: ControlledNetwork, ledgers: Ledgers, capabilities: Capabilities) -> None:
        self.lanes = capabilities.lanes
        self._network = network
        self.ledgers = ledgers
        self._aggregators: dict[str, TreeSwitch] = {}
        self._leaves: dict[str, TreeSwitch] = {}
        # The networks of the workers that leaves add for, by the leaves' names.
        self._workers_of: dict[str, IPv4Network] = {}
        self._known = capabilities.trees
        self._possible = capabilities.trees and len(network.switches) > 1
        self._switches = {
            name: TreeSwitch(name, site.ip, site.mac, site.neighbours)
            for name, site in network.switches.items()
        }

    @property
    def capacity(self) -> int:
        """The number of slots of the smallest switch."""
        return min((ledger.capacity for ledger in self.ledgers.values()), default=POOL_SLOTS)

    def add_aggregator(
        self,
        site: SwitchSite,
        udp_port: int,
        ledger: JobLedger,
        *,
        leaf: bool = False,
        workers: str = "",
        at_interface: bool = False,
    ) -> None:
        """Let a host's switch add for jobs; it has one port, and workers send to its address and UDP port.

        `leaf`: whether the host's switch adds below the host's own switch, or below another aggregator. It then adds for
        workers with addresses in the network `workers` or, if that is empty, for ranks on its own host. `at_interface`:
        whether it runs in the host's kernel.
        """
        self.ledgers[site.name] = ledger
        if workers:
            self._workers_of[site.name] = IPv4Network(workers)
        known = self._leaves if leaf else self._aggregators
        known[site.name] = TreeSwitch(
            site.name, site.ip, site.mac, {}, udp_port, on_host=True, at_interface=at_interface
        )

    def remove_aggregator(self, name: str) -> None:
        """Remove an aggregator host."""
        self._aggregators.pop(name, None)
        self._leaves.pop(name, None)
        self._workers_of.pop(name, None)
        del self.ledgers[name]

    def leaves_of(self, record: JobRecord, among: Collection[str] | None = None) -> set[str]:
        """Return the names of the leaves on hosts that a job is to use: those that would add for several, but not all, ranks.

        `among`: the switches that the job may use; None: any. There are no leaves if a rank is missing, the job has a quorum,
        or the program does not support trees.
        """
        if not self._known or record.request.quorum or len(record.workers) < record.world_size:
            return set()
        ranks = Counter(self._leaf_of(record, worker, among) for worker in record.workers.values())
        return {leaf for leaf, count in ranks.items() if leaf and 1 < count < record.world_size}

    def _leaf_of(self, record: JobRecord, worker: WorkerRecord, among: Collection[str] | None) -> str:
        """Return the leaf for a worker: the aggregator for its address, else its machine's leaf; empty: none."""
        named = [
            name
            for name, workers in sorted(self._workers_of.items())
            if IPv4Address(worker.ip) in workers and self._fits(self._leaves[name], record)
        ]
        return next((name for name in (*named, worker.leaf) if among is None or name in among), "")

    def _fits(self, leaf: TreeSwitch, record: JobRecord) -> bool:
        """Whether an aggregator can be a leaf of a job.

        Below another aggregator, both must run in the kernel or both as processes, as the two kinds do not know each other's MAC
        addresses. Below a switch, the leaf must be on a host of the network.
        """
        root = self._aggregators.get(record.aggregator)
        if root is not None:
            return leaf.at_interface == root.at_interface
        return record.request.on_host or not self._switches or self._network.host_of([leaf.ip]) is not None

    def leaves_held(self, record: JobRecord) -> set[str]:
        """Return the names of the leaves on hosts on which a job holds slots."""
        return record.slots_on.keys() - self._network.switches.keys() - {record.aggregator}

    def reserve_on_host(self, record: JobRecord, ready: Collection[str]) -> dict[str, Reservation]:
        """Reserve slots on the aggregator host with the longest free range; a job gets at most an eighth of a host's slots.

        Raises JobRefusedError if no host that answers has room.
        """
        rooms = {name: self.ledgers[name].largest_free for name in sorted(self._aggregators) if name in ready}
        if not any(rooms.values()):
            raise JobRefusedError("no aggregator host has free slots")
        name = max(rooms, key=lambda each: rooms[each])
        ledger = self.ledgers[name]
        asked = slots_for(record.slots, self.lanes, ledger.capacity)
        count = min(asked, max(ledger.capacity // JOBS_OF_A_HOST, 1), rooms[name])
        home, record.aggregator = record.switch, name
        try:
            held = self.ledgers.reserve(record.request, self._names(record, ready), count)
        except JobRefusedError:
            record.aggregator = ""
            raise
        record.home = home
        return held

    def spreads(self, asked: str) -> bool:
        """Whether a job is placed on a tree of switches, `asked` being the switch that its request names, or empty."""
        return self._possible and not asked

    def most_workers(self, spread: bool) -> int:
        """Return how many workers a job can have."""
        adding = len({host.switch for host in self._network.hosts.values()}) if spread else 1
        return min(MAX_WORLD_SIZE, MAX_CHILDREN * (adding + len(self._workers_of)))

    def place(self, record: JobRecord, usable: Collection[str] | None = None) -> Tree:
        """Return the tree of a job whose workers have all joined: on its present switches or, without slots, the best tree now.

        `usable`: the switches that a job without slots may use; None: any.
        """
        host, hosts = record.aggregator, self._network.hosts
        if host and host not in self._aggregators:
            raise JobRefusedError(f"aggregator {host} is gone")
        known = {host: self._aggregators[host]} if host else self._switches
        anywhere = known.keys() | self._leaves.keys()
        allowed = record.slots_on.keys() or (anywhere if usable is None else usable)
        switches = {name: switch for name, switch in known.items() if name in allowed}
        leaves = self.leaves_of(record, allowed) & self._leaves.keys()
        places, below = [], {}
        for rank in sorted(record.workers):
            worker = record.workers[rank]
            if not host and worker.host not in hosts:
                raise JobRefusedError(f"host {worker.host} of worker {rank} is no longer in the network")
            leaf = self._leaves.get(self._leaf_of(record, worker, leaves))
            site = None if host else (leaf and self._network.host_of([leaf.ip])) or hosts[worker.host]
            above = host or (site.switch if site and record.spread else record.switch)
            if leaf and above in switches:
                below[leaf.name] = (above, *self._port_and_mac(leaf, known[above], site, worker))
                places.append(_on_port(leaf, worker))
            else:
                places.append(_on_port(known[above], worker) if host else Place(above, worker.endpoint))
        return place_tree(
            self._with_leaves(switches, below), places, self.ledgers.load, host or record.switch
        )

    def _with_leaves(
        self, switches: Mapping[str, TreeSwitch], below: Mapping[str, tuple[str, int, str]]
    ) -> dict[str, TreeSwitch]:
        """Return the switches with the leaves linked below them; to the switch above, a leaf is a host, like a worker.

        `below`: for each leaf, the switch above it, that switch's port to the leaf, and the leaf's MAC address.
        """
        ports = {name: dict(switch.links) for name, switch in switches.items()}
        for leaf, (above, port, _) in below.items():
            ports[above][leaf] = port
        found = {name: replace(switch, links=ports[name]) for name, switch in switches.items()}
        for leaf, (above, _, mac) in below.items():
            found[leaf] = replace(self._leaves[leaf], mac=mac, links={above: HOST_PORT})
        return found

    def _port_and_mac(
        self, leaf: TreeSwitch, above: TreeSwitch, site: HostSite | None, worker: WorkerRecord
    ) -> tuple[int, str]:
        """Return the port of the switch above that leads to a leaf, and the leaf's MAC address; `site`: the leaf's host."""
        if site is not None:
            port = self._network.port_to(above.name, site)
            if port is None:
                raise JobRefusedError(
                    f"{leaf.name} on host {site.name} cannot be reached from switch {above.name}"
                )
            return port, site.mac
        if leaf.at_interface or leaf.name in self._workers_of:
            return HOST_PORT, leaf.mac
        return HOST_PORT, _mac_of(above, worker)

    def reserve(
        self, record: JobRecord, ready: Collection[str], slots: int | None = None
    ) -> dict[str, Reservation]:
        """Reserve one job id, and slots on each of a job's switches: on all of them or on none.

        `ready`: switches that answer; a job gets a tree with others only if there is no other tree. `slots`: the most slots on
        each switch; None: as requested. Returns the reservations by switch, the root first.
        """
        names = self._names(record, ready)
        ledgers = [self.ledgers[name] for name in names]
        count = slots_for(record.slots, self.lanes, min(ledger.capacity for ledger in ledgers))
        if slots is not None:
            count = min(count, slots)
        elif record.request.if_full == "take less" and (
            free := min(ledger.largest_free for ledger in ledgers)
        ):
            # A share is taken of the free slots here, so that later jobs find slots too.
            count = min(count, slots_for(record.slots, self.lanes, free), free)
        return self.ledgers.reserve(record.request, names, count)

    def free_slots(self, record: JobRecord, ready: Collection[str]) -> int:
        """Return the length of the longest range of slots that a job without slots could get on each of its switches."""
        names = self._names(record, ready)
        return min(self.ledgers[name].largest_free for name in names)

    def resize(self, record: JobRecord, slots: int) -> None:
        """Change a job's slots on each of its switches to `slots`, or to the most that all the switches can give it."""
        ranges = self.ledgers.resize(record.name, record.slots_on, max(slots, record.request.least_slots))
        record.hold({name: Reservation(record.name, record.job_id, held) for name, held in ranges.items()})

    def restore(self, record: JobRecord) -> tuple[Tree, dict[str, Job]] | None:
        """Restore the slots of an earlier controller's job and, if the job runs, its epoch.

        Raises JobRefusedError if the job cannot be restored.
        """
        held = record.slots_on
        for name in held:
            if name not in self.ledgers:
                raise JobRefusedError(f"switch {name} is no longer in the network")
        if not held or not record.running:
            self.ledgers.restore(
                {name: Reservation(record.name, record.job_id, slots) for name, slots in held.items()}
            )
            return None
        tree = self.place(record)
        if {branch.switch for branch in tree.branches} != held.keys():
            raise JobRefusedError(f"the network has no tree of switches {', '.join(held)} any more")
        parts = {
            branch.switch: Job(
                record.request,
                record.job_id,
                record.epoch,
                record.token,
                held[branch.switch],
                self.ledgers[branch.switch].capabilities,
                tuple(replace(child, worker_id=number) for number, child in enumerate(branch.children)),
                branch.parent,
            )
            for branch in tree.branches
        }
        self.ledgers.restore(parts)
        return tree, parts

    def _names(self, record: JobRecord, ready: Collection[str]) -> list[str]:
        """Return the switches that would add for a job, the root first."""
        for rank, worker in record.workers.items():
            if not record.aggregator and worker.host not in self._network.hosts:
                raise JobRefusedError(f"worker {rank} at {worker.ip} is on no host of the network")
        if not ((record.spread and not record.aggregator) or self.leaves_of(record)):
            return [record.aggregator or record.switch]
        try:
            tree = self.place(record, ready)
        except JobRefusedError:
            tree = self.place(record)
        return [branch.switch for branch in tree.branches]


def _on_port(switch: TreeSwitch, worker: WorkerRecord) -> Place:
    """Return the place of a worker at a switch on a host, which has one port."""
    sends_to, mac = (switch.ip, switch.udp_port), _mac_of(switch, worker)
    return Place(switch.name, WorkerEndpoint(HOST_PORT, worker.ip, mac, worker.udp_port, switch=sends_to))


def _mac_of(switch: TreeSwitch, worker: WorkerRecord) -> str:
    """Return a worker's MAC address for a switch on a host; one made from the IP if the switch, as a process, sends no frames."""
    if not switch.at_interface:
        return mac_of(worker.ip)
    if not worker.mac:
        raise JobRefusedError(
            f"aggregator {switch.name} is in its host's kernel and sends frames, but the MAC address of worker "
            f"{worker.rank} at {worker.ip} is not known"
        )
    return worker.mac
