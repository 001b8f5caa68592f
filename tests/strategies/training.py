"""A training of `python -m tests.strategies`: all workers in virtual time, on links that are replaced afterwards."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

import netsum
from host_agent.compression import make_compressor
from host_agent.strategies.parameter_server import ServedStrategy
from netsum.digits.dataset import Images, load_digits
from tests.strategies.points import RECIPES, TASKS, Curve, StrategyPoint, TrainingTask
from tests.virtual.group import run_workers

BATCH: Final = 16
_LOOKS: Final = 40  # How often the accuracy is taken.
_EPOCHS: Final = 1  # Epochs of a round of FedAvg.


@dataclass(frozen=True)
class Shards:
    """The digits, divided over workers. `parts`: images (n, 64) and digits (n,) of each worker."""

    parts: list[tuple[Tensor, Tensor]]
    test: tuple[Tensor, Tensor]  # Test samples, which no worker has.


def shards(workers: int, seed: int, *, skewed: bool) -> Shards:
    """Divide the digits over workers: evenly, or two shards each of the images in the order of digits.

    The second is how McMahan et al. (AISTATS 2017, section 3) divide MNIST.
    """
    train, test = load_digits(seed)
    order = train.digits.argsort(kind="stable") if skewed else np.arange(len(train))
    pieces = np.array_split(order, 2 * workers)
    # A worker has two shards that are not neighbours.
    dealt = np.random.default_rng(seed).permutation(2 * workers) if skewed else np.arange(2 * workers)
    own = [np.concatenate([pieces[dealt[2 * each]], pieces[dealt[2 * each + 1]]]) for each in range(workers)]
    return Shards([_tensors(train.select(each)) for each in own], _tensors(test))


def mlp(hidden: int) -> nn.Module:
    """Return a network with one hidden layer, or none, for 64 pixels and 10 digits."""
    if not hidden:
        return nn.Linear(64, 10)
    return nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def accuracy(model: nn.Module, test: tuple[Tensor, Tensor]) -> float:
    """Return the share of right answers."""
    with torch.no_grad():
        return float((model(test[0]).argmax(1) == test[1]).float().mean())


def train(point: StrategyPoint) -> Curve:
    """Run a training."""
    task, recipe = TASKS[point.task], RECIPES[point.recipe]
    data = shards(point.workers, point.seed, skewed=task.skewed)
    from host_agent.strategies import STRATEGIES

    served = int(issubclass(STRATEGIES[recipe.strategy], ServedStrategy))
    hosts = point.workers + served
    torch.manual_seed(point.seed)
    scratch = mlp(task.hidden)
    strategies: dict[int, Any] = {}
    looks: list[tuple[int, float]] = []
    every = max(1, point.steps // _LOOKS)

    def evaluate(world: Any, step: int) -> None:
        world.mark(len(looks))  # Others whose turn is at the same time go first.
        torch.nn.utils.vector_to_parameters(
            _consensus(strategies, recipe.strategy, served), scratch.parameters()
        )
        looks.append((step, accuracy(scratch, data.test)))

    def worker(rank: int, group: Any, world: Any) -> None:
        own = data.parts[rank - served] if rank >= served else data.parts[0]
        torch.manual_seed(1000 * point.seed + rank)
        model = mlp(task.hidden)
        options = _options(recipe.options)
        if recipe.strategy == "fedavg":
            options["samples"] = len(own[1])
        if recipe.strategy == "backup":
            communicator = group.communicator(point.workers - 1, point.seed)
            options |= {"communicator": communicator, "rounds": point.steps}
        s: Any = netsum.strategy(
            recipe.strategy, model, torch.optim.SGD(model.parameters(), task.rate), group=group, **options
        )
        strategies[rank] = s
        step_s = point.step_us / 1e6 * (point.slowest if rank == hosts - 1 else 1)
        with s:
            if served and s.serves:
                s.serve()
                return
            for step, (inputs, targets) in enumerate(_batches(s, task, own, point, rank)):
                if rank == served and step % every == 0:
                    evaluate(world, step)
                with s.step():
                    world.compute(step_s)
                    outputs = model(inputs)
                    s.loss(nn.functional.cross_entropy(outputs, targets), inputs, outputs).backward()
        if rank == served:
            evaluate(world, s.steps)

    _, world = run_workers(hosts, worker)
    traffic = [strategies[rank].traffic for rank in range(hosts)]
    workers = traffic[served:]
    return Curve(
        [step for step, _ in looks],
        [each for _, each in looks],
        sum(each.bytes_sent for each in workers) / len(workers),
        sum(each.bytes_received for each in workers) / len(workers),
        max(max(each.bytes_sent, each.bytes_received) for each in traffic),
        workers[0].synchronizations,
        hosts,
        world.events,
    )


def _batches(
    s: Any, task: TrainingTask, own: tuple[Tensor, Tensor], point: StrategyPoint, rank: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Iterate over a worker's batches: drawn at random, under FedAvg in epochs of rounds.

    They are as many for all workers, but with backup workers: one that is late computes fewer.
    """
    generator = torch.Generator().manual_seed(1000 * point.seed + rank)
    inputs, targets = own
    if s.name != "fedavg":
        for _ in s.training() if s.name == "backup" else range(point.steps):
            chosen = torch.randint(len(targets), (BATCH,), generator=generator)
            yield inputs[chosen], targets[chosen]
        return
    a_round = max(1, _EPOCHS * len(targets) // BATCH)
    for _ in s.rounds(-(-point.steps // a_round)):
        for chosen in torch.randperm(len(targets), generator=generator)[: a_round * BATCH].split(BATCH):
            yield inputs[chosen], targets[chosen]


def _consensus(strategies: dict[int, Any], name: str, served: int) -> Tensor:
    """Return the model that the training would end with now: the server's model, a worker's, the first group's, or the mean."""
    if served or name == "backup":  # Backup workers differ in nothing but how far they are.
        model: Tensor = strategies[0].vector()
        return model
    if name == "codistillation":
        size = strategies[0].workers // strategies[0].groups
        return torch.stack([strategies[rank].vector() for rank in range(size)]).mean(0)
    return torch.stack([each.vector() for each in strategies.values()]).mean(0)


def _options(written: dict[str, Any]) -> dict[str, Any]:
    made = dict(written)
    if "compression" in made:
        name, options = made["compression"]
        made["compression"] = make_compressor(name, **options)
    return made


def _tensors(images: Images) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(images.pixels), torch.from_numpy(images.digits)
