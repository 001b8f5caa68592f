"""A wide embedding model: almost all of its gradient is zero, and blocks of zeros do not travel.

With ``--sparse`` the embedding's gradient is a sparse tensor: only the rows of the items that some worker's baskets hold.

Made-up shopping baskets: each item belongs to one of a few tastes, and the model predicts a basket's taste.
"""

from dataclasses import replace

import torch
from harness import ADAM_EPS, Task, evaluating, main
from torch import Tensor, nn

ITEMS, WIDTH, TASTES, BASKET, BATCH = 20_000, 64, 8, 12, 64

taste_of_item = torch.randint(TASTES, (ITEMS,), generator=torch.Generator().manual_seed(1))
items_of_taste = [torch.nonzero(taste_of_item == taste).flatten() for taste in range(TASTES)]
popular = [items[:50] for items in items_of_taste]


class BasketModel(nn.Module):
    """Sums the embeddings of a basket's items.

    Parameters
    ----------
    sparse
        Whether the embedding's gradient is a sparse tensor.
    """

    def __init__(self, sparse: bool = False) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(ITEMS, WIDTH, mode="sum", sparse=sparse)
        self.head = nn.Linear(WIDTH, TASTES)

    def forward(self, baskets: Tensor) -> Tensor:
        """Return scores (basket, taste)."""
        return self.head(self.embedding(baskets))


def baskets(seed: int, count: int) -> tuple[Tensor, Tensor]:
    """Make baskets (count, items), half of whose items are of their taste, and their tastes (count,)."""
    generator = torch.Generator().manual_seed(seed)
    tastes = torch.randint(TASTES, (count,), generator=generator)
    drawn = torch.randint(ITEMS, (count, BASKET), generator=generator)
    for row, taste in enumerate(tastes):
        chosen = torch.randint(len(popular[taste]), (BASKET // 2,), generator=generator)
        drawn[row, : BASKET // 2] = popular[taste][chosen]
    return drawn, tastes


def batch(step: int, worker: int, workers: int) -> tuple[Tensor, Tensor]:
    """Make a step's baskets; every worker takes its part of them."""
    items, tastes = baskets(1000 + step, BATCH)
    mine = slice(worker, BATCH // workers * workers, workers)
    return items[mine], tastes[mine]


def accuracy(trained: nn.Module) -> float:
    """Return the test accuracy (0 to 1), on new baskets."""
    items, tastes = baskets(7, 500)
    with evaluating(trained):
        return float((trained(items).argmax(1) == tastes).float().mean())


def sparse_adam(model: nn.Module, rate: float) -> list[torch.optim.Optimizer]:
    """Return what updates the rows of the embedding that have a gradient, and Adam for the rest."""
    assert isinstance(model, BasketModel)
    return [
        torch.optim.SparseAdam(model.embedding.parameters(), rate, eps=ADAM_EPS),
        torch.optim.Adam(model.head.parameters(), rate, eps=ADAM_EPS),
    ]


task = Task("wide embedding", BasketModel, batch, nn.functional.cross_entropy, accuracy, rate=1e-2, steps=60)
sparse_task = replace(
    task,
    name="wide embedding, sparse gradients",
    model=lambda: BasketModel(sparse=True),
    optimizers=sparse_adam,
)

if __name__ == "__main__":
    main(task, sparse_task)
