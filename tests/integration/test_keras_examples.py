"""Public examples of Keras under netsum.horovod on two and four processes, beside one: trained, saved, loaded, trained on."""

import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.integration.framework_ranks import run

# Keras imports its backend, so it is not imported here.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(4000),
    pytest.mark.skipif("NETSUM_LONG_TESTS" not in os.environ, reason="long; set NETSUM_LONG_TESTS=1"),
    pytest.mark.skipif(find_spec("keras") is None, reason="needs Keras: pip install 'netsum[keras]'"),
]


def _trained(world: int, backend: str, *words: str) -> list[dict[str, Any]]:
    """Return what rank 0 said of each way of adding, once the other ranks have said the same."""
    ranks = []
    for status, output in run(
        world, "keras_examples.py", *words, KERAS_BACKEND=backend, OMP_NUM_THREADS="1", deadline_s=1500
    ):
        assert status == 0, output
        ranks.append([json.loads(line[6:]) for line in output.splitlines() if line.startswith("said: ")])
    for each in ranks[0]:
        losses = " ".join(f"{loss:.5f}" for loss in each["losses"])
        print(f"{words[0]} {backend} {each['how']} {world}: {losses}, {each['accuracy']:.1%}", end=" ")
        print(f"{each['step_ms']:.1f} ms a step, {each['weights'][:12]}")
    alike = [[(each["losses"], each["weights"]) for each in rank] for rank in ranks]
    assert alike == [alike[0]] * world
    assert len(alike[0]) == len(words) - 3
    return ranks[0]


@pytest.mark.parametrize("name", ["mnist_convnet", "text_classification"])
@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_an_example_on_more_processes_has_the_losses_of_one(backend: str, name: str, tmp_path: Path) -> None:
    if find_spec(backend) is None:
        pytest.skip(f"needs {backend}: pip install {backend}")
    words = name, str(tmp_path), "0", "plain", "exact"
    alone = _trained(1, backend, *words)[0]
    assert alone["losses"][-1] < 0.8 * alone["losses"][0]
    for each in (alone, *_trained(2, backend, *words), *_trained(4, backend, *words)):
        for losses in (each["losses"], each["without a stop"]):
            assert losses == pytest.approx(alone["losses"], rel=5e-3, abs=1e-3)
        assert each["accuracy"] == pytest.approx(alone["accuracy"], abs=0.02)


@pytest.mark.parametrize("name", ["mnist_convnet", "text_classification"])
@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_an_example_with_its_dropout_learns_on_two_processes(backend: str, name: str, tmp_path: Path) -> None:
    if find_spec(backend) is None:
        pytest.skip(f"needs {backend}: pip install {backend}")
    assert _trained(2, backend, name, str(tmp_path), "1", "exact")[0]["accuracy"] > 0.7
