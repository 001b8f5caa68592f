"""Points of `python -m tests.strategies`: tasks, and strategies with the options for the comparison."""

from dataclasses import dataclass, field
from typing import Any, Final

from host_agent.errors import ArgumentError
from netsum.option_values import rtt_us_of, whole_numbers
from tests.strategies.options import StrategiesOptions
from tests.virtual.timeline import Event


@dataclass(frozen=True)
class TrainingTask:
    """Something to train on handwritten digits."""

    hidden: int  # Width of the hidden layer; 0: softmax regression, which is convex.
    # Whether each worker has the images of few digits only (two shards of those in the order of digits).
    skewed: bool
    rate: float  # Learning rate of plain SGD, the same under every strategy.
    target: float  # Accuracy whose time is compared.


TASKS: Final = {
    "digits": TrainingTask(64, False, 0.2, 0.93),
    "skewed": TrainingTask(64, True, 0.2, 0.85),
    "softmax": TrainingTask(0, False, 0.1, 0.90),
}


@dataclass(frozen=True)
class Recipe:
    """A strategy as it is compared."""

    strategy: str
    options: dict[str, Any] = field(default_factory=dict)
    convex: bool = False


RECIPES: Final = {
    "synchronous": Recipe("synchronous"),
    "backup": Recipe("backup"),
    "large-batch": Recipe("synchronous", {"scale_rate": True, "warmup_steps": 20}),
    "local-sgd": Recipe("local-sgd", {"sync_every": 8}),
    "post-local": Recipe("local-sgd", {"sync_every": 16, "after": 40}),
    "hierarchical": Recipe("hierarchical", {"every": 4, "between": 4}),
    "diloco": Recipe("diloco", {"sync_every": 16, "outer_momentum": 0.5}),
    "diloco+4bit": Recipe(
        "diloco",
        {"sync_every": 16, "outer_momentum": 0.5, "should_quantize": True, "memory": "residual"},
    ),
    "fedavg": Recipe("fedavg"),
    "fedavg+top-k": Recipe("fedavg", {"compression": ("top-k", {"fraction": 0.05}), "memory": "residual"}),
    "dynamic": Recipe("dynamic-averaging", {"threshold": 0.3, "every": 4}),
    "codistillation": Recipe("codistillation", {"every": 20, "burn_in": 40}),
    "admm": Recipe("admm", {"penalty": 0.1, "every": 10}, convex=True),
    "downpour": Recipe("downpour"),
    "stale-sync": Recipe("stale-synchronous", {"bound": 3}),
    "easgd": Recipe("easgd", {"every": 4, "elasticity": 0.2}),
}
"""Strategies by the name in tables, with their options."""


@dataclass(frozen=True)
class StrategyPoint:
    """One training."""

    # task, recipe: keys of `TASKS` and `RECIPES`.
    task: str
    recipe: str
    workers: int  # Workers that train; a parameter server is one more.
    seed: int  # Seed of data, model and batches.
    steps: int
    step_us: int  # Computing time of a step, in microseconds.
    slowest: float = 1.0  # How many times longer the last worker computes.

    @property
    def file_name(self) -> str:
        """Name of the file of its result."""
        slowest = "" if self.slowest == 1 else f"slowest-{self.slowest:g}_"
        return (
            f"{self.task}_{self.recipe}_{self.workers}-workers_{self.steps}-steps_{self.step_us}-us_{slowest}"
            f"seed-{self.seed}.json.gz"
        )

    def __str__(self) -> str:
        return f"{self.task}, {self.recipe}, {self.workers} workers, seed {self.seed}"


@dataclass(frozen=True)
class Curve:
    """Result of a training, and all that is needed to compute its time on other links."""

    # steps, accuracies: at each look: steps made by the first worker, and the share of right answers.
    steps: list[int]
    accuracies: list[float]
    # sent_bytes, received_bytes: of a worker, the mean.
    sent_bytes: float
    received_bytes: float
    busiest_bytes: int  # Sent or received by the host that has most.
    synchronizations: int
    hosts: int  # Workers, and the parameter server if there is one.
    # As `tests.virtual.timeline.replay` takes them; marks are the numbers of looks.
    events: list[list[Event]]


def points_of(options: StrategiesOptions) -> list[StrategyPoint]:
    """Return all points, seed by seed; a strategy for convex tasks is left out of the others.

    Raises ArgumentError if a name is unknown, or a number of workers is not even and at least 2.
    """
    tasks, recipes = options.tasks.split(","), (options.strategies or ",".join(RECIPES)).split(",")
    workers = whole_numbers(options.workers, "--workers", "4,8")
    step_us = round(rtt_us_of(options.step_time, "--step-time"))
    for kind, names, known in (("task", tasks, list(TASKS)), ("strategy", recipes, list(RECIPES))):
        if unknown := [name for name in names if name not in known]:
            raise ArgumentError(f"unknown {kind} {unknown[0]!r}: expected one of {', '.join(known)}")
    for count in workers:
        if not 2 <= count <= 31 or count % 2:
            raise ArgumentError(
                f"expected even numbers of workers from 2 to 30 (a parameter server comes on top, and a group has at most "
                f"32), not {count}"
            )
    return [
        StrategyPoint(task, recipe, count, seed, options.steps, step_us, options.slowest)
        for seed in range(options.seeds)
        for task in tasks
        for count in workers
        for recipe in recipes
        if TASKS[task].hidden == 0 or not RECIPES[recipe].convex
    ]
