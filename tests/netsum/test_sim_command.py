"""`netsum sim` from its command line: output and exit status."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from netsum.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
TINY = '[topology]\nrate = "10gbit"\n[[job]]\nworkers = 2\nsize = "4KiB"\nlanes = 64\n'


def netsum(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", "from netsum.cli import main; main()", "sim", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=800,
    )


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (("run", "nothing"), 2, "there is no experiment 'nothing': expected backup, bursts"),
        (("run", "quick", "--set", "job.workers"), 2, "--set: expected KEY=VALUE, found 'job.workers'"),
        (("run", "quick", "--set", "fault.loss=120%"), 2, "fault[0].loss: expected a share from 0 to 1"),
        (("run", "quick", "--set", "topology.rate=0gbit"), 2, "topology.rate: expected a rate between"),
        (
            ("run", "quick", "--set", "topology.kind=pods"),
            2,
            "topology.rack: expected the number of hosts at each",
        ),
        (("report", "nowhere"), 1, "nowhere holds no experiment's results"),
        (("sweep", "quick", "--folder", "/proc/nowhere"), 1, "cannot write to /proc/nowhere"),
    ],
)
def test_what_cannot_be_done_gets_a_sentence(
    tmp_path: Path, arguments: tuple[str, ...], status: int, sentence: str
) -> None:
    pytest.importorskip("pyarrow")
    ended = netsum(tmp_path, *arguments)
    assert ended.returncode == status, ended.stderr
    assert sentence in ended.stderr.replace("\n", " ")
    assert "Traceback" not in ended.stderr
    assert ended.stderr.count("expected") <= 1  # Once, not for each point.


def test_a_trace_has_a_column_for_no_goodput(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "one.goal").write_text("num_ranks 1\nrank 0 {\nl1: calc 1000\n}\n")
    (tmp_path / "mine.toml").write_text('[[job]]\nworkload = "one.goal"\nworkers = 1\n')
    ended = netsum(tmp_path, "run", "mine.toml")
    assert ended.returncode == 0, ended.stderr
    assert "time, us" in ended.stdout or "iteration, ms" in ended.stdout
    assert "goodput" not in ended.stdout
    page = (tmp_path / "runs" / "sim" / "mine" / "report.html").read_text()
    assert "goodput" not in page.split("<h2>Results</h2>")[1].split("<h2>Why")[0]


def test_memory_used_is_not_the_parents() -> None:
    child = [sys.executable, "-c", "from netsum_common.memory_used import most_bytes; print(most_bytes())"]
    parent = f"import subprocess; held = b'x' * 400_000_000; subprocess.run({child!r}, check=True)"
    result = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, check=True)
    assert 1_000_000 < int(result.stdout) < 200_000_000


def test_a_run_names_its_results_and_is_not_computed_twice(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "tiny.toml").write_text(TINY)
    first = netsum(tmp_path, "run", "tiny.toml", "--pcap", "h1>s1")
    assert first.returncode == 0, first.stderr
    assert "report:  runs/sim/tiny/report.html" in first.stdout
    assert re.search(r"used: +[\d,]+ MB of memory at most, [\d,]+ s of processor time", first.stdout)
    assert (tmp_path / "runs" / "sim" / "tiny" / "h1-to-s1.pcap").stat().st_size > 1000
    again = netsum(tmp_path, "run", "tiny.toml")
    assert "1 of them computed before" in again.stderr
    compared = netsum(tmp_path, "compare", "runs/sim/tiny", "runs/sim/tiny")
    assert "1.000" in compared.stdout
    listed = netsum(tmp_path, "list")
    assert "resnet50" in listed.stdout
    assert "quick" in listed.stdout


def test_the_list_of_experiments_is_a_document_too() -> None:
    table, document = (
        CliRunner().invoke(app, ["sim", "list", *options], prog_name="netsum") for options in ([], ["--json"])
    )
    read = json.loads(document.stdout)
    assert {each["name"] for each in read["experiments"]} >= {"quick", "traces"}
    for each in read["experiments"] + read["models"]:
        assert each["name"] in table.stdout
    assert all(each["points"] >= 1 for each in read["experiments"])
