"""Experiments on the simulated network, from Python: the programs that come with netsum, put into `sim.experiments`."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from netsum.model_layers import layers_from_torch
from netsum.programs import compiled_program
from netsum_common.lane_counts import SOFTWARE_LANES
from sim.experiments.experiment import Experiment, load_experiment
from sim.experiments.models import Model, write_model
from sim.experiments.store import ResultStore, read_rows
from sim.experiments.sweeping import Executor, Finished, Swept, here, sweep

__all__ = [
    "Experiment",
    "Model",
    "layers_from_torch",
    "load_experiment",
    "programs",
    "run_experiment",
    "write_model",
]


def programs() -> dict[int, str]:
    """Return the compiled program for each number of lanes."""
    return {lanes: str(compiled_program(lanes).json) for lanes in SOFTWARE_LANES}


def run_experiment(
    experiment: str | Experiment,
    folder: Path | str,
    *,
    settings: Mapping[str, Any] | None = None,
    executor: Executor = here,
    on_finished: Callable[[Swept, Finished | None], None] = lambda swept, finished: None,
) -> list[dict[str, Any]]:
    """Run an experiment, except for the points that the folder has already.

    Parameters
    ----------
    experiment
        A shipped one's name, a file's path, or one that was read.
    settings
        Values in place of those in the file, by key: ``{"job.workers": [2, 4, 8]}``.
    executor
        `sim.experiments.sweeping.here`, or what `on_dask` returns.

    Returns
    -------
    list of dict
        A row for each point, seed, iteration and bucket; ``docs/simulator.md`` has the columns.

    Raises
    ------
    sim.errors.SimulationError
        With a sentence.
    """
    read = load_experiment(experiment, settings) if isinstance(experiment, str) else experiment
    store = ResultStore(Path(folder), read, programs())
    sweep(read, store, programs(), executor, on_finished)
    return read_rows(store.folder / "results.parquet")[0]
