"""A worker that is killed in the middle of a training, under each strategy: real processes, over Gloo on loopback."""

import multiprocessing
import os
import signal
import tempfile
import warnings
from datetime import timedelta
from multiprocessing.connection import wait
from typing import Any, Final

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch
import torch.distributed as dist

import netsum
from host_agent.strategies.base import STRATEGIES
from host_agent.strategies.parameter_server import ServedStrategy

pytestmark = pytest.mark.torch

_RANKS: Final = 3
_VICTIM: Final = 2
_STEPS: Final = 6
_TIMEOUT: Final = timedelta(seconds=60)
_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "admm": {"every": 2},
    "codistillation": {"groups": 3, "every": 2},
    "diloco": {"sync_every": 4, "fragments": 2, "fragment_sync_delay": 1},
    "dynamic-averaging": {"threshold": 0.001},
    "easgd": {"every": 2},
    "fedavg": {"samples": 8},
    "hierarchical": {"groups": 3, "every": 1, "between": 2},
    "local-sgd": {"sync_every": 2},
    "sparse-loco": {"sync_every": 2},
}


def _train(name: str, rank: int) -> str:
    torch.manual_seed(rank)
    model = torch.nn.Linear(8, 1)
    generator = torch.Generator().manual_seed(rank)
    inputs, targets = torch.randn(8, 8, generator=generator), torch.randn(8, 1, generator=generator)
    # Dion and Muon update the matrix themselves.
    parameters = [model.bias] if name in ("dion", "muon") else model.parameters()
    s: Any = netsum.strategy(name, model, torch.optim.SGD(parameters, 0.05), **_OPTIONS.get(name, {}))
    with s:
        if getattr(s, "serves", False):
            s.serve()
            return f"goes on without rank {', '.join(map(str, sorted(s.lost)))}"
        for step, _ in enumerate(s.rounds(_STEPS) if name == "fedavg" else range(_STEPS)):
            with s.step():
                if rank == _VICTIM and step == _STEPS // 2:
                    os.kill(os.getpid(), signal.SIGKILL)
                outputs = model(inputs)
                s.loss(torch.nn.functional.mse_loss(outputs, targets), inputs, outputs).backward()
    return "goes on"


def _be(rank: int, name: str, store: str, pipe: Any) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=_RANKS, timeout=_TIMEOUT
    )
    try:
        fate = _train(name, rank)
    except Exception as error:
        notes = "; ".join(getattr(error, "__notes__", ()))
        fate = f"{type(error).__name__}: {notes or str(error).splitlines()[0]}"
    pipe.send(fate)


def _fates(name: str) -> list[str]:
    """Return what became of each rank that was not killed."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        processes, pipes = [], []
        for rank in range(_RANKS):
            ours, theirs = context.Pipe()
            process = context.Process(target=_be, args=(rank, name, f"{folder}/store", theirs), daemon=True)
            process.start()
            theirs.close()
            processes.append(process)
            pipes.append(ours)
        try:
            fates = []
            for rank, pipe in enumerate(pipes):
                if rank == _VICTIM:
                    continue
                if not wait([pipe], 2 * _TIMEOUT.total_seconds()):
                    fates.append("HANGS")
                    continue
                try:
                    fates.append(str(pipe.recv()))
                except EOFError:
                    fates.append("ended without a word")
            return fates
        finally:
            for process in processes:
                process.kill()
                process.join()


# Such ranks reduce over a job with a quorum, whose communicator has errors of its own, and not over Gloo.
@pytest.mark.parametrize("name", sorted(STRATEGIES.keys() - {"backup", "decoupled-diloco"}))
def test_a_killed_worker_is_an_error_with_a_name_or_the_others_go_on(name: str) -> None:
    fates = _fates(name)
    if issubclass(STRATEGIES[name], ServedStrategy):  # Rank 0 is the parameter server.
        assert fates == [f"goes on without rank {_VICTIM}", "goes on"]
    else:
        assert all(f"the strategy {name} waited for" in fate for fate in fates), fates
