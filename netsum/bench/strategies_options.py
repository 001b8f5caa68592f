"""Options of `netsum strategies bench`."""

from dataclasses import dataclass
from pathlib import Path

from netsum_common.options import option


@dataclass(frozen=True)
class StrategiesOptions:
    """Trainings, and the links that their times are computed for."""

    quick: bool = option("One task, four strategies, four workers, one seed.", False, "--quick")
    tasks: str = option(
        "On scikit-learn's digits; `skewed`: few digits a worker.", "digits,skewed,softmax", metavar="NAME,…"
    )
    strategies: str | None = option("As tables name them. Default: all.", metavar="NAME,…")
    workers: str = option("That train; a parameter server is one more.", "4,8", metavar="COUNT,…")
    seeds: int = option("Trainings of each.", 3, within=(1, 100))
    steps: int = option("Of each worker.", 240, within=(40, 100_000))
    step_time: str = option("What a step computes.", "5ms", metavar="TIME")
    slowest: float = option(
        "How many times longer the last worker computes.", 1.0, within=(1, 1000), metavar="FACTOR"
    )
    rates: str = option(
        "Of the links; the first is the table's.", "100mbit,1mbit,10mbit,1gbit", metavar="RATE,…"
    )
    rtts: str = option(
        "Round trips between hosts; the first is the table's.", "200us,1ms,10ms,100ms", metavar="TIME,…"
    )
    folder: Path = option("Where results are kept.", Path("runs/strategies"), metavar="FOLDER")
    seconds: float | None = option(
        "Begin no training after this time; call again to go on.", within=(0, None)
    )
