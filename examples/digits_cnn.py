"""A small convolutional network on the handwritten digits that netsum ships."""

from importlib.resources import files

import numpy as np
import torch
from harness import Task, evaluating, main
from torch import Tensor, nn

BATCH = 64
TEST_IMAGES = 360

with files("netsum.digits").joinpath("digits.npz").open("rb") as file, np.load(file) as bundle:
    images, digits = torch.from_numpy(bundle["pixels"]), torch.from_numpy(bundle["digits"])
order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(0))
images = images.float().div(16).reshape(-1, 1, 8, 8)[order]
digits = digits.long()[order]


def model() -> nn.Module:
    """Make the network."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def batch(step: int, worker: int, workers: int) -> tuple[Tensor, Tensor]:
    """Draw a step's images; every worker takes its part of them."""
    drawn = torch.randint(TEST_IMAGES, len(digits), (BATCH,), generator=torch.Generator().manual_seed(step))
    mine = drawn[worker : BATCH // workers * workers : workers]
    return images[mine], digits[mine]


def accuracy(trained: nn.Module) -> float:
    """Return the test accuracy (0 to 1)."""
    with evaluating(trained):
        predicted = trained(images[:TEST_IMAGES]).argmax(1)
    return float((predicted == digits[:TEST_IMAGES]).float().mean())


task = Task("digits CNN", model, batch, nn.functional.cross_entropy, accuracy, rate=1e-3, steps=150)

if __name__ == "__main__":
    main(task)
