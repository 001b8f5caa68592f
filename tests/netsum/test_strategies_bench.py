"""Evaluation of trainings by `python -m tests.strategies`: times on links, the table, which strategy wins; wrong options."""

import re
from pathlib import Path
from typing import Any

import pytest

from host_agent.errors import ArgumentError
from netsum_common.options import parse
from tests.strategies.comparison import Results, run
from tests.strategies.options import StrategiesOptions
from tests.strategies.points import RECIPES, Curve, StrategyPoint, points_of
from tests.strategies.report import collectives_of, report, rows_of, times_of, winners
from tests.virtual.network import NetworkOf

SLOW, FAST = NetworkOf(10**6, 1000), NetworkOf(10**9, 1000)
DURATIONS = {SLOW: {(1024, 2, 0): 1.0, (2048, 2, 0): 2.0}, FAST: {(1024, 2, 0): 0.001, (2048, 2, 0): 0.002}}


def curve(steps: int, every: int, accuracies: list[float]) -> Curve:
    """A training of two workers that compute for 0.1 s a step, and average 1,500 bytes every few steps."""
    events: list[list[Any]] = []
    for worker in range(2):
        own: list[Any] = [["mark", 0]] if worker == 0 else []
        for step in range(1, steps + 1):
            own.append(["compute", 0.1])
            if step % every == 0:
                own.append(["meet", [0, 1], "sum", 1500])
            if worker == 0:
                own.append(["mark", step])
        events.append(own)
    sent = 1500.0 * (steps // every)
    return Curve(list(range(steps + 1)), accuracies, sent, sent, int(sent), steps // every, 2, events)


def point(recipe: str, seed: int = 0) -> StrategyPoint:
    return StrategyPoint("digits", recipe, 2, seed, 4, 100_000)


FOUND = {
    point("synchronous"): curve(4, 1, [0.1, 0.5, 0.95, 0.96, 0.97]),
    point("local-sgd"): curve(4, 4, [0.1, 0.4, 0.6, 0.8, 0.94]),
}


def test_a_training_s_time_on_other_links_is_computed_from_its_events() -> None:
    assert collectives_of(FOUND.values()) == {(2048, 2, 0)}
    often = times_of(FOUND[point("synchronous")], DURATIONS)
    assert often.looks[SLOW] == pytest.approx([0, 2.1, 4.2, 6.3, 8.4])
    assert often.looks[FAST][-1] == pytest.approx(0.408)
    assert times_of(FOUND[point("local-sgd")], DURATIONS).looks[SLOW][-1] == pytest.approx(2.4)


def test_the_winner_depends_on_the_links() -> None:
    times = {each: times_of(found, DURATIONS) for each, found in FOUND.items()}
    rows = rows_of(FOUND, times, [FAST, SLOW])
    assert [row.steps for row in rows] == [2, 4]
    assert winners(rows, "digits", 2, FAST)[0].recipe == "synchronous"
    assert winners(rows, "digits", 2, SLOW)[0].recipe == "local-sgd"


def test_a_target_that_a_seed_misses_is_not_reached(capsys: pytest.CaptureFixture[str]) -> None:
    poor = {**FOUND, point("synchronous", 1): curve(4, 1, [0.1, 0.2, 0.3, 0.4, 0.5])}
    times = {each: times_of(found, DURATIONS) for each, found in poor.items()}
    rows = rows_of(poor, times, [FAST, SLOW])
    row = next(row for row in rows if row.recipe == "synchronous")
    assert (row.runs, row.steps, row.to_target[FAST]) == (2, None, None)
    report(rows, [FAST, SLOW])
    printed = capsys.readouterr().out
    assert "73.5% ± 33.2" in printed
    assert "local-sgd 0.40" in printed


def test_results_are_kept_compressed_and_not_computed_again(tmp_path: Path) -> None:
    results = Results(tmp_path / "kept")
    wanted = list(FOUND)
    assert results.missing(wanted) == wanted
    results.keep(wanted[0], FOUND[wanted[0]])
    assert results.missing(wanted) == wanted[1:]
    assert results.read(wanted) == {wanted[0]: FOUND[wanted[0]]}


def test_a_strategy_for_convex_problems_is_not_run_on_others() -> None:
    points = points_of(StrategiesOptions(workers="4", seeds=1, steps=40))
    assert {point.task for point in points if point.recipe == "admm"} == {"softmax"}
    assert len(points) == 3 * (len(RECIPES) - 1) + 1


@pytest.mark.parametrize("workers", [1, 3, 32])
def test_a_number_of_workers_that_does_not_work_is_refused(workers: int) -> None:
    with pytest.raises(ArgumentError, match="expected even numbers of workers from 2 to 30"):
        points_of(StrategiesOptions(tasks="digits", strategies="synchronous", workers=str(workers)))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--tasks", "imagenet"], "unknown task 'imagenet': expected one of digits"),
        (["--strategies", "dilico"], "unknown strategy 'dilico': expected one of synchronous"),
        (["--rates", "fast"], "--rates: expected a rate above 0"),
        (["--rtts", "long"], "--rtts: expected a delay"),
        (["--workers", "few"], "--workers: expected whole numbers such as 4,8"),
    ],
)
def test_wrong_options_are_reported_before_anything_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArgumentError, match=re.escape(sentence)):
        run(parse(StrategiesOptions, options, "", ""))
    assert not list(tmp_path.iterdir())


