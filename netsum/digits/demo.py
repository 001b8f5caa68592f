"""The demo: workers and a switch without loss, then the same with loss, then one process alone, then a table."""

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from threadpoolctl import threadpool_limits

from host_agent.wire.constants import UDP_PORT
from netsum.compiling import await_compiled, compiling
from netsum.digits.dataset import load_digits
from netsum.digits.digits_report import Reference, results, table
from netsum.digits.options import DigitsOptions
from netsum.digits.task import DigitsTask
from netsum.digits.training import OnStep, train, train_alone
from netsum.programs import compiled_program
from netsum.star_service import star_service
from topologies.children import TestbedError
from topologies.hosts import SwitchTestbed
from topologies.loopback import LoopbackTestbed
from topologies.mininet_testbed import Bmv2Star, EmbeddedStar
from topologies.runs import run_folder

EMBEDDED_TASK = DigitsTask()
BMV2_TASK = DigitsTask(lanes=64, steps=60, hidden=(64,), slots=32)
"""BMv2 forwards some thousand packets a second, and queues 64 a port."""

GLOBAL_BATCH = 128
FAILED_RUNS = Path("runs")  # Folder of the logs of a failed run.


@dataclass(frozen=True)
class Demo:
    """A demonstration."""

    task: DigitsTask
    drop_percent: float  # Packets dropped each way in the second run; 0 leaves it out.
    in_mininet: bool  # Whether hosts and switch are in network namespaces, and not on loopback.
    # Whether BMv2 runs the P4 program, and not the embedded engine; it does so in Mininet only.
    on_bmv2: bool

    def testbed(self, folder: Path, drop_percent: float) -> AbstractContextManager[SwitchTestbed]:
        """Return the testbed, not up yet."""
        kind = Bmv2Star if self.on_bmv2 else EmbeddedStar if self.in_mininet else LoopbackTestbed
        return kind(self.task.workers, UDP_PORT, folder, drop_ppm=round(drop_percent * 10_000))


def plan_demo(options: DigitsOptions) -> Demo:
    """Fill in what suits the switch; TestbedError if the machine lacks something that the switch or the testbed needs."""
    on_bmv2, workers = options.switch == "bmv2", options.workers
    task = BMV2_TASK if on_bmv2 else EMBEDDED_TASK
    task = replace(
        task,
        workers=workers,
        lanes=options.lanes or task.lanes,
        steps=options.steps or task.steps,
        batch=GLOBAL_BATCH // workers,
    )
    lacking = Bmv2Star.lacking() if on_bmv2 else EmbeddedStar.lacking() if options.mininet else None
    if lacking is not None:
        raise TestbedError(f"{lacking}; `netsum run digits` runs the embedded switch on loopback without it")
    return Demo(task, options.drop_percent, options.mininet or on_bmv2, on_bmv2)


def run_demo(demo: Demo, console: Console) -> dict[str, Any]:
    """Run a demonstration, print its table and return the results for JSON.

    Their `same_bits` is whether all workers of all runs ended with the same bits.
    """
    task = demo.task
    program = compiled_program(task.lanes)
    train_images, test_images = load_digits(task.seed)
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
                    outcomes[drop_percent] = train(
                        testbed, task, train_images, controller, _show(progress, row)
                    )
        row = progress.add_task("one process alone", total=task.steps, loss="")
        start = time.monotonic()
        with threadpool_limits(1):  # As the workers have; more are no faster on layers this small.
            losses, parameters = train_alone(task, train_images, _show(progress, row))
        reference = Reference(losses, parameters, time.monotonic() - start)
    found = results(task, test_images, reference, outcomes)
    console.print(table(found))
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
