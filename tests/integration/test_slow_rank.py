"""Ranks of a training whose controller says which of them the others wait for."""

import time
from functools import partial

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch
import torch.distributed as dist

from controller.service.client import OperatorClient
from tests.controller.service_harness import until
from tests.integration.torch_ranks import Ranks, local_service

pytestmark = pytest.mark.torch

LATE_S = 0.02
SLOW = 2


def _delayed(rank: int, world: int, calls: int) -> None:
    for _ in range(calls):
        if rank == SLOW:
            time.sleep(LATE_S)
        dist.all_reduce(torch.ones(1000))


def _trained(rank: int, world: int, steps: int) -> None:
    """Train with DDP; one rank is slow in its backward pass alone."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(3)])
    if rank == SLOW:
        model[1].register_full_backward_hook(lambda *_: time.sleep(LATE_S))
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    for _ in range(steps):
        parallel(torch.ones(4, 64)).sum().backward()


@pytest.mark.parametrize("body", [_delayed, _trained])
def test_a_rank_that_is_late_is_named(body: object) -> None:
    with local_service() as (address, _), Ranks(4, {"NETSUM_CONTROLLER": address}) as ranks:
        ranks.run(body, 60)  # type: ignore[arg-type]
        with OperatorClient(address) as client:
            (view,) = client.jobs()
            until(partial(_named, client, view.name))
            last = client.job(view.name).last
    assert last.rank == SLOW
    assert last.late_ns / 1e9 > LATE_S / 2


def _named(client: OperatorClient, name: str) -> bool:
    return bool(client.job(name).HasField("last"))