@pytest.mark.torch
@pytest.mark.parametrize("recipe", sorted(RECIPES))
def test_every_recipe_trains(recipe: str) -> None:
    pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")
    from tests.strategies.training import train

    task = "softmax" if RECIPES[recipe].convex else "digits"
    found = train(StrategyPoint(task, recipe, 2, 0, 40, 5000))
    assert found.accuracies[-1] > found.accuracies[0] + 0.2
    assert found.steps[-1] >= 40
    assert found.sent_bytes > 0


@pytest.mark.torch
@pytest.mark.parametrize(
    ("plain", "compressed", "fewer"), [("fedavg", "fedavg+top-k", 5), ("diloco", "diloco+4bit", 4)]
)
def test_a_strategy_with_compressed_averages_sends_less_and_learns_as_much(
    plain: str, compressed: str, fewer: int
) -> None:
    pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")
    from tests.strategies.training import train

    whole, small = (train(StrategyPoint("digits", recipe, 4, 0, 240, 5000)) for recipe in (plain, compressed))
    # Both send the model once in float32 at rank 0's start; beyond it, this many times fewer bytes.
    start = (64 * 64 + 64 + 64 * 10 + 10) * 4 / 4
    assert (whole.sent_bytes - start) > fewer * (small.sent_bytes - start)
    assert small.accuracies[-1] > whole.accuracies[-1] - 0.04


@pytest.mark.torch
def test_one_slow_worker_delays_synchronous_training_and_not_backup_workers() -> None:
    pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")
    from tests.strategies.training import train

    steps, network = 240, NetworkOf(10**8, 200)

    def trained(recipe: str, slowest: float) -> tuple[float, float]:
        """Return the last accuracy, and when the first worker had made half its steps, where links take 1 ms."""
        found = train(StrategyPoint("digits", recipe, 4, 0, steps, 5000, slowest))
        times = times_of(found, {network: dict.fromkeys(collectives_of([found]), 1e-3)})
        return found.accuracies[-1], times.looks[network][found.steps.index(steps // 2)]

    synchronous, even = trained("synchronous", 1)
    _, delayed = trained("synchronous", 5)
    first, undelayed = trained("backup", 5)
    _, served = trained("downpour", 5)
    assert delayed == pytest.approx(even + steps / 2 * 4 * 0.005)
    assert undelayed == pytest.approx(even)
    assert served < delayed
    assert first > synchronous - 0.03


def test_a_training_with_a_slow_worker_is_kept_apart_from_one_without() -> None:
    names = [
        each.file_name
        for slowest in (1.0, 5.0)
        for each in points_of(
            StrategiesOptions(tasks="digits", strategies="backup", workers="4", seeds=1, slowest=slowest)
        )
    ]
    assert names == [
        "digits_backup_4-workers_240-steps_5000-us_seed-0.json.gz",
        "digits_backup_4-workers_240-steps_5000-us_slowest-5_seed-0.json.gz",
    ]
