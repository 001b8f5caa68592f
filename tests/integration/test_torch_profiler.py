"""netsum's groups in torch's profiler and monitored_barrier."""

from datetime import timedelta

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch
import torch.distributed as dist

from tests.integration.torch_ranks import Ranks

pytestmark = pytest.mark.torch


def test_the_profiler_shows_collectives_by_name_type_and_size(ranks: Ranks) -> None:
    for names in ranks.run(_profiled):
        assert "netsum:all_reduce (SUM) of torch.float32 [3, 4], 48 bytes" in names
        assert "netsum:broadcast from rank 0 of torch.int64 [2], 16 bytes" in names
        assert "netsum:barrier, 0 bytes" in names
        assert names.count("netsum:all_reduce (SUM) of torch.float32 [220], 880 bytes") == 1, "DDP's bucket"


def _profiled(rank: int, world: int) -> list[str]:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 20))
    with torch.profiler.profile() as profile:
        dist.all_reduce(torch.ones(3, 4))
        dist.broadcast(torch.ones(2, dtype=torch.int64), 0)
        dist.barrier()
        model(torch.ones(1, 10)).sum().backward()
    return [event.name for event in profile.events() if event.name.startswith("netsum:")]


def test_a_barrier_names_the_rank_that_does_not_come(ranks: Ranks) -> None:
    ranks.run(_barrier)


def _barrier(rank: int, world: int) -> None:
    from netsum.torch import monitored_barrier

    group = dist.new_group()
    monitored_barrier(group)
    if rank == 0:
        with pytest.raises(RuntimeError, match="Ranks? 2 failed to pass monitoredBarrier"):
            monitored_barrier(group, timedelta(seconds=1), wait_all_ranks=True)
    elif rank == 1:
        with pytest.raises(RuntimeError):
            monitored_barrier(group, timedelta(seconds=1))
    dist.barrier()
    dist.destroy_process_group(group)
