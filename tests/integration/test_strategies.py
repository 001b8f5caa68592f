"""Strategies over netsum's ranks: synchronous is one process, all ranks end with the same bits, and a killed rank."""

import os
import signal
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import netsum  # noqa: E402
from tests.host_agent.strategies import tasks  # noqa: E402
from tests.integration.torch_ranks import Ranks  # noqa: E402

pytestmark = pytest.mark.torch

OPTIONS: dict[str, dict[str, Any]] = {
    "admm": {"every": 2},
    "codistillation": {"groups": 3, "every": 2},
    "diloco": {"sync_every": 4, "fragments": 2, "fragment_sync_delay": 1, "should_quantize": True},
    "dion": {"rank": 1},
    "dynamic-averaging": {"threshold": 0.01},
    "fedavg": {"samples": 8},
    "hierarchical": {"groups": 3, "every": 1},
    "local-sgd": {"sync_every": 2},
    "muon": {},
    "sparse-loco": {"sync_every": 2, "compression": "agreed-chunk-top-k"},
    "synchronous": {},
    "downpour": {},
    "easgd": {"every": 2},
    "stale-synchronous": {"bound": 1},
}
SERVED = ("downpour", "easgd", "stale-synchronous")
STEPS = 6


def _train(rank: int, world: int, name: str, killed: int | None = None) -> Any:
    """Train a linear model; the rank to be killed ends in its fourth step."""
    torch.set_num_threads(1)
    model = tasks.linear_model(rank + 1)
    inputs, targets = tasks.rows(rank)
    # Dion and Muon update the matrix themselves.
    parameters = [model.bias] if name in ("dion", "muon") else model.parameters()
    optimizer = torch.optim.SGD(parameters, 0.05)
    s: Any = netsum.strategy(name, model, optimizer, **OPTIONS[name])
    with s:
        if getattr(s, "serves", False):
            s.serve()
            return s
        rounds = s.rounds(STEPS) if name == "fedavg" else iter([True] * STEPS)
        for step, _ in enumerate(rounds):
            with s.step():
                if rank == killed and step == 3:
                    os.kill(os.getpid(), signal.SIGKILL)
                outputs = model(inputs)
                s.loss(torch.nn.functional.mse_loss(outputs, targets), inputs, outputs).backward()
    return s


def _models(rank: int, world: int) -> dict[str, list[float]]:
    return {name: _train(rank, world, name).vector().tolist() for name in OPTIONS}


def test_all_ranks_end_with_the_same_bits_and_synchronous_is_one_process(ranks: Ranks) -> None:
    found = ranks.run(_models)
    for name in OPTIONS:
        models = [each[name] for each in found]
        assert all(torch.tensor(models[0]).isfinite())
        if name == "codistillation":  # Three groups of one rank each.
            assert len({str(model) for model in models}) == 3
        else:
            assert models == [models[0]] * ranks.world, name
    model = tasks.linear_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for _ in range(STEPS):
        optimizer.zero_grad()
        tasks.mean_square(model, *tasks.all_rows(ranks.world)).backward()
        optimizer.step()
    alone = torch.cat([each.detach().reshape(-1) for each in model.parameters()])
    torch.testing.assert_close(
        torch.tensor(found[0]["synchronous"], dtype=torch.float64), alone, atol=1e-6, rtol=1e-6
    )


def _fate(rank: int, world: int, name: str) -> str:
    import warnings

    warnings.simplefilter("ignore")
    try:
        s = _train(rank, world, name, killed=world - 1)
    except Exception as error:
        return " ".join([str(error), *getattr(error, "__notes__", ())])
    return f"went on without {sorted(s.lost)}" if getattr(s, "serves", False) else "went on"


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_a_killed_rank_is_named_or_the_others_go_on_without_it(torch_service: str, name: str) -> None:
    with Ranks(3, {"NETSUM_CONTROLLER": torch_service}) as ranks:
        fates = ranks.run(_fate, name)
    assert fates[2] is None
    if name in SERVED:
        assert fates[:2] == ["went on without [2]", "went on"]
        return
    for fate in fates[:2]:
        assert f"the strategy {name} waited for" in fate
        assert "rank 2" in fate or "rank 0" in fate or "rank 1" in fate, fate
    assert any("rank 2" in fate for fate in fates[:2]), fates
