"""One network over end devices, an edge and a cloud, with an exit at each; the devices' outputs are added in the network.

torchrun --nproc-per-node 6 -m tests.claims.ddnn_network --backend netsum    # rank 0: cloud, 1: edge, the others: devices
torchrun --nproc-per-node 6 -m tests.claims.ddnn_network --backend gloo

Each device sees one corner of a handwritten digit. The devices' class scores are averaged, and their features put side by side,
by one all-reduce of devices and edge. A sample leaves at the first exit that is sure of it; only the others go upward. All
sections are trained together, on the sum of the exits' losses.

S. Teerapittayanon, B. McDanel, H. T. Kung, "Distributed Deep Neural Networks over the Cloud, the Edge and End Devices",
ICDCS 2017, sections III and IV. There the features are binary and the devices see an object from six sides.
"""

import argparse
import math
import os
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import Tensor, nn

CLOUD, EDGE, FIRST_DEVICE = 0, 1, 2
CLASSES, WINDOW, FEATURES, EDGE_FEATURES = 10, 5, 16, 32
BATCH, TEST_IMAGES = 64, 360
THRESHOLDS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
FLOAT_BYTES = 4
CORNERS = ((0, 0), (0, 3), (3, 0), (3, 3))


@dataclass
class Passage:
    """Result of a pass over the test images at one threshold: shares of samples, and payload upward in bytes a sample."""

    threshold: float
    accuracy: float = 0.0
    leave: list[float] = field(default_factory=list)
    right: list[float] = field(default_factory=list)
    to_edge: float = 0.0
    to_cloud: float = 0.0


