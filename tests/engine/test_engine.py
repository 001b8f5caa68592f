"""`python -m tests.engine`: its packets are a job's, and all of them are added."""

from pathlib import Path

import pytest

from netsum.programs import compiled_program
from sim.switch import Switch, load_program
from tests.engine.comparison import BenchError, _batches, _check_twin, measure
from tests.engine.traffic import BenchJob, contributions, install
from tests.engine.twin import Twin, compiler
from tests.sim.switch.thrift import run_client


def test_all_packets_of_the_measurement_are_aggregated() -> None:
    # The measurement raises if a result is missing, or if the C program's output differs.
    comparison = measure(64, runs=1)

    assert len(comparison.engine) == 1
    assert len(comparison.twin) == (compiler() is not None)


@pytest.mark.skipif(compiler() is None, reason="no C compiler")
def test_a_c_program_that_puts_out_something_else_is_an_error() -> None:
    job = BenchJob(3, 64)
    switch = Switch(load_program(compiled_program(64).json))
    install(switch, job)
    batches = _batches(contributions(job, 200))
    _check_twin(switch, Twin(job, 256), batches)
    with pytest.raises(BenchError, match="different packets"):
        _check_twin(switch, Twin(BenchJob(3, 64, epoch=8, slots=32), 256), batches)


def test_the_client_of_bmv2_runs_without_the_virtual_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("system", "env/bin"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "python3").write_text(f"#!/bin/sh\necho {name}\n")
        (tmp_path / name / "python3").chmod(0o755)
    client = tmp_path / "system" / "simple_switch_CLI"
    client.write_text("#!/bin/sh\npython3\n")
    client.chmod(0o755)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "env"))
    monkeypatch.setenv("PATH", f"{tmp_path}/env/bin:{tmp_path}/system:/bin")
    done = run_client(["set_queue_depth 1"])
    assert (done.returncode, done.stdout) == (0, "system\n")
