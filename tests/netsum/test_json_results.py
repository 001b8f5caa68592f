"""`--json` of commands that compute: one document on standard output, what people read on standard error."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TINY = '[topology]\nrate = "10gbit"\n[[job]]\nworkers = 2\nsize = "4KiB"\nlanes = 64\n'


def document_of(folder: Path, arguments: str) -> tuple[Any, str]:
    done = subprocess.run(
        [sys.executable, "-P", "-c", "from netsum.cli import main; main()", *arguments.split(), "--json"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.parametrize(
    ("arguments", "key", "said"),
    [
        ("run digits --steps 3", "runs", "same bits as loss-free"),
        ("explore --list", "configurations", "what else may happen"),
        ("explore smallest", "searches", "explored in full, 0 violations"),
    ],
)
def test_a_result_is_one_document(tmp_path: Path, arguments: str, key: str, said: str) -> None:
    document, text = document_of(tmp_path, arguments)
    assert isinstance(document[key][0], dict)
    assert said in text


def test_an_experiment_s_rows_are_those_of_its_report(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "tiny.toml").write_text(TINY)
    ran, text = document_of(tmp_path, "sim run tiny.toml")
    assert "report:  runs/sim/tiny/report.html" in text
    (row,) = ran["rows"]
    assert row["medians"]["duration_ns"]["value"] > 0
    assert (tmp_path / ran["results"]).is_file()
    assert document_of(tmp_path, "sim report runs/sim/tiny")[0]["rows"] == ran["rows"]
