"""All points of an experiment: which are left to compute, which process computes them, and their results."""

import gc
import logging
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from typing import Any, Protocol

from sim.errors import SettingError, SimulationError
from sim.experiments.experiment import Experiment, Point
from sim.experiments.netsum_job import WrongSumError
from sim.experiments.running import PointFailedError, PointResult, run_point
from sim.experiments.scenario import Programs, check_topology
from sim.experiments.store import ResultStore
from topologies.children import held_signals

CONNECT_TIMEOUT_S = 30.0


class SchedulerError(SimulationError):
    """A Dask scheduler is not there, or was lost."""


@dataclass(frozen=True)
class Finished:
    """A point that was run: its result, or the reason why there is none."""

    point: Point
    result: PointResult | None
    error: str = ""


@dataclass
class Swept:
    """The results of an experiment's points."""

    total: int
    kept: int = 0
    computed: int = 0
    packets: int = 0  # On links, of the points that were computed.
    left_out: int = 0  # Packets that fast-forward has left out.
    equal_jobs: int = 0  # Equal jobs of each point, of which one was run for all.
    failed: list[Finished] = field(default_factory=list)

    @property
    def done(self) -> int:
        """How many points have an end, whichever."""
        return self.kept + self.computed + len(self.failed)


class Executor(Protocol):
    """Runs points, in any order."""

    def __call__(self, points: list[Point], programs: Programs) -> Iterator[Finished]:
        """Iterate over points as they finish."""


def attempt(point: Point, programs: Programs) -> Finished:
    """Run a point; its errors are returned, not raised."""
    # Networks and their workers refer to each other: without this, the arrays of many points are held at a time.
    gc.collect()
    try:
        return Finished(point, run_point(point, programs))
    except (SettingError, PointFailedError, WrongSumError) as error:
        return Finished(point, None, str(error))
    except MemoryError:
        return Finished(point, None, "out of memory: take smaller arrays, or fewer workers")
    except Exception as error:  # A fault of a peer or of netsum must not take the other points along.
        return Finished(point, None, f"{type(error).__name__}: {error}")


def here(points: list[Point], programs: Programs) -> Iterator[Finished]:
    """Run points one after the other in this process."""
    for point in points:
        yield attempt(point, programs)


def on_dask(address: str | None = None, workers: int | None = None) -> Executor:
    """Return an executor that runs points on a Dask cluster.

    `address`: of its scheduler; None: a cluster of processes on this machine. `workers`: of the cluster on this machine;
    None: as many as it has processors.
    """

    def run(points: list[Point], programs: Programs) -> Iterator[Finished]:
        import distributed  # Takes half a second.

        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # Errors that matter become a sentence.
        opened: list[Any] = []
        try:
            try:
                if address is None:
                    # A terminal sends Ctrl-C to all processes; a cluster's are ended by this one, which gets it afterwards.
                    resource_tracker.ensure_running()  # Started later, the tracker would unblock the signal.
                    with held_signals([signal.SIGINT]):
                        opened.append(
                            distributed.LocalCluster(
                                n_workers=workers,
                                threads_per_worker=1,
                                dashboard_address=None,
                                protocol="tcp",
                                silence_logs=logging.CRITICAL,
                            )
                        )
                client = distributed.Client(opened[0] if opened else address, timeout=CONNECT_TIMEOUT_S)
            except (OSError, TimeoutError, ValueError) as error:
                raise SchedulerError(f"no Dask scheduler answers at {address}: {error}") from None
            opened.append(client)
            futures = {
                client.submit(attempt, point, dict(programs), pure=False, retries=1): point
                for point in points
            }
            for future in distributed.as_completed(futures):
                try:
                    yield future.result()
                except Exception as error:  # The worker died, or its result cannot be read.
                    yield Finished(futures[future], None, f"the Dask worker failed: {error}")
                future.release()
        finally:
            for each in reversed(opened):
                each.close()

    return run


def sweep(
    experiment: Experiment,
    store: ResultStore,
    programs: Programs,
    executor: Executor = here,
    on_finished: Callable[[Swept, Finished | None], None] = lambda swept, finished: None,
) -> Swept:
    """Compute the points of an experiment that are not in its store yet.

    Every point is stored as it finishes, so an interrupt loses no finished point.

    Raises SettingError, before any point is computed, if a topology cannot be. Raises SchedulerError, ResultStoreError if the
    rest cannot be computed; computed points are kept.
    """
    missing = [point for point in experiment.points if not store.has(point)]
    for point in missing:
        check_topology(point)
    swept = Swept(total=len(experiment.points), kept=len(experiment.points) - len(missing))
    on_finished(swept, None)
    try:
        for finished in executor(missing, programs) if missing else ():
            if finished.result is None:
                swept.failed.append(finished)
            else:
                store.put(finished.point, finished.result)
                swept.computed += 1
                swept.packets += finished.result.rows[0]["packets_on_links"]
                swept.left_out += finished.result.left_out
                swept.equal_jobs += finished.result.equal_jobs
            on_finished(swept, finished)
    finally:
        store.collect()
    return swept
