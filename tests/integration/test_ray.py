"""netsum.ray's collectives of actors, and Ray Train over netsum's process group."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ray = pytest.importorskip("ray", reason="needs Ray: pip install 'ray[train]'")

from ray.util import collective  # noqa: E402
from ray.util.collective.types import ReduceOp  # noqa: E402

import netsum.ray  # noqa: E402

pytestmark = pytest.mark.slow
ROOT = str(Path(__file__).parents[2])


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    netsum.ray.register()
    environment = {
        "env_vars": {"PYTHONPATH": ROOT, "NETSUM_CONTROLLER": ""},
        "worker_process_setup_hook": "netsum.ray.register",
    }
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, runtime_env=environment)
    yield
    ray.shutdown()


def _actors(count: int, name: str) -> list[Any]:
    class Rank:
        def run(self, call: Any) -> Any:
            return call()

    made = [ray.remote(Rank).remote() for _ in range(count)]
    collective.create_collective_group(made, count, list(range(count)), backend="NETSUM", group_name=name)
    return made


def _five_calls() -> dict[str, Any]:
    collective.barrier("five")  # The first call makes the group.
    rank = collective.get_rank("five")
    torch = pytest.importorskip("torch")
    summed, largest = np.full(3, rank + 1.0), np.array([rank, -rank])
    collective.allreduce(summed, "five")
    collective.allreduce(largest, "five", ReduceOp.MAX)
    again = torch.full((3,), rank + 1.0, dtype=torch.bfloat16)
    collective.reduce(again, 1, "five")
    part, pieces = torch.zeros(2), [torch.full((2,), float(10 * rank + each)) for each in range(2)]
    collective.reducescatter(part, pieces, "five")
    gathered = [np.zeros(2, np.int32) for _ in range(2)]
    collective.allgather(gathered, np.full(2, rank, np.int32), "five")
    sent = torch.tensor([rank + 7])
    collective.broadcast(sent, 1, "five")
    refused = []
    for call in (
        lambda: collective.allreduce(summed, "five", ReduceOp.PRODUCT),
        lambda: collective.send(summed, 1 - rank, "five"),
        lambda: collective.allgather(gathered, np.zeros(2), "five"),
        lambda: collective.allreduce(np.ones(3, np.uint32), "five"),
    ):
        with pytest.raises(netsum.NetsumError) as caught:
            call()  # type: ignore[no-untyped-call]
        refused.append(str(caught.value))
    collective.destroy_collective_group("five")
    results = [each.tolist() for each in (summed, largest, again, part, *gathered, sent)]
    return {"rank": rank, "results": results, "refused": refused}


def test_collectives_of_two_actors_have_the_right_elements(cluster: None) -> None:
    said = ray.get([each.run.remote(_five_calls) for each in _actors(2, "five")], timeout=200)
    for rank, each in enumerate(said):
        assert each["rank"] == rank
        reduced, scattered = ([3.0] * 3 if rank == 1 else [1.0] * 3), [10.0 + 2 * rank] * 2
        assert each["results"] == [[3.0] * 3, [1, 0], reduced, scattered, [0, 0], [1, 1], [8]]
        assert "reduce by SUM, MIN and MAX, not by PRODUCT" in each["refused"][0]
        assert "have no send and recv" in each["refused"][1]
        assert each["refused"][3].startswith("netsum reduces no uint32: convert the array")
        assert "expected a list of 2 tensors like the other argument, got 2, in all of" in each["refused"][2]


def _sum() -> str:
    try:
        collective.allreduce(np.ones(3), "killed")
    except netsum.NetsumError as error:
        return str(error)
    return ""


def test_a_killed_actor_is_named_within_seconds(cluster: None) -> None:
    actors = _actors(3, "killed")
    assert ray.get([each.run.remote(_sum) for each in actors], timeout=200) == [""] * 3
    ray.kill(actors[1])
    began = time.monotonic()
    heard = ray.get([actors[each].run.remote(_sum) for each in (0, 2)], timeout=60)
    assert time.monotonic() - began < 20
    assert all(each.endswith("rank 1 left before this was done") for each in heard)


def _training(folder: dict[str, str]) -> None:
    import torch
    from ray.train.torch import prepare_model

    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    torch.manual_seed(rank)
    model = prepare_model(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = (model(_inputs(step)[rank::world]) ** 2).mean()
        loss.backward()
        optimizer.step()
        torch.distributed.all_reduce(loss.detach())
        losses.append(loss.item() / world)
    weights = [each.flatten().tolist() for each in model.parameters()]
    said = {"backend": torch.distributed.get_backend(), "ranks": world, "weights": weights, "losses": losses}
    # Ray keeps the metrics of a report only where a checkpoint comes with it.
    Path(folder["said"], f"{rank}.json").write_text(json.dumps(said))


def _inputs(step: int) -> Any:
    import torch

    return torch.randn(8, 4, generator=torch.Generator().manual_seed(step))


def test_ray_train_reduces_gradients_of_two_workers_over_netsum(
    cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Workers that are not up within a minute, as on a busy machine, Ray would start again without end.
    monkeypatch.setenv("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "200")
    torch = pytest.importorskip("torch")
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    (tmp_path / "said").mkdir()
    TorchTrainer(
        _training,
        train_loop_config={"said": str(tmp_path / "said")},
        torch_config=TorchConfig(backend="netsum", timeout_s=100),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            storage_path=os.fspath(tmp_path), failure_config=FailureConfig(controller_failure_limit=0)
        ),
    ).fit()
    first, second = (json.loads((tmp_path / f"said/{rank}.json").read_text()) for rank in range(2))
    assert first == second
    assert (first["backend"], first["ranks"]) == ("netsum", 2)
    torch.manual_seed(0)  # Rank 0's weights, which DistributedDataParallel begins with.
    alone = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(alone.parameters(), 0.01)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = (alone(_inputs(step)) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert first["losses"] == pytest.approx(losses, rel=1e-5)
    expected = [each.flatten().tolist() for each in alone.parameters()]
    assert first["weights"] == [pytest.approx(each, rel=1e-5, abs=1e-6) for each in expected]
