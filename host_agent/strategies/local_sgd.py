"""Local SGD and post-local SGD: models are averaged every H steps."""

from typing import Annotated, Any

from host_agent.compression.compressor import COMPARISON
from host_agent.options import Count
from host_agent.strategies.diloco import DiLoCo


class LocalSGD(DiLoCo):
    """Let each worker take `sync_every` steps of its own, then average the models: DiLoCo with a plain outer step.

    With `after` > 0 it is post-local SGD: the gradients of the first `after` steps are averaged step by step.

    References
    ----------
    S. U. Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019, arXiv:1805.09767.
    T. Lin, S. U. Stich, K. K. Patel, M. Jaggi, "Don't Use Large Mini-Batches, Use Local SGD", ICLR 2020, arXiv:1808.07217.
    """

    name = "local-sgd"
    summary = "average the models every H steps; before that, for some steps, the gradients"
    source = "Stich 2019; post-local: Lin et al. 2020"
    use = COMPARISON
    cost = "d / H"

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        *,
        sync_every: Count = 8,
        outer_rate: Annotated[float, "(0, ∞)"] = 1.0,
        outer_momentum: Annotated[float, "[0, 1)"] = 0.0,
        **common: Any,
    ) -> None:
        common |= {"sync_every": sync_every, "outer_rate": outer_rate, "outer_momentum": outer_momentum}
        super().__init__(model, optimizer, **common)
