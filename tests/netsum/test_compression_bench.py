"""Evaluation of results by `netsum compression bench`: the runs that remain, the table's numbers, the Pareto front."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from host_agent.errors import ArgumentError
from netsum.bench.compression_points import METHODS, Curve, Point, method_of, points_of
from netsum.bench.compression_report import pareto_front, report, rows_of
from netsum.bench.results import Results
from netsum.cli.app import app

NETWORK = "star-2 100mbit"


def curve(seconds: float, accuracy: float, sent: float = 1e5) -> Curve:
    """Ten looks at a training whose accuracy rises evenly."""
    parts = [(look + 1) / 10 for look in range(10)]
    return Curve(
        [round(100 * part) for part in parts], [seconds * part for part in parts], [accuracy * part for part in parts],
        sent, sent, 400_000, 1.0,
    )  # fmt: skip


def points(*methods: str, seeds: int = 1) -> list[Point]:
    return points_of(["digits_cnn"], methods, ["netsum"], seeds, 1.0, NETWORK)


def test_what_was_run_is_not_run_again(tmp_path: Path) -> None:
    wanted = points("none", "top-k", seeds=2)
    results = Results[Point, Curve](tmp_path / "kept", Curve)
    assert results.missing(wanted) == wanted
    results.keep(wanted[1], curve(3.0, 0.9))
    again = Results[Point, Curve](tmp_path / "kept", Curve)
    assert again.missing(wanted) == [wanted[0], *wanted[2:]]
    assert again.read(wanted) == {wanted[1]: curve(3.0, 0.9)}


def test_training_without_compression_comes_first_for_each_seed() -> None:
    assert [point.method for point in points("top-k", "dgc", seeds=2)] == ["none", "top-k", "dgc"] * 2


def test_every_method_can_be_made() -> None:
    pytest.importorskip("torch", exc_type=ImportError)
    from host_agent.compression import Reducer, make_compressor, make_memory

    for name, method in METHODS.values():
        Reducer(make_compressor(name, **method.options), make_memory(method.memory))


def test_times_and_accuracies_are_relative_to_uncompressed_netsum() -> None:
    plain, fast, poor = points("none", "top-k", "terngrad")
    rows = {
        row.method: row
        for row in rows_of({plain: curve(10.0, 0.9), fast: curve(4.0, 0.9), poor: curve(2.0, 0.5)})
    }
    assert rows["none"].to_target == pytest.approx(10.0)
    assert rows["top-k"].to_target == pytest.approx(4.0)
    assert rows["terngrad"].to_target is None
    # At half of the ten seconds: half of its steps, and all of the other's.
    assert rows["none"].timed == pytest.approx(0.45)
    assert rows["top-k"].timed == pytest.approx(0.9)
    assert rows["top-k"].sent_kb == 100
    assert [name for name, row in rows.items() if row.front] == ["top-k", "terngrad"]


def test_the_front_has_no_row_that_another_beats() -> None:
    made = dict(
        zip(points("none", "top-k", "dgc"), (curve(10, 0.9), curve(4, 0.8), curve(5, 0.7)), strict=True)
    )
    assert [row.method for row in pareto_front(rows_of(made), "digits_cnn")] == ["top-k", "none"]


def test_the_spread_is_over_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    wanted = points("none", "top-k", seeds=2)
    found = dict(zip(wanted, (curve(10, 0.9), curve(4, 0.8), curve(10, 0.94), curve(4, 0.9)), strict=True))
    row = next(each for each in rows_of(found) if each.method == "top-k")
    assert row.runs == 2
    assert row.accuracy == pytest.approx(0.85)
    assert row.spread == pytest.approx(0.0707, abs=1e-4)
    report(found, tmp_path)
    assert "85.0% ± 7.1" in capsys.readouterr().out
    assert (tmp_path / "compression.svg").stat().st_size > 1000


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ArgumentError, match="unknown method 'topk': expected one of none, identity"):
        points("topk")


def test_a_method_may_name_another_memory_and_granularity() -> None:
    name, method = method_of("top-k+none@model")
    assert (name, method.memory, method.granularity) == ("top-k", "none", "model")
    assert method.options == METHODS["top-k"][1].options
    with pytest.raises(
        ArgumentError, match="unknown granularity 'whole': expected one of layer, bucket, model"
    ):
        method_of("top-k@whole")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--tasks", "imagenet"], "unknown task 'imagenet': expected one of digits_cnn"),
        (["--methods", "topk"], "unknown method 'topk'"),
        (["--rate", "fast"], "expected a rate above 0"),
        (["--topology", "nonesuch"], "there is no topology 'nonesuch'"),
    ],
)
def test_wrong_options_are_reported_before_anything_is_brought_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["compression", "bench", *options], prog_name="netsum")
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert not list(tmp_path.iterdir())
