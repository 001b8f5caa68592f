"""Where a job's tree of switches runs: which switches add for which children, and which is the root. No I/O.

A switch's children are workers on its own ports and switches below it. The tree is the shortest ways from a root to
all switches that have workers of the job, without switches above the lowest one that joins them all.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from controller.errors import JobRefusedError
from controller.jobs import Job, ParentLink, WorkerEndpoint
from host_agent.wire.admission import Admission
from host_agent.wire.constants import MAX_CHILDREN, MAX_WORLD_SIZE, TREE_MAX_LEVELS, UDP_PORT
from host_agent.wire.path import Level, Path


@dataclass(frozen=True)
class TreeSwitch:
    """A switch as trees see it."""

    name: str  # As messages have it.
    # ip, mac: its address on the data network.
    ip: str
    mac: str
    links: Mapping[str, int]  # Port to each neighbouring switch, by that switch's name.
    udp_port: int = UDP_PORT  # Where it takes packets.
    on_host: bool = False  # It runs on a host, and is no root unless the caller says so.
    at_interface: bool = (
        False  # It runs on a host, in the kernel: it sends frames to the MAC addresses of its children.
    )

    def endpoint(self, port: int) -> WorkerEndpoint:
        """Return the switch as a child of another one, which reaches it by `port`."""
        return WorkerEndpoint(port=port, ip=self.ip, mac=self.mac, udp_port=self.udp_port, is_switch=True)


@dataclass(frozen=True)
class Place:
    """A worker: the switch it is on, and where it is as that switch sees it."""

    switch: str
    endpoint: WorkerEndpoint


@dataclass(frozen=True)
class Branch:
    """What one switch does for a job."""

    switch: str  # Its name.
    # Its children, by worker id: first the workers on it by rank, then switches by name.
    children: tuple[WorkerEndpoint, ...]
    ranks: tuple[tuple[int, ...], ...]  # The ranks behind each child.
    parent: ParentLink | None  # The switch above; None at the root.


@dataclass(frozen=True)
class Tree:
    """A job's switches."""

    branches: tuple[Branch, ...]  # From the root to the leaves: a switch comes after its parent.
    above: Mapping[str, str]  # The parent of each switch but the root, by names.

    @property
    def root(self) -> str:
        """The switch that makes the results."""
        return self.branches[0].switch

    def path(self, rank: int) -> Path:
        """Return the switches between a worker and the root, as its admission has them."""
        by_name = {branch.switch: branch for branch in self.branches}
        # The lowest switch that has the rank: one above may have no other behind a child either.
        here: str | None = [branch.switch for branch in self.branches if (rank,) in branch.ranks][-1]
        levels = []
        while here is not None:
            ranks = by_name[here].ranks
            levels.append(Level(next(child for child, behind in enumerate(ranks) if rank in behind), ranks))
            here = self.above.get(here)
        return tuple(levels)

    def admissions(self, jobs: Mapping[str, Job]) -> list[Admission]:
        """Return what each worker needs to take part, by rank.

        `jobs`: what each switch holds of the job, by the switch's name.
        """
        found = {}
        for branch in self.branches:
            own = jobs[branch.switch].admissions
            for rank, child in self.workers_of(branch).items():
                found[rank] = replace(own[child], path=self.path(rank))
        return [found[rank] for rank in sorted(found)]

    def workers_of(self, branch: Branch) -> dict[int, int]:
        """Return the worker id of each worker that is a child of a switch itself, by rank."""
        below = {
            other.parent.worker_id
            for other in self.branches
            if other.parent is not None and self.above[other.switch] == branch.switch
        }
        return {behind[0]: child for child, behind in enumerate(branch.ranks) if child not in below}


def sending_to(ip: str, children: Sequence[WorkerEndpoint], udp_port: int = UDP_PORT) -> list[WorkerEndpoint]:
    """Return children, of whom those that have no other address to send to send to a switch."""
    return [replace(child, switch=child.switch or (ip, udp_port)) for child in children]


def one_switch(switch: str, children: Sequence[WorkerEndpoint]) -> Tree:
    """Return the tree of a job on one switch, whose children are its workers, by rank."""
    ranks = tuple((rank,) for rank in range(len(children)))
    return Tree((Branch(switch, tuple(children), ranks, None),), {})


