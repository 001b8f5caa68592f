"""SparseLoCo: DiLoCo whose outer gradients are a few coordinates of 2 bits, with error feedback in place of outer momentum."""

from typing import Annotated, Any, Literal

from host_agent.compression.compressor import Compressor
from host_agent.compression.registry import make_memory
from host_agent.options import Count, Fraction
from host_agent.strategies.diloco import DiLoCo


class SparseLoCo(DiLoCo):
    """Take `sync_every` local steps, then a plain outer step with the largest coordinates of the models' changes.

    The rest of a change is added to the next one. ``compression="agreed-chunk-top-k"`` sends values at positions that workers
    take turns to choose, so that the switch adds them; by default each worker chooses its own, and all payloads are gathered.

    `compression`: see ``netsum compression list``. `memory`: error feedback. `decay`: of the rest, before the change is added.

    References
    ----------
    A. Sarfi et al., "Communication Efficient LLM Pre-training with SparseLoCo", arXiv:2508.15706, 2025, algorithm 1.
    """

    name = "sparse-loco"
    summary = "many local steps, then a plain outer step on few coordinates of 2 bits of the models' changes"
    source = "Sarfi et al. 2025"
    use = "the slowest links, up to about ten workers; more with agreed-chunk-top-k"
    cost = "d / (141 H)"

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        *,
        sync_every: Count = 30,
        outer_rate: Annotated[float, "(0, ∞)"] = 1.0,
        outer_momentum: Annotated[float, "[0, 1)"] = 0.0,
        decay: Fraction = 0.95,
        compression: str | Compressor = "chunk-top-k",
        memory: Literal["residual"] = "residual",
        **common: Any,
    ) -> None:
        common |= {"compression": compression, "memory": make_memory(memory, decay=decay)}
        common |= {"sync_every": sync_every, "outer_rate": outer_rate, "outer_momentum": outer_momentum}
        super().__init__(model, optimizer, **common)
