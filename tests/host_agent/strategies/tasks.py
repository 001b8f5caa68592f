"""Small tasks for strategies: linear models whose optimum is known, and digits."""

from typing import Any

import torch
from torch import Tensor, nn

import netsum

FEATURES = 6


def linear_model(seed: int = 1) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Linear(FEATURES, 1, dtype=torch.float64)


def rows(worker: int, count: int = 8, noise: float = 0.1) -> tuple[Tensor, Tensor]:
    """Inputs and targets of one worker; the same solution underlies all workers' rows."""
    generator = torch.Generator().manual_seed(100 + worker)
    inputs = torch.randn(count, FEATURES, generator=generator, dtype=torch.float64)
    solution = torch.arange(1.0, FEATURES + 1, dtype=torch.float64)
    targets = inputs @ solution + noise * torch.randn(count, generator=generator, dtype=torch.float64)
    return inputs, targets[:, None]


def all_rows(world: int, count: int = 8) -> tuple[Tensor, Tensor]:
    inputs, targets = zip(*(rows(each, count) for each in range(world)), strict=True)
    return torch.cat(inputs), torch.cat(targets)


def mean_square(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.mse_loss(model(inputs), targets)


def train(
    name: str,
    worker: int,
    steps: int,
    rate: float = 0.05,
    momentum: float = 0.0,
    count: int = 8,
    **options: Any,
) -> Any:
    """Train a linear model on one worker's rows; return its strategy, which has the model."""
    torch.set_num_threads(1)
    # Every worker begins with another model, which the strategy must correct.
    model = linear_model(seed=worker + 1)
    optimizer = torch.optim.SGD(model.parameters(), rate, momentum=momentum)
    inputs, targets = rows(worker, count)
    with netsum.strategy(name, model, optimizer, **options) as s:
        for _ in range(steps):
            with s.step():
                mean_square(model, inputs, targets).backward()
    return s


def summary(s: Any) -> dict[str, Any]:
    return {"model": s.vector().tolist(), "steps": s.steps, **s.traffic.as_dict()}