def place_tree(
    switches: Mapping[str, TreeSwitch],
    workers: Sequence[Place],
    load: Callable[[str], float] = lambda switch: 0.0,
    root: str = "",
) -> Tree:
    """Choose the switches that add for a job.

    Of the roots that make the lowest tree with the fewest switches, the one whose switches are least loaded is taken, so
    jobs spread over the spines of a network.

    `load`: returns how loaded a switch is; a lower value is better. `root`: the root, if it is chosen already. Raises
    JobRefusedError if there is no such tree; the message says why.
    """
    if not 1 <= len(workers) <= MAX_WORLD_SIZE:
        raise JobRefusedError(f"a job has 1 to {MAX_WORLD_SIZE} workers, not {len(workers)}")
    leaves = {worker.switch for worker in workers}
    for name in sorted(leaves - switches.keys()):
        raise JobRefusedError(f"there is no switch {name!r}: expected one of {', '.join(sorted(switches))}")
    candidates: list[tuple[int, int, float, str, dict[str, str]]] = []
    for name, distance in {root: 0}.items() if root else _distances(switches, min(leaves)).items():
        # A root makes a tree of at least one level more than it is away from a leaf, and the nearest come first.
        if candidates and distance >= min(candidates)[0]:
            break
        if switches[name].on_host and not root:
            continue
        above = _joined(_ways(switches, name), name, leaves)
        if above is not None:
            used = {name, *above, *above.values()} if above else {name}
            candidates.append((_height(above), len(used), sum(map(load, used)), name, above))
    if not candidates:
        raise JobRefusedError(f"no switch has a way to all of {', '.join(sorted(leaves))}: check the links")
    height, _, _, chosen, above = min(candidates, key=lambda candidate: candidate[:4])
    if height > TREE_MAX_LEVELS:
        raise JobRefusedError(
            f"the job's tree would have {height} levels of switches, at most {TREE_MAX_LEVELS} are possible: "
            "take workers that are closer together"
        )
    return _built(switches, workers, chosen, above)


def _distances(switches: Mapping[str, TreeSwitch], start: str) -> dict[str, int]:
    """Return how many links away each switch is that has a way to `start`, the nearest first."""
    found = {start: 0}
    for name, above in _ways(switches, start).items():
        if above:
            found[name] = found[above] + 1
    return found


def _ways(switches: Mapping[str, TreeSwitch], root: str) -> dict[str, str]:
    """Return the next switch towards the root for each that has a way to it, by the fewest links."""
    towards = {root: ""}
    frontier = [root]
    while frontier:
        here = frontier.pop(0)
        for peer in sorted(switches[here].links):
            if peer in switches and here in switches[peer].links and peer not in towards:
                towards[peer] = here
                frontier.append(peer)
    return towards


def _joined(towards: Mapping[str, str], root: str, leaves: set[str]) -> dict[str, str] | None:
    """Return the parent of each switch below the root; None if the root reaches not all, or joins nothing."""
    if not leaves <= towards.keys():
        return None
    above: dict[str, str] = {}
    for leaf in leaves:
        here = leaf
        while here != root and here not in above:
            above[here] = towards[here]
            here = towards[here]
    if root not in leaves and sum(parent == root for parent in above.values()) < 2:
        return None
    return above


def _height(above: Mapping[str, str]) -> int:
    """Return how many levels of switches there are."""

    def depth(switch: str) -> int:
        return 1 + (depth(above[switch]) if switch in above else 0)

    return max(map(depth, above), default=1)


def _built(
    switches: Mapping[str, TreeSwitch], workers: Sequence[Place], root: str, above: Mapping[str, str]
) -> Tree:
    below: dict[str, list[str]] = {name: [] for name in (root, *above)}
    for name in sorted(above):
        below[above[name]].append(name)

    def ranks_under(name: str) -> tuple[int, ...]:
        own = [rank for rank, worker in enumerate(workers) if worker.switch == name]
        return tuple(sorted((*own, *(rank for child in below[name] for rank in ranks_under(child)))))

    branches = []
    parents: dict[str, ParentLink | None] = {root: None}
    queue = [root]
    while queue:
        name = queue.pop(0)
        own = [(rank, worker) for rank, worker in enumerate(workers) if worker.switch == name]
        count = len(own) + len(below[name])
        if count > MAX_CHILDREN:
            raise JobRefusedError(
                f"switch {name} would have {count} children ({len(own)} workers, {len(below[name])} switches), at most "
                f"{MAX_CHILDREN} are possible: spread the workers over more switches"
            )
        links = switches[name].links
        children = [worker.endpoint for _, worker in own]
        children += [switches[child].endpoint(links[child]) for child in below[name]]
        children = sending_to(switches[name].ip, children, switches[name].udp_port)
        behind = [(rank,) for rank, _ in own] + [ranks_under(child) for child in below[name]]
        branches.append(Branch(name, tuple(children), tuple(behind), parents[name]))
        for worker_id, child in enumerate(below[name], start=len(own)):
            port = switches[child].links[name]
            parents[child] = ParentLink(port, switches[name].ip, switches[name].mac, worker_id)
            queue.append(child)
    return Tree(tuple(branches), dict(above))
