"""Federated averaging: clients with data of their own train for some epochs, a sample of them in each round."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from host_agent.options import Count, Fraction
from host_agent.strategies.base import Strategy


class FedAvg(Strategy):
    """Average the models of sampled clients, each weighted by the number of its samples.

    A worker is a client. The loop goes over rounds, and clients that are sampled train on their own data in their own number of
    steps::

        with netsum.strategy("fedavg", model, optimizer, samples=len(own), fraction=0.5) as s:
            for chosen in s.rounds(20):
                if chosen:
                    for inputs, targets in batches_of(own, epochs=5):
                        with s.step():
                            loss_function(model(inputs), targets).backward()

    FedSGD is one step with all of a client's data. The average is an all-reduce, in which a client that is not sampled takes part
    with zeros; its bytes are counted.

    `samples`: of this client. `fraction`: of the clients, sampled in each round; at least one is. `seed`: of the sampling; the
    same at all clients. `private`: refuse a group that does not mask what clients send (docs/security.md); with its option
    `exact` the models are the same, bit for bit, as without masks.

    References
    ----------
    H. B. McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017,
    arXiv:1602.05629, algorithm 1.
    """

    name = "fedavg"
    summary = "in each round, average the models of sampled clients, weighted by their numbers of samples"
    source = "McMahan et al. 2017"
    use = "clients with data of their own, some of which train in a round"
    cost = "d a round"
    STATE = ("reference", "round", "sizes")

    reference: Tensor  # The model at the beginning of the round.
    sizes: list[int]  # Samples of each client.

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        *,
        samples: Count,
        fraction: Fraction = 1.0,
        seed: int = 0,
        private: bool = False,
        **common: Any,
    ) -> None:
        super().__init__(model, optimizer, **common)
        group = common.get("group") or dist.group.WORLD
        self.require(
            not private or getattr(group, "private", False),
            "private=True needs a group that masks: pass pg_options=Options(private=True, secret=...) of netsum.torch to "
            "init_process_group",
        )
        self.samples, self.fraction, self.seed = samples, fraction, seed
        self.round = 0

    def at_start(self) -> None:
        """Take the model of rank 0, and send the sizes of all clients to each."""
        super().at_start()
        self.reference = self.vector()
        self.sizes = [int(each) for each in self.exchange.gather(torch.tensor([self.samples]))]

    def rounds(self, count: int) -> Iterator[bool]:
        """Run rounds; yields whether this client trains in the round, and averages when the loop comes back."""
        for _ in range(count):
            chosen = self.sampled()
            yield self.rank in chosen
            # A mean over all workers of weights whose mean is 1.
            own = self.sizes[self.rank] if self.rank in chosen else 0
            weight = own * self.workers / sum(self.sizes[each] for each in chosen)
            change = (self.vector() - self.reference) * weight
            self.reference = self.reference + self.exchange.compressed_mean(change)
            self.load(self.reference)
            self.round += 1

    def sampled(self) -> list[int]:
        """Return the clients of this round, in ascending order."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.round)
        count = max(1, round(self.fraction * self.workers))
        order: list[int] = torch.randperm(self.workers, generator=generator).tolist()
        return sorted(order[:count])

    def at_end(self) -> None:
        """Average the buffers, which the clients did not share."""
        self.average_buffers()
