"""A job of netsum with a quorum in a scenario: workers whose arrays are reduced if they are ready in time."""

import numpy as np
import numpy.typing as npt

from host_agent.collectives import Collective, Offer, Reduced, RoundRequest
from host_agent.rounds import AHEAD
from host_agent.schedule import Outcome
from host_agent.wire import Admission
from sim.errors import SettingError
from sim.experiments.experiment import Point
from sim.experiments.netsum_job import NetsumJob, WrongSumError
from sim.experiments.scenario import Scenario
from sim.experiments.values import expected_sum
from sim.experiments.work import Work, late_ns, slowness
from sim.network.worker import Worker


class RoundsJob(NetsumJob):
    """The workers of a job with a quorum: an iteration is a round, and a worker that computes for longer leaves some out.

    What `NetsumJob` says of an iteration is true of a round here, with two differences: `iteration_ns` is when a worker's
    communicator had the result of the round before, whether the worker itself was computing or not; and a worker whose array
    was late has submitted nothing, so its `started_ns` is its `ended_ns`.
    """

    def __init__(self, point: Point, number: int, scenario: Scenario, work: Work) -> None:
        super().__init__(point, number, scenario, work)
        job = self.settings
        if any(event.action == "switch-restart" for event in point.settings.event):
            raise SettingError(f"job {job.name}: expected no switch that restarts under a job with a quorum")
        self.late = 0  # Arrays that were ready when their round had ended.
        # How often a worker's contributors of a round were compared with those of the others.
        self.members_checked = 0
        self._contributors: dict[int, tuple[int, ...]] = {}
        self._expected: dict[tuple[int, int], npt.NDArray[np.float32]] = {}
        self._offers: list[list[Offer]] = [[] for _ in range(job.workers)]
        self._taken = [0] * job.workers
        self._computing = [False] * job.workers

    def _begin(self, worker: int, iteration: int) -> None:
        self.iteration_ns[iteration, worker] = self._network.now_ns
        self._follow(worker)
        self._compute(worker)

    def _follow(self, worker: int) -> None:
        """Begin the worker's next round, unless too many results wait for the worker."""
        begun = len(self._offers[worker])
        if begun == self._work.iterations or begun > self._next[worker]:
            return
        if self._next[worker] - self._taken[worker] >= AHEAD:
            return
        offer = Offer((self._elements[0],), np.dtype(np.float32))
        self._offers[worker].append(offer)

        def plan(admission: Admission, sequence: int) -> Collective[Reduced]:
            return RoundRequest(offer, "sum").plan(admission, sequence)

        self.workers[worker].submit(plan)

    def _compute(self, worker: int) -> None:
        """Let a worker take the results that have come, and compute for the first round that has not ended."""
        number = self._taken[worker] = self._next[worker]
        if not 0 <= number < self._work.iterations:
            return
        self._computing[worker] = True
        self._follow(worker)
        took_ns = round(self._work.computing_ns * slowness(self.settings, worker))
        late = late_ns(self.settings, self._point.seed, worker, number)
        self._network.at(self._network.now_ns + took_ns + late, self._computed, worker, number)

    def _computed(self, worker: int, number: int) -> None:
        self._computing[worker] = False
        if self._next[worker] > number:
            self.late += 1
            self._compute(worker)
        elif self._next[worker] == number:
            self.started_ns[number, 0, worker] = self._network.now_ns
            self._offers[worker][number].make(self._values(number, 0)[worker])
            self._network.poll_worker(self.workers[worker].number)

    def _on_ended(self, ended: Worker, outcome: Outcome) -> None:
        worker, number = ended.admission.rank, self._next[ended.admission.rank]
        if outcome.error is not None:
            if str(outcome.error) not in self.errors:
                self.errors.append(str(outcome.error))
            if ended.core.failed:
                self.give_up(worker)
            return
        self._next[worker] += 1
        now_ns = max(int(ended.record["busy_ps"]), self._network.now_ps) // 1000
        assert isinstance(outcome.result, Reduced)
        self._compare_round(number, worker, outcome.result)
        self.ended_ns[number, 0, worker] = self.iteration_ns[number + 1, worker] = now_ns
        if self.started_ns[number, 0, worker] < 0:
            self.started_ns[number, 0, worker] = now_ns
        if number + 1 == self._work.iterations:
            self._network.pending.discard((self.settings.name, worker))
            return
        self._follow(worker)
        if not self._computing[worker]:
            self._compute(worker)

    def _compare_round(self, number: int, worker: int, result: Reduced) -> None:
        """Check that a round's contributors are the same at every worker, were in time, and that the sum is theirs.

        Raises WrongSumError: they are not.
        """
        where = f"job {self.settings.name}: round {number} of worker {worker}"
        contributors = self._contributors.setdefault(number, result.ranks)
        if result.ranks != contributors:
            raise WrongSumError(
                f"{where}: its contributors are {result.ranks}, and {contributors} at another worker"
            )
        if len(contributors) != self.settings.quorum:
            raise WrongSumError(
                f"{where}: expected {self.settings.quorum} contributors, not {len(contributors)}"
            )
        offered = [
            len(self._offers[rank]) > number and self._offers[rank][number].made for rank in contributors
        ]
        if not all(offered):
            raise WrongSumError(f"{where}: a contributor of {contributors} has contributed no array")
        self.members_checked += 1
        if not self._check:
            return
        expected = self._sum_over(number, contributors)
        if result.value.tobytes() != expected.tobytes():
            wrong = int(np.flatnonzero(result.value != expected)[0])
            raise WrongSumError(f"{where}: element {wrong} is not the sum over workers {contributors}")
        self.checked += 1

    def _sum_over(self, number: int, contributors: tuple[int, ...]) -> npt.NDArray[np.float32]:
        key = number, 0
        if key not in self._expected:
            # The workers are at the same round but for one that ends while others begin the next.
            self._expected = {each: found for each, found in self._expected.items() if each[0] == number - 1}
            parts = [self._values(number, 0)[rank] for rank in contributors]
            self._expected[key] = expected_sum(parts, self.lanes, self.settings.workers)
            for each in [each for each in self._inputs if each[0] < number - 1]:
                del self._inputs[each]
        return self._expected[key]
