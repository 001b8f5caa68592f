"""The jobs of a scenario on its switches, and the tables of each switch at each stage: the controller's own entries."""

from dataclasses import dataclass, replace

from controller.entries import (
    Entry,
    address_entry,
    admission_entries,
    parent_entries,
    quorum_entries,
    rewrite_entries,
)
from controller.errors import JobRefusedError
from controller.jobs import Job, WorkerEndpoint
from controller.slots import SlotRange
from controller.trees import Place, Tree, place_tree, tree_switches
from host_agent.job_api.job_request import JobRequest
from host_agent.wire.admission import Admission
from netsum_common.targets import Capabilities
from sim.explore.scenario import ExplorerScenario, ScenarioError
from sim.frames import FIRST_UDP_PORT
from sim.programming import TOKEN_STEP

_FIRST_EPOCH = 1


@dataclass(frozen=True)
class Stage:
    """The tables of a switch at a time."""

    entries: tuple[Entry, ...]  # But for the switch's address.
    admitted: frozenset[int]  # Senders that they admit: port * epochs + epoch.


class Placement:
    """The jobs of a scenario."""

    def __init__(self, scenario: ExplorerScenario, lanes: int) -> None:
        self._scenario = scenario
        self._lanes = lanes
        shape = scenario.shape
        self.addresses = [address_entry(spec.ip, spec.mac) for spec in shape.topology.switches.values()]
        # For each switch, each job in each of its epochs.
        self.parts: list[list[list[Job]]] = [
            [[] for _ in range(scenario.jobs)] for _ in range(shape.switches)
        ]
        self._trees: list[Tree] = []
        for number in range(scenario.jobs):
            tree = self._tree(number)
            self._trees.append(tree)
            for epoch in range(scenario.epochs):
                for branch in tree.branches:
                    self.parts[int(branch.switch)][number].append(
                        self._part(tree, number, epoch, branch.switch)
                    )

    def _tree(self, number: int) -> Tree:
        """Return the tree of a job as the controller places it."""
        scenario, shape = self._scenario, self._scenario.shape
        specs = list(shape.topology.hosts.values())
        places = []
        for spec in specs[number * scenario.workers : (number + 1) * scenario.workers]:
            leaf, port = shape.topology.place(spec.name)
            places.append(Place(leaf, WorkerEndpoint(port, spec.ip, spec.mac, FIRST_UDP_PORT)))
        expected = (
            f"scenario {scenario.name!r}: expected workers below every switch, and two children of the root"
        )
        try:
            tree = place_tree(tree_switches(shape.topology), places, root="0")
        except JobRefusedError as refusal:
            raise ScenarioError(f"{expected} ({refusal})") from None
        if tree.above != {str(child): str(parent) for child, parent in enumerate(shape.parents, 1)}:
            raise ScenarioError(expected)
        return tree

    def _part(self, tree: Tree, number: int, epoch: int, switch: str) -> Job:
        scenario = self._scenario
        branch = next(each for each in tree.branches if each.switch == switch)
        count = _FIRST_EPOCH + number * scenario.epochs + epoch
        children = tuple(replace(child, worker_id=at) for at, child in enumerate(branch.children))
        return Job(
            JobRequest(f"job{number}", len(children), quorum=scenario.quorum),
            number + 1,
            count,
            count * TOKEN_STEP & 0xFFFFFFFF,
            SlotRange(number * scenario.slots, scenario.slots),
            Capabilities(lanes=self._lanes),
            children,
            branch.parent,
        )

    def admission(self, number: int, epoch: int, worker: int) -> Admission:
        """Return the admission of a worker in an epoch."""
        held = {str(switch): parts[number][epoch] for switch, parts in enumerate(self.parts)}
        return self._trees[number].admissions(held)[worker]

    def stages(self, switch: int) -> list[Stage]:
        """Return the tables of a switch at each stage.

        With two epochs the entries of the old one are deleted one by one, then those of the new one are written.
        """
        parts, epochs = self.parts[switch], self._scenario.epochs

        def stage(others: list[Entry], admissions: list[Entry], epoch: int) -> Stage:
            ports = [one.value("ingress_port") for one in admissions]
            assert all(isinstance(port, int) for port in ports)
            admitted = frozenset(port * epochs + epoch for port in ports if isinstance(port, int))
            return Stage((*admissions, *others), admitted)

        def others(job: Job) -> list[Entry]:
            return [*rewrite_entries(job), *parent_entries(job), *quorum_entries(job)]

        if epochs == 1:
            jobs = [epochs_of[0] for epochs_of in parts]
            return [
                stage(
                    [e for job in jobs for e in others(job)],
                    [e for job in jobs for e in admission_entries(job)],
                    0,
                )
            ]
        old, new = parts[0]
        before, after = admission_entries(old), admission_entries(new)
        return [
            *(stage(others(old), before[deleted:], 0) for deleted in range(len(before) + 1)),
            *(stage(others(old), after[:written], 1) for written in range(1, len(after) + 1)),
        ]
