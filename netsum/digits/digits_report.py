"""The demo's results: a document for JSON, and the table of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from rich.console import Group
from rich.text import Text

from host_agent.words import plural
from netsum.digits.dataset import Images
from netsum.digits.model import Floats, Perceptron
from netsum.digits.task import DigitsTask
from netsum.digits.training import TrainingOutcome
from netsum.terminal import ProgressRows

_ROWS: Final = {
    "accuracy": ("test accuracy", "{:.2%}"),
    "loss": ("final loss", "{:.6f}"),
    "loss_difference": ("max loss difference", "{:.1e}"),
    "same_bits": ("workers bit-identical", ""),
    "sha256": ("SHA-256 of parameters", "{:.12}…"),
    "elements_per_s": ("gradient elements/s", "{:,.0f}"),
    "packets": ("packets to the switch", "{:,}"),
    "chunks": ("chunks summed", "{:,}"),
    "retransmissions": ("retransmissions", "{:,}"),
    "seconds": ("seconds", "{:.1f}"),
    "same_bits_as_loss_free": ("same bits as loss-free", ""),
}
"""Names and formats of results, by their keys; those without a format are yes or no."""


@dataclass(frozen=True)
class Reference:
    """Result of training on the same batches in one process."""

    losses: list[float]  # Mean loss of each step's batch.
    parameters: Floats  # At the end, shape (size,).
    seconds: float


def results(
    task: DigitsTask,
    test_images: Images,
    reference: Reference,
    outcomes: Mapping[float, TrainingOutcome],
) -> dict[str, Any]:
    """Return the results of the runs and the reference, for JSON.

    `test_images`: images outside the training set. `outcomes`: runs by the percentage of packets dropped each way; the first one
    is without loss.
    """
    baseline = outcomes[0.0]
    runs = []
    for drop_percent, each in outcomes.items():
        run = {"drop_percent": drop_percent, **_run(task, test_images, reference, each)}
        if drop_percent:
            run["same_bits_as_loss_free"] = each.digests == baseline.digests
        runs.append(run)
    return {
        "workers": task.workers,
        "steps": task.steps,
        "parameters": Perceptron(task.widths).size,
        "lanes": task.lanes,
        "same_bits": len({digest for each in outcomes.values() for digest in each.digests}) == 1,
        "one_process": {
            "accuracy": _accuracy(task, test_images, reference.parameters),
            "loss": reference.losses[-1],
            "seconds": reference.seconds,
        },
        "runs": runs,
    }


def table(found: Mapping[str, Any]) -> Group:
    """Lay out results as columns."""
    runs, alone = found["runs"], found["one_process"]
    headings = (
        f"{each['drop_percent']:g} %\nlost each way" if each["drop_percent"] else "loss-free" for each in runs
    )
    rows = ProgressRows("", ">one process", *(f">{each}" for each in headings))
    for key, (name, form) in _ROWS.items():
        if any(key in each for each in runs):
            rows.add(name, *(_cell(each[key], form) if key in each else "" for each in (alone, *runs)))
    title = (
        f"{plural(found['workers'], 'worker')}, {plural(found['steps'], 'step')}, {found['parameters']:,} parameters, "
        f"{found['lanes']} lanes a packet"
    )
    caption = "max loss difference: largest difference in loss at any step from training in one process"
    return Group(Text(title, style="italic"), rows, Text(caption, style="dim"))


def _cell(value: Any, form: str) -> str:
    if value is None:
        return "?"
    return form.format(value) if form else "yes" if value else "NO"


def _run(
    task: DigitsTask, test_images: Images, reference: Reference, outcome: TrainingOutcome
) -> dict[str, Any]:
    elements = Perceptron(task.widths).size * task.steps
    return {
        "accuracy": _accuracy(task, test_images, outcome.parameters),
        "loss": outcome.losses[-1],
        "loss_difference": float(np.abs(np.array(outcome.losses) - np.array(reference.losses)).max()),
        "same_bits": len(set(outcome.digests)) == 1,
        "sha256": outcome.digests[0],
        "elements_per_s": elements / outcome.reduce_seconds,
        "packets": sum(one["packets_sent"] for one in outcome.statistics),
        "chunks": outcome.counters.get("results"),
        "retransmissions": sum(one["retransmissions"] for one in outcome.statistics),
        "seconds": outcome.seconds,
    }


def _accuracy(task: DigitsTask, test_images: Images, parameters: Floats) -> float:
    return float(Perceptron(task.widths).accuracy(parameters, test_images.pixels, test_images.digits))
