"""`netsum bench` reports wrong options as errors before anything is brought up."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from netsum.cli.app import app


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--loss", "0,x"], "--loss: expected a loss in percent (0.1) or with a unit"),
        (["--loss", "101"], "--loss: expected a loss of at most 100 %, not '101'"),
        (["--lanes", "256,65"], "--lanes: expected 64, 256, 512 or 1024, not '65'"),
        (["--rate", "fast"], "--rate: expected a rate above 0, in Mbit/s (100) or with a unit"),
        (["--topology", "nonesuch"], "there is no topology 'nonesuch': expected dumbbell, leaf-spine-4,"),
        (["--topology", "none.json"], "none.json"),
        (["--sizes", "3x"], "a size is a whole number of bytes, KiB, MiB or GiB"),
        (["--overlaps", "full,most"], "--overlaps: expected full, random or none, not 'most'"),
        (
            ["--densities", "10,200"],
            "--densities: expected numbers from 0 to 100 with commas between, not '10,200'",
        ),
        (["--bits", "3"], "--bits: expected 16, 8, 4, 2, not 3"),
        (["--switches", "tofino"], "--switches: expected embedded, xdp or bmv2, not 'tofino'"),
        (["--slots", "3"], "slots: expected a power of two, a share such as 25%, or a link such as"),
    ],
)
def test_a_wrong_option_of_the_allreduce(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["bench", "allreduce", *options], prog_name="netsum")
    assert done.exit_code == 2
    assert done.stderr.startswith("netsum: ")
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not done.stdout
    assert not list(tmp_path.iterdir())


def test_wrong_numbers_of_processes() -> None:
    pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")
    done = CliRunner().invoke(app, ["bench", "torch", "--workers", "2,x"], prog_name="netsum")
    assert done.exit_code == 2
    assert done.stderr == "netsum: --workers: expected whole numbers such as 2,4, not '2,x'\n"
