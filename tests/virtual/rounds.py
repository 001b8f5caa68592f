"""Rounds of a job with a quorum, among workers in virtual time: those that are ready first are contributors, others come late.

docs/protocol.md#quorums defines a round.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from host_agent.collectives import Reduced
from host_agent.errors import MisuseError
from host_agent.rounds import AHEAD
from tests.virtual.world import VirtualWorld

Array = npt.NDArray[Any]


@dataclass
class _Round:
    """A round that not all workers have taken.

    `contributors` is part of the events of its workers: it is empty until the quorum is complete, and filled then.
    """

    arrays: dict[int, tuple[float, Array]] = field(default_factory=dict)
    contributors: list[int] = field(default_factory=list)
    result: Reduced | None = None
    takers: int = 0


class RoundsOfJob:
    """Shared state of the workers of a job with a quorum.

    `workers`, `quorum`: their number, and the number of arrays that are reduced. `seed`: of the draw among those that are
    ready at the same time. Raises MisuseError if the quorum is not 1 to `workers`.
    """

    def __init__(self, workers: int, quorum: int, seed: int) -> None:
        if not 1 <= quorum <= workers:
            raise MisuseError(f"a quorum is 1 to {workers}, the job's workers, not {quorum}")
        self.workers, self.quorum = workers, quorum
        self._seed = seed
        self._rounds: dict[int, _Round] = {}

    def round(self, number: int) -> _Round:
        """Return a round."""
        return self._rounds.setdefault(number, _Round())

    def decide(self, number: int) -> None:
        """Settle the contributors of a round, and take the mean of their arrays, added in the order of ranks.

        They are those who were ready first. Among workers that were ready at the same time they are drawn at random.
        """
        this = self.round(number)
        draw = np.random.default_rng((self._seed, number)).permutation(self.workers)
        first = sorted(this.arrays, key=lambda rank: (this.arrays[rank][0], draw[rank]))
        this.contributors.extend(sorted(first[: self.quorum]))
        total = sum(this.arrays[rank][1] for rank in this.contributors)
        mean = np.asarray(total / self.quorum, this.arrays[this.contributors[0]][1].dtype)
        this.result = Reduced(mean, tuple(this.contributors))
        this.arrays.clear()

    def collect(self, number: int) -> Reduced:
        """Return a round's result to a worker; it is kept until all have taken it."""
        this = self.round(number)
        assert this.result is not None
        this.takers += 1
        if this.takers == self.workers:
            del self._rounds[number]
        return this.result


class VirtualCommunicator:
    """A communicator of a job with a quorum, as far as strategies use it; made by `VirtualGroup.communicator`."""

    def __init__(self, world: VirtualWorld, rank: int, job: RoundsOfJob) -> None:
        self.worker_id, self.num_workers = rank, job.workers
        self._world, self._job = world, job

    def rounds(
        self, count: int, shape: tuple[int, ...], dtype: npt.DTypeLike, *, ahead: int = AHEAD
    ) -> "VirtualRounds":
        """Run `count` rounds that take means; see `Communicator.rounds`."""
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        return VirtualRounds(self._world, self.worker_id, self._job, count, size, ahead)


class VirtualRounds:
    """`host_agent.rounds.Rounds` in virtual time; made by `VirtualCommunicator.rounds`.

    `ahead`: limit on kept results that a worker has not taken; at the limit the others wait.
    """

    def __init__(
        self, world: VirtualWorld, rank: int, job: RoundsOfJob, count: int, size: int, ahead: int
    ) -> None:
        self.number = 0  # How many results have been taken.
        self._world, self._rank, self._job = world, rank, job
        self._count, self._size, self._ahead = count, size, ahead

    @property
    def behind(self) -> int:
        """How many rounds have ended whose results were not taken."""
        ends, behind = self._world.timeline.rounds.ends, 0
        while ends.get(self.number + behind, np.inf) <= self._world.now:
            behind += 1
        return behind

    @property
    def done(self) -> bool:
        """Whether all results have been taken."""
        return self.number == self._count

    def offer(self, array: npt.ArrayLike) -> None:
        """Hand in an array for round `number`; without effect if its contributors are settled.

        Raises MisuseError if all rounds have ended.
        """
        self._check_left()
        this = self._job.round(self.number)
        if this.contributors:
            return
        this.arrays[self._rank] = self._world.now, np.array(array)
        if len(this.arrays) >= self._job.quorum:
            self._world.compute(0.0)  # Others that are ready at the same time hand in their arrays.
            if not this.contributors:
                self._job.decide(self.number)
        self._world.do(["offer", self.number, this.contributors, self._size, self._ahead])

    def take(self) -> list[Reduced]:
        """Return the results that have come, in order; at least one, for which it waits.

        Raises MisuseError if all were taken.
        """
        self._check_left()
        last = self.number + max(1, self.behind) - 1
        self._world.do(["round", last, self._job.round(last).contributors, self._size, self._ahead])
        results = [self._job.collect(number) for number in range(self.number, last + 1)]
        self.number = last + 1
        return results

    def _check_left(self) -> None:
        if self.done:
            raise MisuseError(f"all {self._count} rounds have ended")
