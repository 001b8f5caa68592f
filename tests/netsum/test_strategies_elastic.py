"""A training that goes on after a worker was killed, and then with a new one: real processes, over Gloo on loopback."""

import multiprocessing
import os
import signal
import warnings
from datetime import timedelta
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch
import torch.distributed as dist

import netsum

pytestmark = pytest.mark.torch

# The new worker waits for its group from the start.
_TIMEOUT: Final = timedelta(seconds=240)
_STREAMING: Final = {"sync_every": 4, "fragments": 2, "fragment_sync_delay": 1, "should_quantize": True}
RECIPES: Final[dict[str, dict[str, Any]]] = {
    "diloco": _STREAMING, "sparse-loco": {"sync_every": 3}, "dion": {"rate": 0.2}, "muon": {"rate": 0.1}
}  # fmt: skip
VICTIM: Final = 1


def _leg(name: str, model: Any, store: Path, rank: int, world: int, fresh: bool, dies: bool) -> float:
    """Train in a group until it is done or a worker is lost; begin with the model and the state of rank 0."""
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=world, timeout=_TIMEOUT
    )
    # Dion and Muon update the matrix themselves.
    parameters = [model.bias] if name in ("dion", "muon") else model.parameters()
    optimizer = torch.optim.SGD(parameters, 0.05)
    inputs = torch.randn(8, 8, generator=torch.Generator().manual_seed(rank))
    s = netsum.strategy(name, model, optimizer, **RECIPES[name])
    kept: list[Any] = [torch.load(store.parent / "kept") if rank == 0 and not fresh else None]
    dist.broadcast_object_list(kept)
    if kept[0] is not None:
        model.load_state_dict(kept[0]["model"])
        s.load_state_dict(kept[0]["state"])
    loss = torch.tensor(0.0)
    try:
        with s:
            for step in range(9):
                if rank == 0:
                    torch.save({"model": model.state_dict(), "state": s.state_dict()}, store.parent / "kept")
                with s.step():
                    if dies and step == 6:
                        os.kill(os.getpid(), signal.SIGKILL)
                    loss = torch.nn.functional.mse_loss(model(inputs), inputs[:, :1])
                    loss.backward()
    finally:
        dist.destroy_process_group()
    return float(loss)


def _live(name: str, folder: str, number: int, pipe: Any) -> None:
    """Be worker 0, 1 (which is killed), 2, or 3, which is there from the third group on."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    torch.manual_seed(number)
    model = torch.nn.Linear(8, 1)
    losses: list[float | str] = []
    for leg, members in enumerate(([0, 1, 2], [0, 2], [0, 2, 3])):
        if number in members:
            place = members.index(number), len(members)
            try:
                losses.append(
                    _leg(name, model, Path(folder) / f"store{leg}", *place, leg == 0, number == VICTIM)
                )
            except Exception as error:
                losses.append(f"{getattr(error, '__notes__', [error])[0]}")
    pipe.send((losses, [each.tolist() for each in model.parameters()]))


@pytest.mark.parametrize("name", RECIPES)
def test_the_others_go_on_with_the_state_of_rank_0_and_so_does_a_new_worker(
    tmp_path: Path, name: str
) -> None:
    context = multiprocessing.get_context("fork")
    pipes, processes = {}, []
    for number in range(4):
        pipes[number], theirs = context.Pipe()
        process = context.Process(target=_live, args=(name, str(tmp_path), number, theirs), daemon=True)
        process.start()
        theirs.close()
        processes.append(process)
    try:
        found = {}
        for number in set(pipes) - {VICTIM}:
            assert wait([pipes[number]], 2 * _TIMEOUT.total_seconds()), f"worker {number} hangs"
            found[number] = pipes[number].recv()
    finally:
        for process in processes:
            process.kill()
            process.join()
    for number in (0, 2):
        lost, *losses = found[number][0]
        assert f"the strategy {name} waited for" in lost
        assert len(losses) == 2
        assert max(losses) < 0.6
    assert len({str(model) for _, model in found.values()}) == 1
