"""netsum.horovod: `horovod_ranks.py` trains, saves, loads and trains on."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.integration.framework_ranks import run

# Keras imports its backend, so it is not imported here.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("keras") is None, reason="needs Keras: pip install 'netsum[keras]'"),
]


@pytest.mark.skipif(find_spec("tensorflow") is None, reason="needs TensorFlow: pip install tensorflow")
def test_a_tape_of_tensorflow_has_mean_gradients_and_what_is_refused_is_said() -> None:
    for status, output in run(2, "tensorflow_ranks.py", KERAS_BACKEND="tensorflow"):
        said = dict(line.split(": ", 1) for line in output.splitlines() if line.split(":")[0] in _WORDS)
        assert said.keys() == _WORDS - (set() if "left" in said else {"left"}), output
        assert "netsum_needs_jit_compile_False" in said["compiled"]
        assert said["fit"].endswith("netsum.horovod on TensorFlow needs model.compile(…, jit_compile=False)")
        assert (
            "a rank is a process with one replica, this one has 2: start a process for each"
            in said["replicas"]
        )
        assert "netsum.horovod has no join: give all ranks equally many batches" in said["join"]
        assert "the ranks do not agree on this collective: rank" in said["swapped"]
        assert "rank 1 left before this was done" in said.get("left", "rank 1 left before this was done")
        assert status == 0, output


_WORDS = {"compiled", "fit", "replicas", "join", "swapped", "left"}


@pytest.mark.parametrize("backend", ["torch", "jax", "tensorflow"])
def test_fit_on_two_ranks_is_that_on_one(backend: str, tmp_path: Path) -> None:
    if find_spec(backend) is None:
        pytest.skip(f"needs {backend}: pip install {backend}")
    said = []
    for world in (1, 2):
        for status, output in run(
            world, "horovod_ranks.py", str(tmp_path), KERAS_BACKEND=backend, NETSUM_EXACT="1"
        ):
            assert status == 0, output
            said.append(
                dict(
                    line.split(": ", 1) for line in output.splitlines() if line[:7] in ("weights", "losses:")
                )
            )
    alone, one, other = ([float(each) for each in rank["losses"].split()] for rank in said)
    assert said[1]["weights"] == said[2]["weights"]
    assert one == other == pytest.approx(alone, rel=1e-4)
    assert alone[-1] < 0.9 * alone[0]
