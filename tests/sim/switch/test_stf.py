"""p4c's own v1model tests, packets in and packets out. The samples are p4c's: they are found, never copied here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sim.switch import UnsupportedProgramError, load_program
from tests.sim.switch.p4c_samples import REFUSED, compile_sample, samples_dir, v1model_samples
from tests.sim.switch.stf import run_stf

pytestmark = [pytest.mark.p4c, pytest.mark.slow]


@pytest.fixture(scope="session")
def compiled(pytestconfig: pytest.Config) -> Path:
    assert pytestconfig.cache is not None
    return pytestconfig.cache.mkdir("p4c")


def test_samples_are_there() -> None:
    if shutil.which("p4c-bm2-ss") is None:
        pytest.skip("p4c is not installed")
    if samples_dir() is None:
        pytest.skip("p4c's samples are not here: set NETSUM_P4C_SAMPLES to its testdata/p4_16_samples")
    assert len(v1model_samples(with_script=True)) > 150


@pytest.mark.parametrize("name", v1model_samples(with_script=True))
def test_sample(name: str, compiled: Path) -> None:
    program, directory = compile_sample(name, compiled), samples_dir()
    assert program is not None
    assert directory is not None
    if name in REFUSED:
        with pytest.raises(UnsupportedProgramError, match=REFUSED[name]):
            load_program(program)
        return
    run_stf(program, directory / f"{name}.stf")
