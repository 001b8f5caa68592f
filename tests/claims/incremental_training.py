"""Incremental training: resolution and depth grow, and parameters are kept; beside training at full size from the start.

torchrun --nproc-per-node 2 -m tests.claims.incremental_training --backend netsum
torchrun --nproc-per-node 2 -m tests.claims.incremental_training --backend gloo

Handwritten digits are enlarged to 32 by 32 pixels, with noise. The network has convolutions and means over parts of the image, so
that it takes images of any size. It begins with one block on 8 by 8 pixels. A new block adds nothing at first (its last layer is
zero), so that growing does not change the network's output.

T. Chen, I. Goodfellow, J. Shlens, "Net2Net: Accelerating Learning via Knowledge Transfer", ICLR 2016, arXiv:1511.05641 (growing
without changing the function); R. Istrate et al., "Incremental Training of Deep Convolutional Neural Networks", 2018,
arXiv:1803.10232 (growing depth while training).
"""

import argparse
import os
import time
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import Tensor, nn

import netsum

SIDE, PARTS, CHANNELS, BATCH, TEST_IMAGES = 32, 4, 16, 16, 360
NOISE = 0.3
LOOK_EVERY = 10
INCREMENTAL = ((8, 1, 0.3), (16, 2, 0.3), (32, 3, 0.4))
FULL = ((32, 3, 1.0),)  # Stages: pixels of a side, blocks, share of the steps.


@dataclass
class Look:
    """The network at one moment: steps made, processor seconds that rank 0 spent on them, and accuracy at full resolution."""

    step: int
    side: int
    seconds: float
    accuracy: float


class Block(nn.Module):
    """Adds to its input what two convolutions make of it; at first that is zero."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.last = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the sum."""
        return inputs + self.last(self.first(inputs).relu())


class Classifier(nn.Module):
    """Takes images (n, 1, side, side) of any side."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, CHANNELS, 5, padding=2)
        self.blocks = nn.Sequential()
        self.head = nn.Sequential(nn.Linear(PARTS * PARTS * CHANNELS, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, images: Tensor) -> Tensor:
        """Return scores (n, 10)."""
        features = self.blocks(self.stem(images).relu())
        return self.head(nn.functional.adaptive_avg_pool2d(features, PARTS).flatten(1))


class Pictures:
    """Digits of 32 by 32 pixels with noise."""

    def __init__(self) -> None:
        bundle = load_digits()
        order = torch.randperm(len(bundle.target), generator=torch.Generator().manual_seed(0))
        images = torch.from_numpy(bundle.images).float().div(16)[order, None]
        self.images = nn.functional.interpolate(images, size=SIDE, mode="bilinear")
        self.digits = torch.from_numpy(bundle.target).long()[order]
        self.test = self.draw(torch.arange(TEST_IMAGES), torch.Generator().manual_seed(0), SIDE)

    def draw(self, rows: Tensor, generator: torch.Generator, side: int) -> tuple[Tensor, Tensor]:
        """Return images (rows, 1, side, side) and their digits."""
        images = self.images[rows]
        images = images + NOISE * torch.randn(images.shape, generator=generator)
        return nn.functional.avg_pool2d(images, SIDE // side), self.digits[rows]


def main() -> None:
    """Train both ways, and print when each reaches which accuracy."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", choices=["netsum", "gloo"], default="netsum")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if "RANK" not in os.environ:
        parser.error("start it with torchrun --nproc-per-node 2")
    torch.set_num_threads(1)
    if options.backend == "netsum":
        import netsum.torch  # noqa: F401  # PyTorch does this by itself, unless TORCH_DEVICE_BACKEND_AUTOLOAD=0
    dist.init_process_group(options.backend)
    for name, stages in (("incremental", INCREMENTAL), ("full size from the start", FULL)):
        looks = train(stages, options.steps, dist.get_rank(), options.seed)
        if dist.get_rank() == 0:
            show(name, looks)
    dist.destroy_process_group()


def train(
    stages: tuple[tuple[int, int, float], ...], steps: int, rank: int, seed: int, group: Any = None
) -> list[Look]:
    """Train in stages with all ranks of a group, synchronously; returns the looks at rank 0.

    Parameters
    ----------
    stages
        Pixels of a side, blocks, share of the steps.
    group : ProcessGroup, optional
        The default group if None.
    """
    pictures = Pictures()
    torch.manual_seed(seed)
    model = Classifier()
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    looks: list[Look] = []
    done, seconds = 0, 0.0
    for side, blocks, share in stages:
        while len(model.blocks) < blocks:
            model.blocks.append(Block())
        # The parameters of the blocks so far go on as they are; the optimizer begins anew.
        optimizer = torch.optim.Adam(model.parameters(), 4e-3)
        with netsum.strategy("synchronous", model, optimizer, group=group) as s:
            for _ in range(round(share * steps)):
                rows = torch.randint(TEST_IMAGES, len(pictures.digits), (BATCH,), generator=generator)
                images, digits = pictures.draw(rows, generator, side)
                begun = time.thread_time()
                with s.step():
                    nn.functional.cross_entropy(model(images), digits).backward()
                seconds += time.thread_time() - begun
                done += 1
                if rank == 0 and done % LOOK_EVERY == 0:
                    looks.append(Look(done, side, seconds, accuracy(model, pictures)))
    return looks


@torch.no_grad()
def accuracy(model: nn.Module, pictures: Pictures) -> float:
    """Return the share of test images, at full resolution, that the network gets right."""
    images, digits = pictures.test
    return float((model(images).argmax(1) == digits).float().mean())


def show(name: str, looks: list[Look]) -> None:
    """Print a training."""
    print(name)
    every = max(1, len(looks) // 10)
    for look in looks[every - 1 :: every]:
        print(
            f"  step {look.step:4}  {look.side:2} x {look.side:<2}  {look.seconds:6.2f} s of rank 0's processor  "
            f"{look.accuracy:.1%}"
        )


if __name__ == "__main__":
    main()
