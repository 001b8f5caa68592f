"""Synchronous SGD with backup workers: a step takes the gradients that are there first."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from torch import Tensor

from host_agent.collectives.quorum import Reduced
from host_agent.options import Count, require
from host_agent.rounds import AHEAD, Rounds
from host_agent.strategies.base import Strategy


class BackupWorkers(Strategy):
    """Average the gradients of the first k of n workers in every step, and drop those that come later.

    A slow worker delays no other: while it computes, its communicator follows the steps of the others. When its gradient is
    ready it is too late; the worker drops it, takes the steps that it has missed, and computes on the model it then has. All
    workers have the same model, bit for bit, after the same number of steps. k is the quorum of the communicator's job. The
    loop goes over rounds, as a slow worker computes fewer gradients than there are steps::

        with netsum.join(job="train", rank=rank, world_size=8, quorum=7) as membership, membership.communicator() as comm:
            with netsum.strategy("backup", model, optimizer, communicator=comm, rounds=1000) as s:
                for _ in s.training():
                    with s.step():
                        loss_function(model(inputs), targets).backward()

    `communicator`: of a job with a quorum, whose workers are those of the process group, with the same ranks. The process
    group itself may be of any back end: it distributes the first model. `rounds`: steps of the training, at all workers alike.
    `ahead`: steps that a worker may fall behind before the others wait for it; it keeps a gradient for each.

    Attributes: `contributed`: steps that have a gradient of this worker. `late`: gradients of this worker that no step has.

    References
    ----------
    J. Chen, X. Pan, R. Monga, S. Bengio, R. Jozefowicz, "Revisiting Distributed Synchronous SGD", arXiv:1604.00981, 2016.
    S. Li et al., "Taming Unbalanced Training Workloads in Deep Learning with Partial Collective Operations", PPoPP 2020
    (there late gradients are added to a later step instead).
    """

    name = "backup"
    summary = "average the first k of n gradients of every step; late ones are dropped"
    source = "Chen et al. 2016"
    use = "one slow worker among many, fast links"
    cost = "d"
    COMPRESSES = False

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        *,
        communicator: Any,
        rounds: Count,
        ahead: Count = AHEAD,
        **common: Any,
    ) -> None:
        super().__init__(model, optimizer, **common)
        require(
            self.scaler is None,
            f"strategy {self.name} takes no scaler: each worker would scale by another factor",
        )
        self.require(
            (communicator.worker_id, communicator.num_workers) == (self.rank, self.workers),
            f"expected a communicator of worker {self.rank} of {self.workers}, as in the process group, not "
            f"{communicator.worker_id} of {communicator.num_workers}",
        )
        self._communicator, self._count, self._ahead = communicator, rounds, ahead
        self.contributed = self.late = 0

    @cached_property
    def _rounds(self) -> Rounds:
        like = self.vector().cpu().numpy()
        rounds: Rounds = self._communicator.rounds(self._count, like.shape, like.dtype, ahead=self._ahead)
        return rounds

    @property
    def behind(self) -> int:
        """Steps of the others that this worker has not taken; above 0 its gradients are late."""
        return self._rounds.behind

    def training(self) -> Iterator[int]:
        """Yield the number of the step that the next gradient is for, until all steps have been taken."""
        while not self._rounds.done:
            yield self._rounds.number

    def after_backward(self) -> bool:
        """Offer the gradient, and take all steps that have ended; the last one is left to the caller."""
        own = self.gradient()
        self.offer(own)
        for number, result in enumerate(self.results()):
            if number:
                self.optimizer.step()
                self.steps += 1
            self.load_gradient(own.new_tensor(result.value))
        return True

    def offer(self, own: Tensor) -> None:
        """Hand in a vector for the next round, in which it may not change."""
        self.require(not self._rounds.done, f"all {self._count} rounds have ended: loop over training()")
        self._rounds.offer(own.cpu().numpy())

    def results(self) -> list[Reduced]:
        """Return the results that have come since a vector was handed in; at least one, for which it waits."""
        results = self._rounds.take()
        added = sum(self.rank in result.ranks for result in results)
        self.contributed += added
        self.late += 1 - added
        sizes = sum(each.value.nbytes for each in results)
        self.traffic.add(sent=sizes, received=sizes, synchronizations=len(results))
        return results

    def at_end(self) -> None:
        """Average the buffers, which the workers did not share."""
        self.average_buffers()
