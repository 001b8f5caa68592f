"""The demo: workers and a switch without loss, then the same with loss, then one process alone, then a table."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console, Group
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text
from threadpoolctl import threadpool_limits

from host_agent.wire.constants import UDP_PORT
from host_agent.words import plural
from netsum.compiling import await_compiled, compiling
from netsum.digits.dataset import load_digits
from netsum.digits.model import Perceptron
from netsum.digits.task import DigitsOptions, DigitsTask
from netsum.digits.training import OnStep, TrainingOutcome, train, train_alone
from netsum.programs import check_lanes, compiled_program
from netsum.star_service import star_service
from netsum.terminal import ProgressRows
from topologies.children import TestbedError
from topologies.hosts import SwitchTestbed
from topologies.loopback import LoopbackTestbed
from topologies.mininet_testbed import Bmv2Star, EmbeddedStar
from topologies.runs import run_folder
from topologies.topology import DEFAULT_MTU

EMBEDDED_TASK = DigitsTask()
BMV2_TASK = DigitsTask(lanes=64, steps=60, hidden=(64,), slots=32)
"""BMv2 forwards some thousand packets a second, and queues 64 a port."""

GLOBAL_BATCH = 128
FAILED_RUNS = Path("runs")  # Folder of the logs of a failed run.
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
class Demo:
    """A demonstration."""

    task: DigitsTask
    drop_percent: float  # Packets dropped each way in the second run; 0 leaves it out.
    # Makes the testbed of a run, which is not up yet: workers, UDP port, folder, drop_ppm.
    kind: type[LoopbackTestbed | EmbeddedStar | Bmv2Star]

    def testbed(self, folder: Path, drop_percent: float) -> AbstractContextManager[SwitchTestbed]:
        """Return the testbed, not up yet."""
        return self.kind(self.task.workers, UDP_PORT, folder, drop_ppm=round(drop_percent * 10_000))


def plan_demo(options: DigitsOptions) -> Demo:
    """Fill in what suits the switch; TestbedError if the machine lacks something that the switch or the testbed needs."""
    kind: Any = EmbeddedStar if options.mininet else LoopbackTestbed
    task = EMBEDDED_TASK
    if options.switch == "bmv2":
        kind, task = Bmv2Star, BMV2_TASK
    task = replace(
        task,
        workers=options.workers,
        lanes=options.lanes or task.lanes,
        steps=options.steps or task.steps,
        batch=GLOBAL_BATCH // options.workers,
    )
    lacking = None if kind is LoopbackTestbed else kind.lacking()
    if lacking is not None:
        raise TestbedError(f"{lacking}; `netsum run digits` runs the embedded switch on loopback without it")
    if kind is not LoopbackTestbed:
        check_lanes(task.lanes, DEFAULT_MTU, "Mininet")
    return Demo(task, options.drop_percent, kind)


def run_demo(demo: Demo, console: Console) -> dict[str, Any]:
    """Run a demonstration, print its table and return the results for JSON.

    Their `same_bits` is whether all workers of all runs ended with the same bits.
    """
    task = demo.task
    program = compiled_program(task.lanes)
    outcomes = {}
    with (
        run_folder(keep_on_error=FAILED_RUNS) as folder,
        compiling(folder) as compiler,
        _progress(console) as progress,
    ):
        for drop_percent in dict.fromkeys((0.0, demo.drop_percent)):
            heading = f"{drop_percent:g} % lost each way" if drop_percent else "loss-free"
            runs = folder / f"drop-{drop_percent:g}"
            runs.mkdir()
            with demo.testbed(runs, drop_percent) as testbed:
                row = progress.add_task(heading, total=task.steps, loss="compiling, once")
                with star_service(testbed, program, folder) as controller:
                    await_compiled(compiler)
                    progress.update(row, loss="starting workers")
                    outcomes[drop_percent] = train(testbed, task, controller, _show(progress, row))
        row = progress.add_task("one process alone", total=task.steps, loss="")
        with threadpool_limits(1):  # As the workers have; more are no faster on layers this small.
            alone = train_alone(task, _show(progress, row))
    found = _results(task, alone, outcomes)
    console.print(_table(found))
    return found


def _show(progress: Progress, row: TaskID) -> OnStep:
    return lambda step, loss: progress.update(row, completed=step + 1, loss=f"loss {loss:.3f}")


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:<24}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]:<16}", markup=False),
        TimeElapsedColumn(),
        console=console,
    )


def _results(
    task: DigitsTask, alone: TrainingOutcome, outcomes: Mapping[float, TrainingOutcome]
) -> dict[str, Any]:
    """Return the results of the training in one process and of the runs, by their loss in percent, for JSON."""
    model, test = Perceptron(task.widths), load_digits(task.seed)[1]

    def common(outcome: TrainingOutcome) -> dict[str, Any]:
        accuracy = float(model.accuracy(outcome.parameters, test.pixels, test.digits))
        return {"accuracy": accuracy, "loss": outcome.losses[-1], "seconds": outcome.seconds}

    runs = []
    for drop_percent, each in outcomes.items():
        run = {
            "drop_percent": drop_percent,
            **common(each),
            "loss_difference": float(np.abs(np.array(each.losses) - np.array(alone.losses)).max()),
            "same_bits": len(set(each.digests)) == 1,
            "sha256": each.digests[0],
            "elements_per_s": model.size * task.steps / each.reduce_seconds,
            "packets": sum(one["packets_sent"] for one in each.statistics),
            "chunks": each.counters.get("results"),
            "retransmissions": sum(one["retransmissions"] for one in each.statistics),
        }
        if drop_percent:
            run["same_bits_as_loss_free"] = each.digests == outcomes[0.0].digests
        runs.append(run)
    return {
        "workers": task.workers,
        "steps": task.steps,
        "parameters": model.size,
        "lanes": task.lanes,
        "same_bits": len({digest for each in outcomes.values() for digest in each.digests}) == 1,
        "one_process": common(alone),
        "runs": runs,
    }


def _table(found: Mapping[str, Any]) -> Group:
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
