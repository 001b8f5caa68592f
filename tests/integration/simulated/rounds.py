"""Workers that compute, offer their arrays to a round, and go on when it has ended, in virtual time."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from host_agent.collectives import Offer, Op, Reduced, RoundRequest
from host_agent.schedule import Outcome
from host_agent.wire import Admission
from sim.network.worker import Worker
from tests.integration.simulated.star import Star

Array = npt.NDArray[Any]


class RoundWorkers:
    """The workers of a job with a quorum on a star of links.

    Parameters
    ----------
    star
        The network.
    admissions
        Of the job.
    rounds
        How many.
    part
        Returns what a worker offers to a round.
    compute_ns
        Returns how long it computes that.
    op
        Of the rounds.
    """

    def __init__(
        self,
        star: Star,
        admissions: list[Admission],
        rounds: int,
        part: Callable[[int, int], Array],
        compute_ns: Callable[[int, int], int],
        op: Op = "sum",
        **options: Any,
    ) -> None:
        self._star, self._rounds, self._part, self._compute_ns = star, rounds, part, compute_ns
        like = part(0, 0)
        self._offers = [[Offer(like.shape, like.dtype) for _ in range(rounds)] for _ in admissions]
        self.late = [0] * len(admissions)
        """Number of arrays of each worker that were ready after their round had ended."""
        self._computing = [False] * len(admissions)

        def plans(worker: int) -> list[Any]:
            return [
                lambda admission, sequence, offer=offer: RoundRequest(offer, op).plan(admission, sequence)
                for offer in self._offers[worker]
            ]

        self.workers = star.add_job(admissions, plans, on_ended=self._on_ended, **options)
        for worker in range(len(admissions)):
            self._compute(worker)

    @property
    def results(self) -> list[list[Reduced]]:
        """Result of each round, at each worker."""
        return [[reduced(outcome) for outcome in worker.outcomes] for worker in self.workers]

    def check(self, quorum: int, combine: Callable[[list[Array]], Array]) -> None:
        """Check that each round has the same quorum and bits at all workers, and that they are right."""
        for worker in self.workers:
            assert len(worker.outcomes) == self._rounds, [outcome.error for outcome in worker.outcomes]
        for number, results in enumerate(zip(*self.results, strict=True)):
            ranks = results[0].ranks
            assert len(ranks) == quorum == results[0].added
            expected = combine([self._part(rank, number) for rank in ranks])
            for result in results:
                assert result.ranks == ranks
                np.testing.assert_array_equal(result.value, expected)
                assert result.value.tobytes() == results[0].value.tobytes()

    def _compute(self, worker: int) -> None:
        number = len(self.workers[worker].outcomes)
        if number < self._rounds:
            self._computing[worker] = True
            due_ns = self._star.now_ns + self._compute_ns(worker, number)
            self._star.network.at(due_ns, self._computed, worker, number)

    def _computed(self, worker: int, number: int) -> None:
        self._computing[worker] = False
        if len(self.workers[worker].outcomes) > number:
            self.late[worker] += 1
            self._compute(worker)
            return
        self._offers[worker][number].make(self._part(worker, number))
        self._star.network.poll_worker(self.workers[worker].number)

    def _on_ended(self, worker: Worker, outcome: Outcome) -> None:
        rank = worker.admission.rank
        if not self._computing[rank]:
            self._compute(rank)


def reduced(outcome: Outcome) -> Reduced:
    """Return the result of a round that has ended well."""
    assert outcome.error is None, outcome.error
    assert isinstance(outcome.result, Reduced)
    return outcome.result
