"""The demo's table."""

from dataclasses import dataclass

import numpy as np
from rich.console import Group
from rich.text import Text

from host_agent.words import plural
from netsum.digits.dataset import Images
from netsum.digits.model import Floats, Perceptron
from netsum.digits.task import DigitsTask
from netsum.digits.training import TrainingOutcome
from netsum.terminal import ProgressRows


@dataclass(frozen=True)
class Reference:
    """Result of training on the same batches in one process."""

    losses: list[float]  # Mean loss of each step's batch.
    parameters: Floats  # At the end, shape (size,).
    seconds: float


def same_bits(outcome: TrainingOutcome) -> bool:
    """Return whether all workers ended with the same parameters, bit for bit."""
    return len(set(outcome.digests)) == 1


def table(
    task: DigitsTask,
    test_images: Images,
    reference: Reference,
    outcomes: dict[str, TrainingOutcome],
) -> Group:
    """Lay out the runs and the reference as columns.

    `test_images`: images outside the training set. `outcomes`: runs by heading; the first one is without loss.
    """
    columns = [_column(task, test_images, reference, outcome) for outcome in outcomes.values()]
    baseline = next(iter(outcomes.values()))
    bits = ["", *(_yes(outcome.digests == baseline.digests) for outcome in list(outcomes.values())[1:])]
    size = Perceptron(task.widths).size
    rows = ProgressRows("", ">one process", *(f">{_heading(each)}" for each in outcomes))
    for row, alone in _reference_column(task, test_images, reference).items():
        rows.add(row, alone, *(column[row] for column in columns))
    if len(outcomes) > 1:
        rows.add("same bits as loss-free", "", *bits)
    title = f"{plural(task.workers, 'worker')}, {plural(task.steps, 'step')}, {size:,} parameters, {task.lanes} lanes a packet"
    caption = "max loss difference: largest difference in loss at any step from training in one process"
    return Group(Text(title, style="italic"), rows, Text(caption, style="dim"))


def _heading(run: str) -> str:
    """Break the heading of a run where it is long."""
    return run.replace(" lost", "\nlost")


def _reference_column(task: DigitsTask, test_images: Images, reference: Reference) -> dict[str, str]:
    return {
        "test accuracy": _accuracy(task, test_images, reference.parameters),
        "final loss": f"{reference.losses[-1]:.6f}",
        "max loss difference": "",
        "workers bit-identical": "",
        "SHA-256 of parameters": "",
        "gradient elements/s": "",
        "packets to the switch": "",
        "chunks summed": "",
        "retransmissions": "",
        "seconds": f"{reference.seconds:.1f}",
    }


def _column(
    task: DigitsTask, test_images: Images, reference: Reference, outcome: TrainingOutcome
) -> dict[str, str]:
    elements = Perceptron(task.widths).size * task.steps
    difference = np.abs(np.array(outcome.losses) - np.array(reference.losses)).max()
    return {
        "test accuracy": _accuracy(task, test_images, outcome.parameters),
        "final loss": f"{outcome.losses[-1]:.6f}",
        "max loss difference": f"{difference:.1e}",
        "workers bit-identical": _yes(same_bits(outcome)),
        "SHA-256 of parameters": f"{outcome.digests[0][:12]}…",
        "gradient elements/s": f"{elements / outcome.reduce_seconds:,.0f}",
        "packets to the switch": f"{sum(one['packets_sent'] for one in outcome.statistics):,}",
        "chunks summed": f"{outcome.counters['results']:,}" if outcome.counters else "?",
        "retransmissions": f"{sum(one['retransmissions'] for one in outcome.statistics):,}",
        "seconds": f"{outcome.seconds:.1f}",
    }


def _accuracy(task: DigitsTask, test_images: Images, parameters: Floats) -> str:
    accuracy = Perceptron(task.widths).accuracy(parameters, test_images.pixels, test_images.digits)
    return f"{accuracy:.2%}"


def _yes(holds: bool) -> str:
    return "yes" if holds else "NO"
