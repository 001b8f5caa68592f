"""ResNet-18 (He et al., "Deep Residual Learning for Image Recognition", 2015) with 11.2 million parameters, on made-up images.

Each class is an image of low frequencies; its examples are that image and noise.
"""

from itertools import pairwise

import torch
from harness import Task, evaluating, main
from torch import Tensor, nn

CLASSES, SIDE, BATCH = 10, 32, 16

patterns = nn.functional.interpolate(
    torch.randn(CLASSES, 3, 4, 4, generator=torch.Generator().manual_seed(1)), SIDE, mode="bilinear"
)


class Block(nn.Module):
    """Two convolutions, added to their input."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.way = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = (
            nn.Identity()
            if stride == 1 and inputs == outputs
            else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return the sum of both, with negative values set to zero."""
        return torch.relu(self.way(images) + self.shortcut(images))


def model() -> nn.Module:
    """Make the network, for images (n, 3, 32, 32)."""
    widths = (64, 64, 64, 128, 128, 256, 256, 512, 512)
    blocks = (Block(inputs, outputs, 1 + (outputs > inputs)) for inputs, outputs in pairwise(widths))
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(512, CLASSES),
    )


def images(seed: int, count: int) -> tuple[Tensor, Tensor]:
    """Make images (count, 3, 32, 32) and their classes (count,)."""
    generator = torch.Generator().manual_seed(seed)
    classes = torch.randint(CLASSES, (count,), generator=generator)
    return patterns[classes] + torch.randn(count, 3, SIDE, SIDE, generator=generator), classes


def batch(step: int, worker: int, workers: int) -> tuple[Tensor, Tensor]:
    """Make a step's images; every worker takes its part of them."""
    inputs, classes = images(1000 + step, BATCH)
    mine = slice(worker, BATCH // workers * workers, workers)
    return inputs[mine], classes[mine]


def accuracy(trained: nn.Module) -> float:
    """Return the test accuracy (0 to 1), on new images."""
    inputs, classes = images(7, 200)
    with evaluating(trained):
        return float((trained(inputs).argmax(1) == classes).float().mean())


task = Task("ResNet-18", model, batch, nn.functional.cross_entropy, accuracy, rate=1e-3, steps=60)

if __name__ == "__main__":
    main(task)
