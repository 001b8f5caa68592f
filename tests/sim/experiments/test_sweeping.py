"""Sweeps: kept points, failures, Dask clusters, and the report."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from host_agent.errors import MisuseError
from sim.errors import SettingError, SimulationError
from sim.experiments.comparing import compare
from sim.experiments.experiment import Experiment, Point, parse_experiment
from sim.experiments.scenario import Programs
from sim.experiments.summary import median_of, summarize

pytest.importorskip("pyarrow")

from sim.experiments.report import write_report
from sim.experiments.store import ResultStore, load_run, load_store, read_rows
from sim.experiments.sweeping import Finished, Swept, here, on_dask, sweep
from tests.sim.traces.files import FORMATS

ROOT = Path(__file__).resolve().parents[3]
SWEEP = """
question = "Does <it> sweep?"
[topology]
rate = "10gbit"
[[job]]
size = "16KiB"
lanes = 64
[[fault]]
loss = "1%"
[run]
seeds = 3
[sweep]
"job.contender" = ["netsum", "ring"]
"job.workers" = [2, 3]
"""
TRACES = """
[topology]
rate = "10gbit"
[[job]]
lanes = 64
[[fault]]
loss = "0.1%"
[run]
seeds = 2
[sweep]
"job.contender" = ["netsum", "ring"]
"""


@pytest.fixture
def experiment() -> Experiment:
    return parse_experiment(SWEEP, "sweeps")


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_what_was_computed_is_not_computed_again(
    experiment: Experiment, programs: dict[int, str], tmp_path: Path
) -> None:
    ran: list[Point] = []

    def counting(points: list[Point], programs: Programs) -> Iterator[Finished]:
        for finished in here(points, programs):
            ran.append(finished.point)
            yield finished

    def stop(swept: Swept, finished: Finished | None) -> None:
        if swept.computed == 5:
            raise KeyboardInterrupt

    store = ResultStore(tmp_path, experiment, programs)
    with pytest.raises(KeyboardInterrupt):
        sweep(experiment, store, programs, counting, stop)
    assert len(ran) == 5
    assert len(read_rows(tmp_path / "results.parquet")[0]) == 5, "an interrupt keeps what is done"
    swept = sweep(experiment, store, programs, counting)
    assert (swept.kept, swept.computed, len(ran)) == (5, 7, 12)
    rows, _ = read_rows(tmp_path / "results.parquet")
    assert [(row["job.contender"], row["job.workers"], row["seed"]) for row in rows[:4]] == [
        ("netsum", 2, 1),
        ("netsum", 2, 2),
        ("netsum", 2, 3),
        ("netsum", 3, 1),
    ]


def test_results_of_another_congestion_control_are_computed_anew(
    experiment: Experiment, programs: dict[int, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixed = ResultStore(tmp_path, experiment, programs)
    monkeypatch.setenv("NETSUM_CONGESTION_WINDOW", "1")
    assert ResultStore(tmp_path, experiment, programs).stamp != fixed.stamp
    monkeypatch.setenv("NETSUM_CONGESTION_WINDOW", "yes")
    with pytest.raises(MisuseError, match="NETSUM_CONGESTION_WINDOW: expected 0 or 1, got 'yes'"):
        ResultStore(tmp_path, experiment, programs)


def test_a_point_that_fails_is_named_and_takes_no_other_along(
    programs: dict[int, str], tmp_path: Path
) -> None:
    read = parse_experiment(
        '[topology]\nhosts = 3\n[[job]]\nsize = 64\n[sweep]\n"job.workers" = [2, 4, 3]\n', "x"
    )
    swept = sweep(read, ResultStore(tmp_path, read, programs), programs)
    assert swept.computed == 2
    (failed,) = swept.failed
    assert str(failed.point) == "job.workers = 4, seed 1"
    assert "expected 4 hosts from h1 on, the topology has 3" in failed.error


def test_a_topology_that_cannot_be_is_named_once_and_before_any_point_is_run(
    programs: dict[int, str], tmp_path: Path
) -> None:
    read = parse_experiment('[topology]\n[[job]]\nsize = 64\n[sweep]\n"job.workers" = [2, 600, 700]\n', "x")
    store = ResultStore(tmp_path, read, programs)
    with pytest.raises(SettingError, match="at most 509 links at a switch, found 600") as caught:
        sweep(read, store, programs)
    assert "job.workers = 600, seed 1" in str(caught.value)
    assert not list(store.computed())


def test_a_folder_that_cannot_be_written_gets_a_sentence(
    experiment: Experiment, programs: dict[int, str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SimulationError, match="cannot write to .*file: Not a directory"):
        ResultStore(tmp_path / "file", experiment, programs)


def test_a_full_disk_loses_nothing_that_was_computed(
    experiment: Experiment, programs: dict[int, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ResultStore(tmp_path, experiment, programs)
    rename = Path.replace
    renamed: list[Path] = []

    def full(path: Path, target: Path) -> Any:
        if len(renamed) == 2 and target.parent.name == "points":
            raise OSError(28, "No space left on device")
        renamed.append(target)
        return rename(path, target)

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(SimulationError, match=r"cannot write .*parquet: No space left on device"):
        sweep(experiment, store, programs)
    monkeypatch.undo()
    assert len(list(store.computed())) == 2
    assert sweep(experiment, store, programs).kept == 2


@pytest.mark.parametrize("setting", ["model", "topology"])
def test_a_file_that_changes_is_another_point(setting: str, tmp_path: Path) -> None:
    file = tmp_path / "named.json"
    text = {
        "model": f'[[job]]\nmodel = "{file}"',
        "topology": f'[topology]\nkind = "file"\nfile = "{file}"\n[[job]]',
    }[setting]
    (point,) = parse_experiment(text, "named").points
    without = point.key("")
    file.write_text('{"layers": [["a", 1000, 0, 0]]}')
    first = point.key("")
    file.write_text('{"layers": [["a", 2000, 0, 0]]}')
    assert len({without, first, point.key("")}) == 3


def test_results_of_other_sources_are_shown_and_kept(
    experiment: Experiment, programs: dict[int, str], tmp_path: Path
) -> None:
    before = ResultStore(tmp_path, experiment, programs, stamp="of sources that have changed since")
    sweep(experiment, before, programs)
    after = load_store(tmp_path, programs)
    assert (after.stamp, len(list(after.computed()))) == (before.stamp, 12)
    assert "12 of 12 points are computed" in write_report(after).read_text()
    assert not any(ResultStore(tmp_path, experiment, programs).computed()), "a run computes them anew"


def test_an_interrupted_run_a_damaged_point_and_odd_settings(
    experiment: Experiment, programs: dict[int, str], tmp_path: Path
) -> None:
    store = ResultStore(tmp_path, experiment, programs)
    for finished in here(list(experiment.points[:4]), programs):
        assert finished.result is not None
        store.put(finished.point, finished.result)
    # Killed: nothing was collected.
    assert "4 of 12 points are computed" in write_report(load_store(tmp_path, programs)).read_text()
    whole = store.path_of(experiment.points[0])
    whole.write_bytes(whole.read_bytes()[:-10])
    assert len(list(store.computed())) == 3
    assert sweep(experiment, store, programs).computed == 9
    for odd in ("[]", '{"name": 1}', '{"name": "a", "overrides": []}', "[" * 100_000):
        (tmp_path / "settings.json").write_text(odd)
        with pytest.raises(SimulationError, match=r"settings.json: expected|holds no experiment's results"):
            load_store(tmp_path, programs)
    with pytest.raises(SimulationError, match=r"cannot read .*nothing.parquet: there is no such file"):
        read_rows(tmp_path / "nothing.parquet")


def test_a_rows_time_and_goodput_and_limit_agree(
    experiment: Experiment, programs: dict[int, str], tmp_path: Path
) -> None:
    store = ResultStore(tmp_path, experiment, programs)
    sweep(experiment, store, programs)
    rows = read_rows(tmp_path / "results.parquet")[0]
    for each in summarize(rows[:10] + rows[11:], experiment.varies):
        time, goodput = (each.medians[name] for name in ("duration_ns", "goodput_bps"))
        assert goodput.value * time.value == pytest.approx(8e9 * (16 << 10))
        if time.low is not None:
            assert goodput.high == pytest.approx(8e9 * (16 << 10) / time.low)
    page = write_report(store).read_text()
    limits = re.findall(r"<td>([a-z ]+)<td>(?:<tr>|</tbody>)", page)
    whys = re.findall(r"<summary>.*?<b>([a-z ]+)</b>", page)
    assert len(limits) == 4
    assert limits == whys


def test_the_report_opens_in_a_browser(
    experiment: Experiment, programs: dict[int, str], tmp_path: Path
) -> None:
    store = ResultStore(tmp_path, experiment, programs)
    sweep(experiment, store, programs)
    page = write_report(store)
    text = page.read_text()
    assert not re.search(r"(?:src|href)=\"?https?:", text.replace('xlink:href="#', ""))
    assert "Time of an all-reduce" in text
    assert ">workers<" in text
    assert "job.workers<" not in text.split("<h2>Results")[0]
    assert "Does &lt;it&gt; sweep?" in text
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no browser")
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'profile'}",
    ]
    shown = subprocess.run(
        [*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=200, check=True
    ).stdout
    assert "<h1>sweeps</h1>" in shown
    assert shown.count('id="legend_1"') >= 2
    assert "12 of 12 points are computed" in shown


def test_two_runs_are_compared(programs: dict[int, str], tmp_path: Path) -> None:
    fast = parse_experiment(SWEEP, "sweeps", {"fault.loss": "0%"})
    slow = parse_experiment(SWEEP, "sweeps", {"fault.loss": "0%", "topology.rate": "1gbit"})
    for name, read in (("a", fast), ("b", slow)):
        sweep(read, ResultStore(tmp_path / name, read, programs), programs)
    compared = compare(tmp_path / "a", tmp_path / "b")
    assert len(compared) == 4
    assert all(each.ratio is not None and each.ratio > 1 for each in compared)
    assert load_run(tmp_path / "b").points[0].settings.topology.rate == 10**9
    with pytest.raises(SimulationError, match="holds no experiment's results"):
        compare(tmp_path / "a", tmp_path / "c")


def test_medians() -> None:
    assert median_of([3.0, 1.0]).low is None
    found = median_of([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    assert found.value == 4
    assert found.low is not None
    assert found.high is not None
    assert 1 <= found.low < 4 < found.high <= 7


def test_a_scheduler_that_is_not_there_gets_a_sentence(
    experiment: Experiment, programs: dict[int, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("sim.experiments.sweeping.CONNECT_TIMEOUT_S", 0.5)
    with pytest.raises(SimulationError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        sweep(experiment, ResultStore(tmp_path, experiment, programs), programs, on_dask("tcp://127.0.0.1:9"))


@pytest.mark.parametrize("awaited", ["12 points", "of 12 points"])
def test_ctrl_c_ends_a_sweep_with_a_sentence(tmp_path: Path, awaited: str) -> None:
    """At a terminal all processes get it: while those of the cluster start, and while points are computed."""
    pytest.importorskip("distributed")
    (tmp_path / "sweeps.toml").write_text(SWEEP.replace("16KiB", "1MiB"))
    command = [
        sys.executable,
        "-c",
        "import sys; from netsum.cli import main; sys.exit(main())",
        "sim",
        "sweep",
    ]
    with subprocess.Popen(
        [*command, "sweeps.toml", "--workers", "2"],
        cwd=tmp_path,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"},
    ) as process:
        assert process.stderr is not None
        found = ""
        while awaited not in found:
            line = process.stderr.readline()
            assert line, found
            found += line
        os.killpg(process.pid, signal.SIGINT)
        found += process.communicate(timeout=300)[1]
    assert process.returncode == 130
    assert "Traceback" not in found
    assert "distributed" not in found
    assert "kept in" in " ".join(found.split())


@pytest.mark.parametrize("traces", [False, True], ids=["arrays", "traces"])
def test_a_cluster_of_other_processes_computes_the_same_bytes(
    experiment: Experiment, programs: dict[int, str], traces: bool, tmp_path: Path
) -> None:
    """A scheduler and two workers as processes of their own, as on several machines, each with hashes of strings of its own."""
    pytest.importorskip("distributed")
    if traces:
        places = [write(tmp_path) for write in FORMATS.values()]
        experiment = parse_experiment(TRACES, "sweeps", {"job.workload": places})
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    common = [sys.executable, "-m"]
    scheduler = [*common, "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(port)]
    worker = [*common, "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny"]
    processes = [
        subprocess.Popen(
            command, cwd=ROOT, stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONHASHSEED": str(number)}
        )
        for number, command in enumerate(
            (
                [*scheduler, "--no-dashboard"],
                [*worker, "--no-dashboard"],
                [*worker, "--no-dashboard"],
            )
        )
    ]
    try:
        store = ResultStore(tmp_path / "cluster", experiment, programs)
        swept = sweep(experiment, store, programs, on_dask(address))
        assert (swept.computed, swept.failed) == (12, [])
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait(timeout=30)
    alone = ResultStore(tmp_path / "alone", experiment, programs)
    sweep(experiment, alone, programs)
    assert contents(tmp_path / "cluster") == contents(tmp_path / "alone")
