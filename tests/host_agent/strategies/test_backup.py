"""Backup workers: the same model at all workers, whichever is slow, and its gradients."""

import time
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch.distributed as dist  # noqa: E402

import netsum  # noqa: E402
from host_agent.errors import MisuseError  # noqa: E402
from host_agent.joining import start_service  # noqa: E402
from tests.host_agent.strategies import tasks  # noqa: E402
from tests.integration.torch_ranks import Ranks  # noqa: E402

pytestmark = pytest.mark.torch

QUORUM = 3
ROUNDS = 30
DEADLINE_S = 400.0


def _service(rank: int, world: int) -> str:
    address = [start_service(world) if rank == 0 else ""]
    dist.broadcast_object_list(address)
    return str(address[0])


def _train(rank: int, world: int, slow_s: float, quorum: int) -> Any:
    """Train a linear model; the last worker sleeps in each of its steps."""
    torch.set_num_threads(1)
    service = _service(rank, world)
    model = tasks.linear_model(seed=rank + 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.5)
    inputs, targets = tasks.rows(rank)
    passes = 0
    membership = netsum.join(
        service, job=f"backup-{slow_s}", rank=rank, world_size=world, quorum=quorum, timeout_s=DEADLINE_S
    )
    with membership, membership.communicator(timeout_s=DEADLINE_S) as comm:
        s: Any = netsum.strategy("backup", model, optimizer, communicator=comm, rounds=ROUNDS)
        with s:
            for number in s.training():
                assert number == s.steps
                with s.step():
                    passes += 1
                    time.sleep(slow_s if rank == world - 1 else 0.002)
                    tasks.mean_square(model, inputs, targets).backward()
            with pytest.raises(MisuseError, match="all 30 rounds have ended"), s.step():
                tasks.mean_square(model, inputs, targets).backward()
        assert s.contributed + s.late == passes
        dist.barrier()
        return s.vector().tolist(), s.steps, s.contributed, s.late, s.traffic.synchronizations


def test_a_slow_worker_takes_all_steps_and_has_the_same_model(gloo_ranks: Ranks) -> None:
    found = gloo_ranks.run(_train, 0.05, QUORUM)
    models, steps, contributed, late, _ = zip(*found, strict=True)
    assert list(models) == [models[0]] * 4
    assert steps == (ROUNDS,) * 4
    assert sum(contributed) == QUORUM * ROUNDS
    assert contributed[3] < ROUNDS / 2
    assert late[3] > 0


def test_with_all_workers_it_is_synchronous(gloo_ranks: Ranks) -> None:
    found = gloo_ranks.run(_train, 0.002, 4)
    model = tasks.linear_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.5)
    for _ in range(ROUNDS):
        optimizer.zero_grad()
        tasks.mean_square(model, *tasks.all_rows(4)).backward()
        optimizer.step()
    alone = torch.cat([each.detach().reshape(-1) for each in model.parameters()])
    for vector, steps, contributed, late, _ in found:
        torch.testing.assert_close(torch.tensor(vector, dtype=torch.float64), alone, atol=1e-6, rtol=1e-6)
        assert (steps, contributed, late) == (ROUNDS, ROUNDS, 0)


def _refused(rank: int, world: int) -> list[str]:
    service = _service(rank, world)
    model = tasks.linear_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    refusals = []
    # Another order than that of the process group.
    membership = netsum.join(
        service, job="refused", rank=(rank + 1) % world, world_size=world, timeout_s=DEADLINE_S
    )
    with membership, membership.communicator(timeout_s=DEADLINE_S) as comm:
        for options in ({"rounds": 0}, {"rounds": 1, "scaler": object()}, {"rounds": 1}):
            with pytest.raises(MisuseError) as refusal:
                netsum.strategy("backup", model, optimizer, communicator=comm, **options)
            refusals.append(str(refusal.value))
        dist.barrier()
    return refusals


def test_what_is_refused(gloo_ranks: Ranks) -> None:
    for rounds, scaler, ranks in gloo_ranks.run(_refused):
        assert "rounds must be an integer of at least 1, got 0" in rounds
        assert "takes no scaler" in scaler
        assert "as in the process group" in ranks
