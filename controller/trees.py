"""The placement of a job's tree of switches: the switches, the children that each adds for, and the root. No I/O.

A switch's children are workers on its own ports and switches below it. The tree consists of the shortest paths from a root to
all switches that have workers of the job, without switches above the lowest one that joins all paths.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from controller.errors import JobRefusedError
from controller.jobs import Job, ParentLink, WorkerEndpoint
from host_agent.wire.admission import Admission
from host_agent.wire.constants import MAX_CHILDREN, MAX_WORLD_SIZE, TREE_MAX_LEVELS, UDP_PORT
from host_agent.wire.path import Level, Path
from topologies.paths import shortest_paths
from topologies.topology import Topology


@dataclass(frozen=True)
class TreeSwitch:
    """A switch that can be part of a tree."""

    name: str  # The switch's name in messages.
    # ip, mac: the switch's address on the data network.
    ip: str
    mac: str
    links: Mapping[str, int]  # Port to each neighbouring switch, by that switch's name.
    udp_port: int = UDP_PORT  # The UDP port on which the switch receives.
    on_host: bool = False  # Whether the switch runs on a host; it is a root only if the caller says so.
    # Whether the switch runs in the kernel of a host, and so sends frames to the MAC addresses of its children.
    at_interface: bool = False

    def endpoint(self, port: int) -> WorkerEndpoint:
        """Return the switch as a child of another switch, which reaches this one by `port`."""
        return WorkerEndpoint(port=port, ip=self.ip, mac=self.mac, udp_port=self.udp_port, is_switch=True)


def tree_switches(topology: Topology) -> dict[str, TreeSwitch]:
    """Return all switches of a network, by name."""
    return {
        name: TreeSwitch(name, spec.ip, spec.mac, topology.neighbours(name))
        for name, spec in topology.switches.items()
    }


@dataclass(frozen=True)
class Place:
    """A worker's place: its switch, and its endpoint as that switch sees it."""

    switch: str
    endpoint: WorkerEndpoint


@dataclass(frozen=True)
class Branch:
    """One switch of a job's tree, with its children and its parent."""

    switch: str  # The switch's name.
    # The switch's children by worker id: first its workers by rank, then the switches below by name.
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
        """Return the path from a worker to the root, in the form of the worker's admission."""
        by_name = {branch.switch: branch for branch in self.branches}
        # Switches above may also have the rank alone behind a child, so the worker's own switch is the lowest of them.
        here: str | None = [branch.switch for branch in self.branches if (rank,) in branch.ranks][-1]
        levels = []
        while here is not None:
            ranks = by_name[here].ranks
            levels.append(Level(next(child for child, behind in enumerate(ranks) if rank in behind), ranks))
            here = self.above.get(here)
        return tuple(levels)

    def admissions(self, jobs: Mapping[str, Job]) -> list[Admission]:
        """Return the admission of each worker, by rank.

        `jobs`: the job's part on each switch, by the switch's name.
        """
        found = {}
        for branch in self.branches:
            own = jobs[branch.switch].admissions
            for rank, child in self.workers_of(branch).items():
                found[rank] = replace(own[child], path=self.path(rank))
        return [found[rank] for rank in sorted(found)]

    def workers_of(self, branch: Branch) -> dict[int, int]:
        """Return the worker ids of the workers that are direct children of a switch, by rank."""
        below = {
            other.parent.worker_id
            for other in self.branches
            if other.parent is not None and self.above[other.switch] == branch.switch
        }
        return {behind[0]: child for child, behind in enumerate(branch.ranks) if child not in below}


def sending_to(ip: str, children: Sequence[WorkerEndpoint], udp_port: int = UDP_PORT) -> list[WorkerEndpoint]:
    """Return the children; those without an address to send to get the switch's."""
    return [replace(child, switch=child.switch or (ip, udp_port)) for child in children]


def place_tree(
    switches: Mapping[str, TreeSwitch],
    workers: Sequence[Place],
    load: Callable[[str], float] = lambda switch: 0.0,
    root: str = "",
) -> Tree:
    """Choose the switches that add for a job.

    Among the roots with the lowest tree and the fewest switches, the root whose switches are least loaded is taken, so that
    jobs spread over the spines of a network.

    `load`: returns how loaded a switch is; a lower value is better. `root`: the root, if it is chosen already. Raises
    JobRefusedError with the reason if there is no tree.
    """
    if not 1 <= len(workers) <= MAX_WORLD_SIZE:
        raise JobRefusedError(f"a job has 1 to {MAX_WORLD_SIZE} workers, not {len(workers)}")
    leaves = {worker.switch for worker in workers}
    for name in sorted(leaves - switches.keys()):
        raise JobRefusedError(f"there is no switch {name!r}: expected one of {', '.join(sorted(switches))}")
    candidates: list[tuple[int, int, float, str, dict[str, str]]] = []
    for name, distance in {root: 0}.items() if root else _distances(switches, min(leaves)).items():
        # A tree has at least one level more than the links from its root to a leaf, and the nearest roots come first.
        if candidates and distance >= min(candidates)[0]:
            break
        if switches[name].on_host and not root:
            continue
        above = _joined(_ways(switches, name), name, leaves)
        if above is not None:
            used = {name, *above, *above.values()} if above else {name}
            candidates.append((_height(above), len(used), sum(map(load, used)), name, above))
    if not candidates:
        raise JobRefusedError(f"no switch can reach all of {', '.join(sorted(leaves))}: check the links")
    height, _, _, chosen, above = min(candidates, key=lambda candidate: candidate[:4])
    if height > TREE_MAX_LEVELS:
        raise JobRefusedError(
            f"the job's tree would have {height} levels of switches, at most {TREE_MAX_LEVELS} are possible: "
            "take workers that are closer together"
        )
    return _built(switches, workers, chosen, above)


def _distances(switches: Mapping[str, TreeSwitch], start: str) -> dict[str, int]:
    """Return the distance, in links, of each switch that can reach `start`, the nearest first."""
    found = {start: 0}
    for name, above in _ways(switches, start).items():
        if above:
            found[name] = found[above] + 1
    return found


def _ways(switches: Mapping[str, TreeSwitch], root: str) -> dict[str, str]:
    """Return the next switch on a shortest path to the root, for each switch that can reach the root, the nearest first."""

    def beside(here: str) -> Iterable[tuple[str, None]]:
        both = (peer for peer in switches[here].links if peer in switches and here in switches[peer].links)
        return ((peer, None) for peer in sorted(both))

    found = shortest_paths([root], beside)
    return {switch: before[0] if before else "" for switch, before in found.items()}


def _joined(towards: Mapping[str, str], root: str, leaves: set[str]) -> dict[str, str] | None:
    """Return the parent of each switch below the root; None if the root does not reach all leaves, or joins no paths."""
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
    """Return the number of levels of switches."""

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
