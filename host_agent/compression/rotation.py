"""Random rotations, which spread a tensor's energy over its coordinates, by the Hadamard transform."""

import torch
from torch import Tensor


def padded_length(elements: int) -> int:
    """Return the smallest power of two that holds this many elements."""
    return 1 << max(0, elements - 1).bit_length()


def hadamard(vector: Tensor) -> Tensor:
    """Return the orthonormal Walsh-Hadamard transform of a vector whose length is a power of two; its own inverse."""
    length = vector.numel()
    result = vector / length**0.5  # first, so that no partial sum exceeds the norm
    half = 1
    while half < length:
        pairs = result.view(-1, 2, half)
        result = torch.stack((pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]), dim=1).view(-1)
        half *= 2
    return result


def rotate(vector: Tensor, generator: torch.Generator) -> Tensor:
    """Pad with zeros to a power of two, flip random signs, transform. Same norm, and nearly normal coordinates."""
    padded = torch.zeros(padded_length(vector.numel()), dtype=vector.dtype, device=vector.device)
    padded[: vector.numel()] = vector
    return hadamard(padded * _signs(padded, generator))


def rotate_back(rotated: Tensor, elements: int, generator: torch.Generator) -> Tensor:
    """Undo `rotate`, with a generator in the same state."""
    return (hadamard(rotated) * _signs(rotated, generator))[:elements]


def _signs(vector: Tensor, generator: torch.Generator) -> Tensor:
    bits = torch.randint(0, 2, vector.shape, generator=generator, device=vector.device, dtype=torch.int8)
    return (2 * bits - 1).to(vector.dtype)
