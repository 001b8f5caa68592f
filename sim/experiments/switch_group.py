"""Ranks of a trace whose collectives go through the switch: a job of netsum that begins each of its parts on request.

The switch carries the same collectives as with PyTorch's backend (`host_agent.torch.process_group`). A reduce-scatter is a
reduce of each worker's part to that worker.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from host_agent.schedule import Outcome
from sim.experiments.experiment import Point
from sim.experiments.netsum_job import NetsumJob
from sim.experiments.scenario import Scenario
from sim.experiments.work import Bucket, Work
from sim.network.graph import NetworkError
from sim.network.worker import Worker
from sim.peers.group import split
from sim.traces.graph import GraphStep

CARRIED: Final = ("all-reduce", "reduce", "broadcast", "all-gather", "reduce-scatter")


def parts_of(step: GraphStep) -> list[Bucket]:
    """Return the collectives of the shipped core that one of a trace consists of."""
    kind, size = step.node.kind, step.node.size
    if kind == "reduce-scatter":
        return [
            Bucket(part, 0, kind="reduce", root=at) for at, part in enumerate(split(size, len(step.ranks)))
        ]
    root = 0 if kind in ("broadcast", "reduce") else -1
    return [Bucket(size, 0, step.node.density, kind, root, common=True)]


class SwitchGroup(NetsumJob):
    """Workers of some ranks of a job. Its buckets are the parts of the ranks' collectives, in one order for all of them."""

    def __init__(
        self,
        point: Point,
        number: int,
        scenario: Scenario,
        ranks: Sequence[int],
        iterations: int,
        parts: Sequence[Bucket],
    ) -> None:
        job = point.settings.job[number]
        hosts = [scenario.hosts_of(job)[rank] for rank in ranks]
        if len(ranks) < job.workers:
            straggler = ranks.index(job.straggler) if job.straggler in ranks else -1
            name = f"{job.name}:{','.join(map(str, ranks))}"
            job = replace(job, name=name, workers=len(ranks), straggler=straggler)
        self._ended: dict[tuple[int, int], Callable[[int], None]] = {}
        super().__init__(point, number, scenario, Work(iterations, 0, 0, tuple(parts)), job, hosts)

    def start(self, worker: int, parts: range, ended: Callable[[int], None]) -> None:
        """Let a worker begin its next parts; `ended` is called with the time, in ps, when it has ended the last of them."""
        self._ended[worker, parts[-1]] = ended
        for part in parts:
            self._submit(worker, *divmod(part, len(self._work.buckets)))

    @property
    def _repeats(self) -> bool:
        return False  # The next collective is known to the trace's messages alone.

    def _begin(self, worker: int, iteration: int) -> None:
        self.iteration_ns[iteration, worker] = self._network.now_ns

    def _on_ended(self, ended: Worker, outcome: Outcome) -> None:
        worker = ended.admission.rank
        part = self._next[worker]
        super()._on_ended(ended, outcome)
        if outcome.error is not None:
            raise NetworkError(f"job {self.settings.name}: {outcome.error}")
        if (worker, part) in self._ended:
            self._ended.pop((worker, part))(max(int(ended.record["busy_ps"]), self._network.now_ps))
