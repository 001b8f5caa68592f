"""Options of `python -m tests.strategies`."""

from dataclasses import dataclass
from pathlib import Path

from netsum_common.options import option


@dataclass(frozen=True)
class StrategiesOptions:
    """Trainings, and the links that their times are computed for."""

    quick: bool = option("One task, four strategies, four workers, one seed.", False, "--quick")
    tasks: str = option(
        "On handwritten digits; `skewed`: few digits a worker.", "digits,skewed,softmax", metavar="NAME,…"
    )
    strategies: str | None = option("Names as in the table. Default: all.", metavar="NAME,…")
    workers: str = option("Numbers of workers; a parameter server comes on top.", "4,8", metavar="COUNT,…")
    seeds: int = option("Trainings of each strategy.", 3, within=(1, 100))
    steps: int = option("Steps of each worker.", 240, within=(40, 100_000))
    step_time: str = option("Computing time of a step.", "5ms", metavar="TIME")
    slowest: float = option(
        "How many times longer the last worker computes.", 1.0, within=(1, 1000), metavar="FACTOR"
    )
    rates: str = option(
        "Rates of the links; the table shows the first.", "100mbit,1mbit,10mbit,1gbit", metavar="RATE,…"
    )
    rtts: str = option(
        "Round trips between hosts; the table shows the first.", "200us,1ms,10ms,100ms", metavar="TIME,…"
    )
    folder: Path = option("Where results are kept.", Path("runs/strategies"), metavar="FOLDER")
    seconds: float | None = option(
        "Begin no training after this time; repeat the command to continue.", within=(0, None)
    )
