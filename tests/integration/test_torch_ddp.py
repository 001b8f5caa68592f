"""DDP over netsum: unchanged scripts, the same training as one process, the same bits everywhere and every time."""

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch
import torch.distributed as dist

from tests.integration import torch_elastic_job
from tests.integration.torch_model import flat, inputs_of, small_model
from tests.integration.torch_ranks import Ranks, forking

pytestmark = pytest.mark.torch

USAGES: list[Callable[[int, int], list[float]]] = []


def usage(function: Callable[[int, int], list[float]]) -> Callable[[int, int], list[float]]:
    """Mark a function that all ranks run together; all end with the same parameters, or gradients."""
    USAGES.append(function)
    return function


@usage
def plain(rank: int, world: int) -> list[float]:
    trained = _trained(torch.nn.parallel.DistributedDataParallel(small_model()), rank)
    torch.testing.assert_close(trained, _plain_alone(world), rtol=0, atol=1e-6)
    return trained


def _train(model: torch.nn.Module, rank: int) -> None:
    descent = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(5):
        descent.zero_grad()
        model(inputs_of(step, rank)).square().mean().backward()
        descent.step()


def _trained(model: torch.nn.Module, rank: int) -> list[float]:
    _train(model, rank)
    return flat(model)


def _plain_alone(world: int) -> list[float]:
    model = small_model()
    descent = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(5):
        descent.zero_grad()
        model(torch.cat([inputs_of(step, rank) for rank in range(world)])).square().mean().backward()
        descent.step()
    return flat(model)


@usage
def accumulation(rank: int, world: int) -> list[float]:
    model = torch.nn.parallel.DistributedDataParallel(small_model(), gradient_as_bucket_view=True)
    before = dist.group.WORLD.communicator.total_stats.collectives
    with model.no_sync():
        model(inputs_of(0, rank)).square().mean().backward()
    assert dist.group.WORLD.communicator.total_stats.collectives == before
    model(inputs_of(1, rank)).square().mean().backward()
    return [float(each) for parameter in model.parameters() for each in parameter.grad.flatten()]


@usage
def uneven_inputs(rank: int, world: int) -> list[float]:
    model = torch.nn.parallel.DistributedDataParallel(small_model())
    descent = torch.optim.SGD(model.parameters(), 0.1)
    with model.join():
        for step in range(2 + rank):
            descent.zero_grad()
            model(inputs_of(step, rank)).square().mean().backward()
            descent.step()
    return flat(model)


@usage
def unused_parameters(rank: int, world: int) -> list[float]:
    class Half(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(2)
            self.parts = torch.nn.ModuleList(torch.nn.Linear(20, 5) for _ in range(2))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.parts[rank % 2](inputs)

    model = torch.nn.parallel.DistributedDataParallel(Half(), find_unused_parameters=True)
    for step in range(2):
        model(inputs_of(step, rank)).square().mean().backward()
    return [float(each) for parameter in model.parameters() for each in parameter.grad.flatten()]


@usage
def scaled_half_precision(rank: int, world: int) -> list[float]:
    """An Inf in one worker's gradient makes every worker skip that step."""
    model = torch.nn.parallel.DistributedDataParallel(small_model())
    descent = torch.optim.SGD(model.parameters(), 0.1)
    device = torch.get_default_device().type
    scaler = torch.amp.GradScaler(device, init_scale=1024.0)
    for step in range(3):
        descent.zero_grad()
        before = flat(model)
        with torch.autocast(device, torch.bfloat16):
            loss = model(inputs_of(step, rank)).square().mean()
        if step == 1 and rank == 1:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.step(descent)
        scaler.update()
        assert (flat(model) == before) == (step == 1)
    assert scaler.get_scale() == 512.0
    return flat(model)


@usage
def zero(rank: int, world: int) -> list[float]:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = torch.nn.parallel.DistributedDataParallel(small_model())
    descent = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    for step in range(3):
        descent.zero_grad()
        model(inputs_of(step, rank)).square().mean().backward()
        descent.step()
    return flat(model)


@usage
def hook(rank: int, world: int) -> list[float]:
    from netsum.torch import allreduce_hook

    model = torch.nn.parallel.DistributedDataParallel(
        small_model(), process_group=dist.new_group(backend="gloo")
    )
    model.register_comm_hook(dist.new_group(backend="netsum"), allreduce_hook)
    trained = _trained(model, rank)
    torch.testing.assert_close(trained, _plain_alone(world), rtol=0, atol=1e-6)
    return trained


@usage
def compressed(rank: int, world: int) -> list[float]:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
        fp16_compress_hook,
        fp16_compress_wrapper,
    )
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

    from netsum.torch import allreduce_hook

    group = dist.group.WORLD
    trained = []
    for state, hook in (
        (group, fp16_compress_hook),
        (group, fp16_compress_wrapper(allreduce_hook)),
        (PowerSGDState(group, 1, start_powerSGD_iter=2), powerSGD_hook),
    ):
        model = torch.nn.parallel.DistributedDataParallel(small_model())
        model.register_comm_hook(state, hook)
        trained += _trained(model, rank)
    return trained