def main() -> None:
    """Train and evaluate; the cloud prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", choices=["netsum", "gloo"], default="netsum")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if "RANK" not in os.environ:
        parser.error("start it with torchrun --nproc-per-node 6")
    torch.set_num_threads(1)
    if options.backend == "netsum":
        import netsum.torch  # noqa: F401  # PyTorch does this by itself, unless TORCH_DEVICE_BACKEND_AUTOLOAD=0
    dist.init_process_group(options.backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    if size - FIRST_DEVICE not in (2, 4):
        parser.error(f"expected 4 or 6 processes: a cloud, an edge and 2 or 4 devices, not {size}")
    lower = dist.new_group(list(range(EDGE, size)))
    passages = run(rank, size, dist.group.WORLD, lower, options.steps, options.seed)
    if rank == CLOUD:
        show(passages)
    dist.barrier()
    dist.destroy_process_group()


def run(rank: int, size: int, world: Any, lower: Any, steps: int, seed: int = 0) -> list[Passage]:
    """Run one rank: train, then pass the test images at each threshold.

    Parameters
    ----------
    world, lower : ProcessGroup
        All ranks; devices and edge (not used at the cloud).

    Returns
    -------
    list of Passage
        At the cloud.
    """
    node = Node(rank, size, world, lower, seed)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        node.train(torch.randint(TEST_IMAGES, len(node.digits), (BATCH,), generator=generator))
    return [node.evaluate(threshold) for threshold in THRESHOLDS]


class Node:
    """A rank: its section of the network, and its messages to the neighbours."""

    def __init__(self, rank: int, size: int, world: Any, lower: Any, seed: int) -> None:
        self.rank, self.devices = rank, size - FIRST_DEVICE
        self.world, self.lower = world, lower
        bundle = load_digits()
        order = torch.randperm(len(bundle.target), generator=torch.Generator().manual_seed(0))
        images = torch.from_numpy(bundle.images).float().div(16)[order]
        self.digits = torch.from_numpy(bundle.target).long()[order]
        torch.manual_seed(1000 * seed + rank)
        if rank == CLOUD:
            self.body, inputs = nn.Sequential(nn.Linear(EDGE_FEATURES, 64), nn.ReLU()), 64
        elif rank == EDGE:
            whole = self.devices * FEATURES
            self.body, inputs = nn.Sequential(nn.Linear(whole, EDGE_FEATURES), nn.ReLU()), EDGE_FEATURES
        else:
            top, left = CORNERS[rank - FIRST_DEVICE]
            self.view = images[:, top : top + WINDOW, left : left + WINDOW].flatten(1)
            self.body, inputs = nn.Sequential(nn.Linear(WINDOW * WINDOW, FEATURES), nn.ReLU()), FEATURES
        self.exit = nn.Linear(inputs, CLASSES)
        self.optimizer = torch.optim.Adam([*self.body.parameters(), *self.exit.parameters()], 5e-3)

    @property
    def is_device(self) -> bool:
        """Whether it has a view of the images."""
        return self.rank >= FIRST_DEVICE

    def train(self, rows: Tensor) -> None:
        """Take a step together with all ranks, on the sum of the three exits' losses."""
        self.optimizer.zero_grad()
        digits = self.digits[rows]
        if self.rank == CLOUD:
            features = self._receive((len(rows), EDGE_FEATURES), EDGE).requires_grad_()
            nn.functional.cross_entropy(self.exit(self.body(features)), digits).backward()
            self._send(features.grad, EDGE)
        elif self.rank == EDGE:
            whole = self._features_of_all(None, len(rows)).requires_grad_()
            self._scores_of_all(None, len(rows))
            features = self.body(whole)
            self._send(features.detach(), CLOUD)
            loss = nn.functional.cross_entropy(self.exit(features), digits)
            torch.autograd.backward([loss, features], [None, self._receive(features.shape, CLOUD)])
            dist.broadcast(whole.grad, group=self.lower, group_src=0)
        else:
            features = self.body(self.view[rows])
            scores = self.exit(features)
            whole = self._features_of_all(features.detach(), len(rows))
            mean = self._scores_of_all(scores.detach(), len(rows)).requires_grad_()
            nn.functional.cross_entropy(mean, digits).backward()
            from_above = torch.empty_like(whole)
            dist.broadcast(from_above, group=self.lower, group_src=0)
            torch.autograd.backward(
                [scores, features], [mean.grad / self.devices, from_above[:, self._block]]
            )
        self.optimizer.step()

    @torch.no_grad()
    def evaluate(self, threshold: float) -> Passage:
        """Pass the test images upward until an exit is sure of them: its normalized entropy is at most the threshold."""
        digits, count = self.digits[:TEST_IMAGES], TEST_IMAGES
        found = Passage(threshold)
        if self.rank == CLOUD:
            predicted = self._receive(
                (count,), EDGE, torch.int64
            )  # The edge's answers; -1: its features follow.
            at = self._receive((count,), EDGE, torch.int64)  # The exit of each.
            left = (predicted < 0).nonzero()[:, 0]
            if len(left):
                predicted[left] = self.exit(
                    self.body(self._receive((len(left), EDGE_FEATURES), EDGE))
                ).argmax(1)
            right = predicted == digits
            found.accuracy = float(right.float().mean())
            for level in range(3):
                here = at == level
                found.leave.append(float(here.float().mean()))
                found.right.append(float(right[here].float().mean()) if here.any() else math.nan)
            upward = 1 - found.leave[0]
            found.to_edge = self.devices * FLOAT_BYTES * (CLASSES + FEATURES * upward)
            found.to_cloud = FLOAT_BYTES * EDGE_FEATURES * found.leave[2]
            return found
        features = self.body(self.view[:count]) if self.is_device else None
        scores = self._scores_of_all(None if features is None else self.exit(features), count)
        unsure = (entropy(scores) > threshold).nonzero()[:, 0]
        predicted, at = scores.argmax(1), torch.zeros(count, dtype=torch.int64)
        if len(unsure):
            # Only samples of which no device is sure travel.
            whole = self._features_of_all(None if features is None else features[unsure], len(unsure))
        if self.rank != EDGE:
            return found
        upward = torch.zeros(0, EDGE_FEATURES)
        if len(unsure):
            own = self.body(whole)
            scores = self.exit(own)
            still = entropy(scores) > threshold
            predicted[unsure], at[unsure] = scores.argmax(1), torch.where(still, 2, 1)
            predicted[unsure[still]], upward = -1, own[still]
        self._send(predicted, CLOUD)
        self._send(at, CLOUD)
        if len(upward):
            self._send(upward, CLOUD)
        return found

    @property
    def _block(self) -> slice:
        start = (self.rank - FIRST_DEVICE) * FEATURES
        return slice(start, start + FEATURES)

    def _scores_of_all(self, scores: Tensor | None, count: int) -> Tensor:
        """Return the mean of the devices' scores; the edge has none of its own."""
        total = torch.zeros(count, CLASSES) if scores is None else scores / self.devices
        dist.all_reduce(total, group=self.lower)
        return total

    def _features_of_all(self, features: Tensor | None, count: int) -> Tensor:
        """Return the devices' features side by side: a sum of blocks that do not overlap."""
        whole = torch.zeros(count, self.devices * FEATURES)
        if features is not None:
            whole[:, self._block] = features
        dist.all_reduce(whole, group=self.lower)
        return whole

    def _send(self, tensor: Tensor, to: int) -> None:
        dist.send(tensor.contiguous(), group=self.world, group_dst=to)

    def _receive(self, shape: Any, sender: int, dtype: torch.dtype = torch.float32) -> Tensor:
        tensor = torch.empty(tuple(shape), dtype=dtype)
        dist.irecv(tensor, group=self.world, group_src=sender).wait()
        return tensor


def entropy(scores: Tensor) -> Tensor:
    """Return the entropy of the probabilities of each row, as a share of the largest there can be."""
    logarithms = scores.log_softmax(1)
    return -(logarithms.exp() * logarithms).sum(1) / math.log(CLASSES)


def show(passages: list[Passage]) -> None:
    """Print the table."""
    print("                      leave at device,  right of these  bytes upward a sample")
    print("threshold  accuracy      edge, cloud                        edge  cloud")
    for each in passages:
        leave = "/".join(f"{share:4.0%}" for share in each.leave)
        right = "/".join("   -" if math.isnan(share) else f"{share:4.0%}" for share in each.right)
        print(
            f"{each.threshold:9.1f}  {each.accuracy:8.1%}   {leave:>14}   {right:>14}   {each.to_edge:8.0f}  {each.to_cloud:5.0f}"
        )


if __name__ == "__main__":
    main()
