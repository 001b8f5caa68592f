"""Low rank: PowerSGD's power iteration with a warm start."""

import math

import torch
from torch import Tensor

from host_agent.compression.compressor import Agreement, Compressor, Context, Payload, Summability
from host_agent.options import Count


def as_matrix(shape: torch.Size) -> tuple[int, int]:
    """Return rows and columns of a tensor as a matrix: its own first dimension, or nearly a square for one dimension."""
    elements = shape.numel()
    if len(shape) >= 2 and shape[0] > 0:
        return shape[0], elements // shape[0]
    rows = max(1, int(math.sqrt(elements)))
    while elements % rows:
        rows -= 1
    return rows, elements // max(1, rows)


class PowerSGD(Compressor):
    """Sends M Q, summed and orthogonalized, then Mᵀ P̂: one step of a power iteration, with Q kept for the next step.

    Tensors whose factors would not be smaller than they are are sent whole. Meant for memory ``residual``.

    `rank`: columns of the factors.
    """

    name = "powersgd"
    family = "low rank"
    source = "Vogels, Karimireddy, Jaggi, NeurIPS 2019, algorithm 1"
    use = "gradients of large matrices on slow links, with residual"
    summability = Summability.FLOATS
    unbiased = False

    def __init__(self, rank: Count = 2) -> None:
        super().__init__()
        self.rank = rank
        self._next_q: dict[str, Tensor] = {}

    def agree(self, tensor: Tensor, context: Context) -> Agreement | None:
        """Return M Q, to be summed."""
        if self._whole(context):
            return None
        rows, columns = as_matrix(context.shape)
        kept = self.state.get(context.key, {}).get("q")
        if kept is None or kept.shape[1] != self.rank:
            start = torch.randn(
                columns, self.rank, generator=context.shared_generator(), device=context.device
            )
            if kept is not None:  # The rank was changed: the directions found so far stay.
                start[:, : kept.shape[1]] = kept[:, : self.rank]
            kept = start
        return Agreement(tensor.reshape(rows, columns) @ kept, "sum")

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        """Return Mᵀ P̂."""
        if shared is None:
            return (tensor,)
        basis = torch.linalg.qr(shared).Q
        return (tensor.reshape(as_matrix(context.shape)).T @ basis,)

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        """Return P̂ Qᵀ."""
        if shared is None:
            return payload[0].clone()
        if count == context.workers:
            # The next step needs their directions alone, and lengths would multiply with the next tensor's.
            lengths = payload[0].abs().amax(dim=0)
            self._next_q[context.key] = torch.where(lengths > 0, payload[0] / lengths, 0.0)
        return (torch.linalg.qr(shared).Q @ payload[0].T).view(context.shape)

    def reduced(self, mean: Tensor, context: Context) -> None:
        """Keep Q, now that the step is known to be finite."""
        if context.key in self._next_q:
            self.state[context.key] = {"q": self._next_q.pop(context.key)}

    def _whole(self, context: Context) -> bool:
        rows, columns = as_matrix(context.shape)
        return (rows + columns) * self.rank >= rows * columns
