"""Strategies of distributed training: what workers send one another, how often, and to which workers.

Each strategy is a file. All communication goes through torch.distributed, so a strategy runs over netsum, Gloo or any other
back end. `strategy` makes one by name; see ``docs/strategies.md``.

Needs PyTorch.
"""

# The modules of all strategies, which enter them in `STRATEGIES`.
from host_agent.strategies import (  # noqa: F401
    admm,
    asynchronous,
    codistillation,
    decoupled,
    dion,
    dynamic,
    fedavg,
    hierarchical,
    local_sgd,
    muon,
    sparse_loco,
    synchronous,
)
from host_agent.strategies.base import STRATEGIES, Strategy
from host_agent.strategies.registry import strategy

__all__ = ["STRATEGIES", "Strategy", "strategy"]
