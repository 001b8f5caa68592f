"""3LC: ternary values with a sparsity multiplier, five to a byte, runs of zeros shortened."""

from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from host_agent.compression.compressor import Compressor, Context, Payload, Summability

_PER_BYTE = 5
_ZERO_BYTE = 121  # Five zeros: each ternary value is sent as 0, 1 or 2, and 1 + 3 + 9 + 27 + 81 = 121.
_FIRST_RUN = 243  # Bytes from here on stand for runs of 2 to 14 zero bytes.
_LONGEST_RUN = 14


class ThreeLC(Compressor):
    """Rounds x / M to −1, 0 or 1 with M = s · max |x|; meant for memory ``residual``.

    `sparsity`: s, from 1 (most exact) to below 2 (most zeros).
    """

    name = "3lc"
    family = "hybrid"
    source = "Lim, Andersen, Kaminsky, MLSys 2019, sections 3.1 to 3.3"
    summability = Summability.NONE
    unbiased = False

    def __init__(self, sparsity: Annotated[float, "[1, 2)"] = 1.0) -> None:
        super().__init__()
        self.sparsity = sparsity

    def delta(self, elements: int, workers: int = 1) -> float | None:
        """With s = 1 the largest coordinate is exact, and no error is larger than its value."""
        return 1.0 / max(1, elements) if self.sparsity == 1 else None

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        flat = tensor.reshape(-1)
        scale = self.sparsity * flat.abs().amax()
        ternary = torch.where(scale > 0, (flat / scale).round(), 0.0).to(torch.int32).clamp_(-1, 1) + 1
        rows = torch.nn.functional.pad(ternary, (0, -flat.numel() % _PER_BYTE), value=1).view(-1, _PER_BYTE)
        powers = torch.tensor([81, 27, 9, 3, 1], dtype=torch.int32, device=flat.device)
        coded = (rows * powers).sum(dim=1).to(torch.uint8)
        return scale.view(1), _shorten(coded)

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        scale, shortened = payload
        coded = _lengthen(shortened).to(torch.int32)
        powers = torch.tensor([81, 27, 9, 3, 1], dtype=torch.int32, device=coded.device)
        ternary = (coded[:, None] // powers) % 3 - 1
        return (ternary.view(-1)[: context.elements] * scale).view(context.shape)


def _shorten(coded: Tensor) -> Tensor:
    """Replace runs of 2 to 14 zero bytes by one byte each."""
    data = coded.cpu().numpy()
    zero = data == _ZERO_BYTE
    edges = np.flatnonzero(np.diff(np.concatenate(([False], zero, [False])).astype(np.int8)))
    starts, stops = edges[::2], edges[1::2]
    # Each run becomes full pieces of the longest length and one rest.
    keep = np.ones(data.size, dtype=bool)
    out = data.copy()
    lengths = stops - starts
    pieces = -(-lengths // _LONGEST_RUN)
    number = np.repeat(np.arange(starts.size), pieces)
    within = np.arange(number.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    begin = starts[number] + within * _LONGEST_RUN
    size = np.minimum(stops[number] - begin, _LONGEST_RUN)
    keep[zero] = False
    keep[begin] = True
    out[begin] = np.where(size == 1, _ZERO_BYTE, _FIRST_RUN + size - 2)
    return torch.from_numpy(out[keep]).to(coded.device)


def _lengthen(shortened: Tensor) -> Tensor:
    run = shortened.to(torch.int64) - _FIRST_RUN + 2
    is_run = shortened >= _FIRST_RUN
    repeats = torch.where(is_run, run, 1)
    values = torch.where(is_run, torch.full_like(shortened, _ZERO_BYTE), shortened)
    return values.repeat_interleave(repeats)
