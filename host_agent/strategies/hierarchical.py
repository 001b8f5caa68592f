"""Hierarchical local SGD: models are averaged often within a rack, rarely between racks."""

from typing import Any

from torch import Tensor

from host_agent.options import Count
from host_agent.strategies.base import Strategy, contiguous_groups


class HierarchicalSGD(Strategy):
    """Average the models of a group every `every` steps, and all models with every `between`-th of these averages.

    Groups are contiguous ranks, such as the workers of a rack. On a tree of switches the average within a rack is added by the
    rack's own switch, and sends nothing upward. With ``every=1`` and ``between=1`` it is synchronous SGD without momentum.

    `groups`: how many; divides the number of workers. `every`: steps between two averages within a group, H. `between`:
    averages within a group for each one of all workers, Hᵇ; that one takes the place of its last. With
    `compression`, the averages of all workers are compressed.

    References
    ----------
    T. Lin, S. U. Stich, K. K. Patel, M. Jaggi, "Don't Use Large Mini-Batches, Use Local SGD", ICLR 2020, arXiv:1808.07217,
    appendix on hierarchical local SGD, algorithm 5.
    """

    name = "hierarchical"
    summary = "average the models within a group every H steps, those of all groups more rarely"
    source = "Lin et al. 2020"
    use = "racks with slow links between them"
    cost = "d / H; between racks d / (H · between)"
    STATE = ("reference", "_common", "_sent_within")

    reference: Tensor  # The last model that the group had alike.
    _common: Tensor  # The last model that all workers had alike.

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        *,
        groups: Count = 2,
        every: Count = 4,
        between: Count = 4,
        **common: Any,
    ) -> None:
        super().__init__(model, optimizer, **common)
        self.groups, self.every, self.between = groups, every, between
        self._own = self.exchange.within(contiguous_groups(self.name, self.workers, groups))
        self._sent_within = 0

    @property
    def bytes_between(self) -> int:
        """Bytes that this worker sent for averages of all workers, and for the first model."""
        return self.traffic.bytes_sent - self._sent_within

    def at_start(self) -> None:
        """Take the model of rank 0 as the reference."""
        super().at_start()
        self.reference = self._common = self.vector()

    def after_step(self) -> None:
        """Average the models every few steps, within the group or of all workers."""
        if self.steps % self.every == 0:
            self._average(of_all=self.steps // self.every % self.between == 0)

    def at_end(self) -> None:
        """Average all models, unless that was done just now, and dissolve the groups."""
        if self.steps % (self.every * self.between):
            self._average(of_all=True)
        self.average_buffers()
        self.exchange.wait_for_all()  # A group must not go while another worker's collective needs it.
        self._own.close()

    def _average(self, of_all: bool) -> None:
        if of_all:
            self.reference = self._common = self.average_models(self._common)
            return
        # The difference is smaller than the model, so that the switch's number format loses less of it.
        change = self.vector() - self.reference
        self.reference = self.reference + self._own.mean(change)
        self._sent_within += change.nbytes
        self.load(self.reference)
