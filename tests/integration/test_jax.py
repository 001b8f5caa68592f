"""netsum.jax in processes of its own: `jax_ranks.py` compares every element there."""

import os
import subprocess
import sys

import pytest

from tests.integration.framework_ranks import ROOT, run

pytest.importorskip("jax", reason="needs JAX: pip install 'netsum[jax]'")

pytestmark = pytest.mark.slow


def _lines(output: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in output.splitlines() if line.split(":")[0] in _WORDS)


_WORDS = ("max", "uint32", "again", "weights", "swapped", "left")


def test_collectives_gradients_and_training_on_one_and_three_ranks() -> None:
    outputs = [run(1, "jax_ranks.py"), run(3, "jax_ranks.py")]
    for status, output in (each for ranks in outputs for each in ranks):
        assert status == 0, output
    said = [[_lines(output) for _, output in ranks] for ranks in outputs]
    assert len({each["weights"] for ranks in said for each in ranks}) == 1
    assert said[0][0]["max"].endswith("max has no gradient in netsum.jax: only sum and mean have")
    assert (
        said[0][0]["uint32"]
        == "netsum reduces no uint32: convert the array, for instance to int64 or float32"
    )
    assert "call netsum.jax.shutdown first" in said[0][0]["again"]
    for each in said[1]:
        assert "the ranks do not agree on this collective" in each["swapped"]
        assert "jax_ranks.py:" in each["swapped"]
    for each in said[1][:2]:
        assert each["left"].endswith("rank 2 left before this was done")


def test_jaxs_own_reductions_go_through_the_switch_once_installed() -> None:
    for status, output in run(2, "jax_psum_ranks.py"):
        assert status == 0, output
        assert "psum: done" in output


def test_a_jax_without_the_private_names_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import jax
    from jax._src.lax import parallel

    import netsum.jax

    monkeypatch.setattr(netsum.jax, "_current", [object()])
    monkeypatch.delattr(parallel, "psum_invariant_p")
    with pytest.raises(
        ImportError, match=f"JAX {jax.__version__} .*call netsum.jax.allreduce in place of jax.lax.psum"
    ):
        netsum.jax.install()


def test_a_process_with_two_devices_is_refused() -> None:
    environment = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, "-c", "import netsum.jax; netsum.jax.init()"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "a rank is a process with one device, this one has 2: start a process for each" in done.stderr
    assert done.returncode == 1
