"""The jobs of a scenario on its switches, and the tables of each switch at each stage: the controller's own entries."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from operator import methodcaller
from typing import cast

from controller.entries import WORKER_ADMISSION, Entry, MulticastGroup
from controller.errors import JobRefusedError
from controller.jobs import Job, WorkerEndpoint
from controller.slots import SlotRange
from controller.switch_tables import SwitchTables
from controller.table_writer import Change, TableWriter
from controller.trees import Place, Tree, place_tree, tree_switches
from host_agent.job_api.job_request import JobRequest
from host_agent.wire.admission import Admission
from netsum_common.targets import Capabilities
from sim.explore.scenario import ExplorerScenario, ScenarioError
from sim.frames import FIRST_UDP_PORT
from sim.programming import TOKEN_STEP, InProcessWriter
from sim.switch import Switch
from sim.switch.ir import Program

_FIRST_EPOCH = 1


@dataclass(frozen=True)
class Stage:
    """The tables of a switch at a time."""

    changes: tuple[Callable[[TableWriter], None], ...]  # The changes that lead to the stage, in order.
    admitted: frozenset[int]  # Senders that they admit: port * epochs + epoch.


@dataclass(frozen=True)
class Stages:
    """The tables of a switch at all times; `emptied`: the stage that holds nothing of the job."""

    stages: list[Stage]
    emptied: int


class _ChangeRecorder(InProcessWriter):
    """A writer that keeps each change of an entry or group, and after it the senders (port, token) that are admitted."""

    def __init__(self, switch: Switch) -> None:
        super().__init__(switch)
        self.changes: list[Callable[[TableWriter], None]] = []
        self.admitted: list[set[tuple[int, int]]] = []

    def write(self, change: Change, changed: Sequence[Entry], what: str) -> None:
        """Write entries one by one."""
        for one in changed:
            super().write(change, [one], what)
            self._keep(methodcaller("write", change, [one], what))

    def set_group(self, group: MulticastGroup, what: str) -> None:
        """Create or replace a multicast group."""
        super().set_group(group, what)
        self._keep(methodcaller("set_group", group, what))

    def delete_groups(self, group_ids: Collection[int], what: str) -> None:
        """Delete multicast groups."""
        for group_id in self.groups().keys() & group_ids:
            super().delete_groups([group_id], what)
            self._keep(methodcaller("delete_groups", [group_id], what))

    def _keep(self, change: Callable[[TableWriter], None]) -> None:
        self.changes.append(change)
        admissions = self.read(WORKER_ADMISSION)
        self.admitted.append(
            {(cast(int, one.value("ingress_port")), cast(int, one.value("token"))) for one in admissions}
        )


class Placement:
    """The jobs of a scenario."""

    def __init__(self, scenario: ExplorerScenario, lanes: int) -> None:
        self._scenario = scenario
        self._lanes = lanes
        shape = scenario.shape
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
        count = _FIRST_EPOCH + number * scenario.epochs + (1 - epoch if scenario.falls else epoch)
        children = tuple(replace(child, worker_id=at) for at, child in enumerate(branch.children))
        return Job(
            JobRequest(f"job{number}", len(children), quorum=scenario.quorum),
            number + 1,
            count,
            count * TOKEN_STEP & 0xFFFFFFFF,
            SlotRange((number + (epoch if scenario.moves else 0)) * scenario.slots, scenario.slots),
            Capabilities(lanes=self._lanes),
            children,
            branch.parent,
        )

    def admission(self, number: int, epoch: int, worker: int) -> Admission:
        """Return the admission of a worker in an epoch."""
        held = {str(switch): parts[number][epoch] for switch, parts in enumerate(self.parts)}
        return self._trees[number].admissions(held)[worker]

    def stages(self, switch: int, program: Program) -> Stages:
        """Return the tables of a switch at each stage, as the controller's own code changes them one after the other.

        With two epochs it withdraws the old one and then installs the new one.
        """
        writer = _ChangeRecorder(Switch(program))
        tables, changes = SwitchTables(writer), writer.changes
        spec = self._scenario.shape.topology.switches[str(switch)]
        tables.set_switch_address(spec.ip, spec.mac)
        for epochs in self.parts[switch]:
            tables.install(epochs[0])
        first = len(changes)
        tokens = [job.token for epochs in self.parts[switch] for job in epochs]
        emptied = first
        if self._scenario.epochs > 1:
            ((old, new),) = self.parts[switch]
            tables.withdraw(old)
            emptied = len(changes)
            tables.install(new)
        admitted = [
            frozenset(
                port * self._scenario.epochs + tokens.index(token) % self._scenario.epochs
                for port, token in senders
            )
            for senders in writer.admitted[first - 1 :]
        ]
        stages = [Stage(tuple(changes[: first + later]), each) for later, each in enumerate(admitted)]
        return Stages(stages, emptied - first)