@usage
def built_in_hooks(rank: int, world: int) -> list[float]:
    """DDP's hooks in C++, which take only futures of a list of tensors."""
    trained = []
    gloo = dist.new_group(backend="gloo")
    for kind in (dist.BuiltinCommHookType.ALLREDUCE, dist.BuiltinCommHookType.FP16_COMPRESS):
        for more in ({}, {"bucket_cap_mb": 0.001}):
            models = []
            for group in (dist.group.WORLD, gloo):
                model = torch.nn.parallel.DistributedDataParallel(small_model(), process_group=group, **more)
                model._register_builtin_comm_hook(kind)
                models.append(_trained(model, rank))
            over_netsum, over_gloo = models
            close = 1e-6 if kind is dist.BuiltinCommHookType.ALLREDUCE else 1e-3
            torch.testing.assert_close(over_netsum, over_gloo, rtol=0, atol=close)
            trained += over_netsum
    dist.destroy_process_group(gloo)
    return trained


@usage
def many_buckets_of_a_graph_that_stays(rank: int, world: int) -> list[float]:
    model = torch.nn.parallel.DistributedDataParallel(
        small_model(), static_graph=True, gradient_as_bucket_view=True, bucket_cap_mb=0.001
    )
    trained = _trained(model, rank)
    torch.testing.assert_close(trained, _plain_alone(world), rtol=0, atol=1e-6)
    return trained


@usage
def fully_sharded(rank: int, world: int) -> list[float]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = small_model()
    fully_shard(model, mesh=init_device_mesh(torch.get_default_device().type, (world,)))
    _train(model, rank)
    whole = [float(each) for shard in model.parameters() for each in shard.full_tensor().detach().flatten()]
    torch.testing.assert_close(whole, _plain_alone(world), rtol=0, atol=1e-6)
    return whole


@usage
def fully_sharded_with_gradients_added_as_bfloat16(rank: int, world: int) -> list[float]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    def sent(reduced_as: torch.dtype) -> tuple[int, list[float]]:
        torch.manual_seed(0)
        model = torch.nn.Linear(64, 128 * world)
        mesh = init_device_mesh(torch.get_default_device().type, (world,))
        group = mesh.get_group()
        fully_shard(model, mesh=mesh, mp_policy=MixedPrecisionPolicy(reduce_dtype=reduced_as))
        loss = model(torch.full((4, 64), rank + 1.0)).square().sum()
        before = group.communicator.total_stats.bytes_sent
        loss.backward()
        shard = model.weight.grad.to_local().flatten()
        return group.communicator.total_stats.bytes_sent - before, shard.tolist()

    wide, exact = sent(torch.float32)
    narrow, close = sent(torch.bfloat16)
    assert narrow < 0.6 * wide, "gradients travel in 16 bits"
    largest = max(map(abs, exact))
    torch.testing.assert_close(close, exact, rtol=2**-7, atol=largest * world**2 / 2**15)
    total = torch.tensor(close).sum()
    torch.distributed.all_reduce(total)
    return [float(total)]


@usage
def fully_sharded_first_form(rank: int, world: int) -> list[float]:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(small_model(), device_id=torch.get_default_device())
    _train(model, rank)
    with FullyShardedDataParallel.summon_full_params(model):
        whole = flat(model)
    torch.testing.assert_close(whole, _plain_alone(world), rtol=0, atol=1e-6)
    return whole


@pytest.mark.parametrize("body", [pytest.param(each, id=each.__name__) for each in USAGES])
def test_what_people_do_with_ddp(ranks: Ranks, body: Callable[[int, int], list[float]]) -> None:
    first, *others = ranks.run(body)
    assert all(other == first for other in others)
    assert ranks.run(body)[0] == first, "two runs give the same bits"


def test_a_job_whose_rank_was_killed_is_restarted_from_its_checkpoint(
    tmp_path: Path, torch_service: str
) -> None:
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # As torchrun --standalone --nproc-per-node 2 --max-restarts 1 does, but of ranks that need not load everything anew.
    forking()
    agent = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=2,
        run_id=tmp_path.name,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        local_addr="127.0.0.1",  # else the machine's name would have to be resolved
        max_restarts=1,
        start_method="forkserver",
        monitor_interval=0.1,
    )
    elastic_launch(agent, torch_elastic_job.main)(tmp_path, torch_service)
    results = [torch.load(tmp_path / f"result{rank}.pt") for rank in (0, 1)]
    assert [each["begin"] for each in results] == [5, 5]
    assert torch.equal(results[0]["weight"], results[1]["weight"])
    torch.testing.assert_close(results[0]["weight"], _elastic_alone(), rtol=0, atol=1e-6)


def _elastic_alone() -> torch.Tensor:
    torch.manual_seed(0)
    model = torch.nn.Linear(10, 4)
    descent = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for step in range(8):
        descent.zero_grad()
        parts = [
            torch.randn(16, 10, generator=torch.Generator().manual_seed(100 * step + rank)) for rank in (0, 1)
        ]
        model(torch.cat(parts)).square().mean().backward()
        descent.step()
    return model.weight.detach()
