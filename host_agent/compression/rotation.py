"""Random rotations, which spread a tensor's energy over its coordinates: the Hadamard transform's, and uniform ones."""

from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from netsum_common.compiled import compiled

GRID: Final = 2.0**-20  # Entries of a uniform rotation are multiples of it.


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


def uniform_rotation(size: int, generator: torch.Generator) -> Tensor:
    """Return an orthogonal matrix that is uniformly distributed, as the Hadamard transform with random signs is not.

    The factor Q of a normal matrix whose R has a positive diagonal (Mezzadri, Notices of the AMS 54, 2007). Its entries are
    rounded to multiples of `GRID`, so that a product with a matrix of such multiples is exact in float64 as long as its sums stay
    below 2^53 steps: it has the same bits at all workers, whatever order their libraries add in.

    The result: on the generator's device.
    """
    normals = torch.randn(size, size, generator=generator, device=generator.device)
    factor = normals.to("cpu", torch.float64).numpy().copy()
    make_orthonormal(factor, np.empty(size))
    return on_grid(torch.from_numpy(factor)).to(generator.device)


def on_grid(values: Tensor, steps: float = 1 / GRID) -> Tensor:
    """Return values as float64, rounded to multiples of 1 / `steps`."""
    return (values.to(torch.float64) * steps).round() / steps


@compiled
def make_orthonormal(columns: npt.NDArray[np.float64], along: npt.NDArray[np.float64]) -> None:
    """Replace a matrix by its factor Q: Gram-Schmidt, modified. Sums have one order, unlike LAPACK's. `along` is scratch."""
    size = columns.shape[0]
    for done in range(size):
        energy = 0.0
        for row in range(size):
            energy += columns[row, done] * columns[row, done]
        for row in range(size):
            columns[row, done] /= np.sqrt(energy)
        along[:] = 0.0
        for row in range(size):
            for other in range(done + 1, size):
                along[other] += columns[row, done] * columns[row, other]
        for row in range(size):
            for other in range(done + 1, size):
                columns[row, other] -= columns[row, done] * along[other]


def _signs(vector: Tensor, generator: torch.Generator) -> Tensor:
    bits = torch.randint(0, 2, vector.shape, generator=generator, device=vector.device, dtype=torch.int8)
    return (2 * bits - 1).to(vector.dtype)
