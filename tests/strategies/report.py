"""Results of trainings under different strategies: a table, and which strategy wins on which links."""

import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from netsum.terminal import ProgressRows, echo
from tests.strategies.points import TASKS, Curve, StrategyPoint
from tests.virtual.network import NetworkOf, StarLinks, payload_of
from tests.virtual.timeline import replay
from topologies.units import rate_text

_MILLISECOND_US: Final = 1000

Durations = Mapping[NetworkOf, Mapping[tuple[int, int, int], float]]


@dataclass(frozen=True)
class Times:
    """Time of each evaluation of a training, by network, in seconds."""

    looks: dict[NetworkOf, list[float]]

    def to(self, curve: Curve, network: NetworkOf, accuracy: float) -> float | None:
        """Return the time to an accuracy; None if it was not reached."""
        reached = _first(curve, accuracy)
        return None if reached is None else self.looks[network][reached]


@dataclass(frozen=True)
class StrategyRow:
    """A strategy on a task with this many workers, over all seeds."""

    task: str
    workers: int
    recipe: str
    runs: int
    # accuracy, spread: mean and standard deviation after all steps.
    accuracy: float
    spread: float
    # sent_kb, busiest_kb: sent by a worker, and at the host's link that carries most in one direction.
    sent_kb: float
    busiest_kb: float
    synchronizations: int  # Synchronizations of a worker; the mean, rounded.
    steps: float | None  # Mean number to the target; None if a seed did not reach it.
    seconds: float  # Mean time of all steps on the first network.
    to_target: dict[NetworkOf, float | None]  # Mean time to the target.


def collectives_of(curves: Iterable[Curve]) -> set[tuple[int, int, int]]:
    """Return bytes, workers and quorum of all collectives, as the simulator is to run them."""
    found = set()
    for curve in curves:
        for event in itertools.chain.from_iterable(curve.events):
            match event:
                case ["meet", members, op, size]:
                    found.add((payload_of(op, size, len(members)), len(members), 0))
                case ["round", _, contributors, size, _]:
                    found.add((payload_of("sum", size, curve.hosts), curve.hosts, len(contributors)))
    return found


def times_of(curve: Curve, durations: Durations) -> Times:
    """Return when each look was on each network."""
    looks = {}
    for network, of_it in durations.items():
        marks = replay(curve.events, curve.hosts, StarLinks(network, of_it))
        looks[network] = [marks[each] for each in range(len(curve.steps))]
    return Times(looks)


def rows_of(
    found: Mapping[StrategyPoint, Curve], times: Mapping[StrategyPoint, Times], networks: Sequence[NetworkOf]
) -> list[StrategyRow]:
    """Return a row for each task, number of workers and strategy."""
    kinds: dict[tuple[str, int, str], list[StrategyPoint]] = defaultdict(list)
    for point in found:
        kinds[point.task, point.workers, point.recipe].append(point)
    rows = []
    for (task, workers, recipe), points in kinds.items():
        curves = [found[point] for point in points]
        finals = [curve.accuracies[-1] for curve in curves]
        target = TASKS[task].target
        steps = [None if (at := _first(curve, target)) is None else curve.steps[at] for curve in curves]
        rows.append(
            StrategyRow(
                task,
                workers,
                recipe,
                len(points),
                statistics.fmean(finals),
                statistics.stdev(finals) if len(finals) > 1 else 0.0,
                statistics.fmean(curve.sent_bytes for curve in curves) / 1e3,
                statistics.fmean(curve.busiest_bytes for curve in curves) / 1e3,
                round(statistics.fmean(curve.synchronizations for curve in curves)),
                _mean(steps),
                statistics.fmean(times[point].looks[networks[0]][-1] for point in points),
                {
                    network: _mean([times[point].to(found[point], network, target) for point in points])
                    for network in networks
                },
            )
        )
    return rows


def winners(rows: Sequence[StrategyRow], task: str, workers: int, network: NetworkOf) -> list[StrategyRow]:
    """Return the rows that reached the target, the fastest first."""
    reached = [row for row in rows if row.task == task and row.workers == workers and row.to_target[network]]
    return sorted(reached, key=lambda row: (row.to_target[network], row.recipe))


def report(rows: Sequence[StrategyRow], networks: Sequence[NetworkOf]) -> None:
    """Print the table, of the first network, and the map of all."""
    if not rows:
        echo("no results so far")
        return
    table = ProgressRows(
        "task", ">workers", "strategy", ">?runs", ">accuracy", ">sent kB", ">?busiest", ">?syncs", ">steps", ">time s",
        key=3,
    )  # fmt: skip
    for row in rows:
        table.add(
            row.task,
            str(row.workers),
            row.recipe,
            str(row.runs),
            f"{row.accuracy:.1%} ± {100 * row.spread:.1f}",
            f"{row.sent_kb:,.0f}",
            f"{row.busiest_kb:,.0f}",
            f"{row.synchronizations:,}",
            "-" if row.steps is None else f"{row.steps:,.0f}",
            _seconds(row.to_target[networks[0]]),
        )
    table.print()
    echo(
        f"accuracy after all steps ± standard deviation over seeds; sent: by a worker, busiest: one way at the host that has "
        f"most; steps and time: to the target ({', '.join(f'{name} {TASKS[name].target:.0%}' for name in _tasks(rows))}) at "
        f"{network_text(networks[0])}"
    )
    _print_map(rows, networks)


def network_text(network: NetworkOf) -> str:
    """Write a network as `100mbit, RTT 1 ms`."""
    return f"{rate_text(network.rate_bps)}, RTT {_rtt_text(network)}"


def _print_map(rows: Sequence[StrategyRow], networks: Sequence[NetworkOf]) -> None:
    rtts = sorted({network.rtt_us for network in networks})
    echo("shortest time to the target, in s, by rate and RTT:")
    table = ProgressRows("task", ">workers", "rate", *(_rtt_text(NetworkOf(1, rtt)) for rtt in rtts), key=3)
    for task in _tasks(rows):
        for workers in sorted({row.workers for row in rows if row.task == task}):
            for rate in sorted({network.rate_bps for network in networks}):
                cells = []
                for rtt in rtts:
                    network = NetworkOf(rate, rtt)
                    best = winners(rows, task, workers, network) if network in networks else []
                    cells.append(f"{best[0].recipe} {_seconds(best[0].to_target[network])}" if best else "-")
                table.add(task, str(workers), rate_text(rate), *cells)
    table.print()


def _tasks(rows: Sequence[StrategyRow]) -> list[str]:
    return list(dict.fromkeys(row.task for row in rows))


def _first(curve: Curve, accuracy: float) -> int | None:
    return next((at for at, each in enumerate(curve.accuracies) if each >= accuracy), None)


def _mean(values: Sequence[float | None]) -> float | None:
    there = [each for each in values if each is not None]
    return statistics.fmean(there) if there and len(there) == len(values) else None


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.1f}" if seconds >= 9.95 else f"{seconds:.2f}"


def _rtt_text(network: NetworkOf) -> str:
    if network.rtt_us >= _MILLISECOND_US:
        return f"{network.rtt_us / _MILLISECOND_US:g} ms"
    return f"{network.rtt_us:g} us"
