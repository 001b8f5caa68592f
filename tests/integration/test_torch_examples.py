"""The examples: trained as one process trains, the same bits at every rank, in every run, and with packets lost."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch
import torch.distributed as dist

from tests.integration.torch_ranks import Ranks

pytestmark = pytest.mark.torch

EXAMPLES = Path(__file__).parents[2] / "examples"
DEADLINE_S = 500
STEPS = {
    "digits_cnn": 12,
    "char_lstm": 5,
    "wide_embedding": 4,
    "wide_embedding_sparse": 4,
    "resnet18": 3,
    "transformer_fsdp": 4,
}


@pytest.mark.parametrize("name", STEPS)
def test_an_example_trains_as_one_process_does_also_when_packets_are_lost(
    name: str, ranks: Ranks, ranks_with_loss: Ranks, ranks_with_256_lanes: Ranks
) -> None:
    in_parts = name == "resnet18"  # Batch normalization takes each rank's part of a batch by itself.
    report, *_ = ranks.run(_train, name, not in_parts)
    again, *_ = ranks_with_loss.run(_train, name, False)
    assert in_parts or report["deviation"] <= 10 * report["rounding"]
    assert report["losses"][-1] < report["losses"][0]
    assert len({*report["digests"], *again["digests"]}) == 1
    assert again["losses"] == report["losses"]
    if name.startswith("wide_embedding"):  # zeros do not travel
        report, *_ = ranks_with_256_lanes.run(_train, name, False)
        assert report["sent_bytes"] < report["gradient_bytes"] / 4


def _train(rank: int, world: int, name: str, check: bool) -> dict[str, Any]:
    sys.path.insert(0, os.fspath(EXAMPLES))
    import harness

    task = harness.task_named(name)
    torch.set_num_threads(1)
    report = harness.train_together(task, STEPS[name], seed=0)
    if report is None:
        return {}
    if check:
        harness.compare_with_one_process(task, report, seed=0)
    return dataclasses.asdict(report)


def test_a_sharded_transformer_ends_with_the_weights_that_it_has_over_gloo(ranks: Ranks) -> None:
    for distance in ranks.run(_distance_from_gloo, "transformer_fsdp"):
        assert 0 < distance <= 1e-6, distance


def _distance_from_gloo(rank: int, world: int, name: str) -> float:
    """Return the largest difference of two parameters after the same steps over both backends.

    By SGD: Adam would make steps of full size of what are rounding errors.
    """
    sys.path.insert(0, os.fspath(EXAMPLES))
    import harness

    task = harness.task_named(name)
    torch.set_num_threads(1)
    ended = []
    for backend in ("netsum", "gloo"):
        torch.manual_seed(0)
        model = task.spread(task.model(), dist.new_group(backend=backend), "float32")
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(STEPS[name]):
            characters, following = task.batch(step, rank, world)
            optimizer.zero_grad()
            task.loss(model(characters), following).backward()
            optimizer.step()
        ended.append([harness.whole(each).detach() for each in model.parameters()])
    return max(float((ours - theirs).abs().max()) for ours, theirs in zip(*ended, strict=True))


@pytest.mark.timeout(600)
def test_an_example_runs_under_torchrun_and_brings_its_switch_along(tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    launcher += ["--local-addr", "127.0.0.1", "--log-dir", os.fspath(tmp_path / "logs")]
    options = ["--backend", "netsum", "--steps", "10", "--check", "--out", os.fspath(out)]
    done = subprocess.run(
        [*launcher, os.fspath(EXAMPLES / "digits_cnn.py"), *options],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same bits on every rank" in done.stdout
    assert json.loads(out.read_text())["backend"] == "netsum"
