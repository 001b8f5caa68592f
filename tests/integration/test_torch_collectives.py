"""Every collective of the c10d surface, in a job of three ranks on the embedded switch, without loss and with."""

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor, Replicate, init_device_mesh
from torch.testing._internal.two_tensor import TwoTensor

from tests.integration.torch_ranks import Ranks

pytestmark = pytest.mark.torch

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
CHECKS: list[Callable[[int, int], None]] = []


def check(function: Callable[[int, int], None]) -> Callable[[int, int], None]:
    """Mark a function that all ranks run together."""
    CHECKS.append(function)
    return function


@check
def reductions(rank: int, world: int) -> None:
    for dtype in FLOATS + INTEGERS:
        given = [(torch.arange(600) % 5 + each + 1).to(dtype) for each in range(world)]
        stacked = torch.stack(given).double()
        expected = {"SUM": stacked.sum(0), "MIN": stacked.amin(0), "MAX": stacked.amax(0)}
        expected["AVG"] = stacked.mean(0) if dtype in FLOATS else stacked.sum(0).div(world).trunc()
        for name, wanted in expected.items():
            tensor = given[rank].clone()
            dist.all_reduce(tensor, getattr(dist.ReduceOp, name))
            precision = torch.finfo(dtype).eps if dtype in FLOATS else 0
            torch.testing.assert_close(
                tensor.double(), wanted, rtol=precision, atol=1e-7 if dtype in FLOATS else 0
            )


@check
def bits(rank: int, world: int) -> None:
    for dtype in INTEGERS:
        given = [torch.arange(7).to(dtype) * (each + 1) for each in range(world)]
        for op, wanted in (
            (dist.ReduceOp.BOR, given[0] | given[1] | given[2]),
            (dist.ReduceOp.BAND, given[0] & given[1] & given[2]),
        ):
            tensor = given[rank].clone()
            dist.all_reduce(tensor, op)
            assert torch.equal(tensor, wanted), (dtype, op)


@check
def bools(rank: int, world: int) -> None:
    some, every = torch.tensor([rank == 1, True, False]), torch.tensor([rank == 1, True, False])
    dist.all_reduce(some, dist.ReduceOp.SUM)
    dist.all_reduce(every, dist.ReduceOp.MIN)
    assert some.tolist() == [True, True, False]
    assert every.tolist() == [False, True, False]


@check
def wide_integers(rank: int, world: int) -> None:
    limit, here = 2**63 // world - 1, torch.get_default_device()
    given = [
        torch.randint(-limit, limit, (500,), generator=torch.Generator(here).manual_seed(each))
        for each in range(world)
    ]
    stacked = torch.stack(given)
    for op, wanted in (
        (dist.ReduceOp.SUM, stacked.sum(0)),
        (dist.ReduceOp.MIN, stacked.amin(0)),
        (dist.ReduceOp.MAX, stacked.amax(0)),
    ):
        tensor = given[rank].clone()
        dist.all_reduce(tensor, op)
        assert torch.equal(tensor, wanted), op


@check
def sums_that_do_not_fit(rank: int, world: int) -> None:
    for dtype in INTEGERS:
        tensor = torch.full((3,), torch.iinfo(dtype).max, dtype=dtype)
        with pytest.raises(dist.DistBackendError, match="not fit"):
            dist.all_reduce(tensor)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)  # the group goes on
    assert tensor.tolist() == [world] * 3


@check
def products_go_through_gloo(rank: int, world: int) -> None:
    tensor = torch.tensor([2.0, rank + 1])
    dist.all_reduce(tensor, dist.ReduceOp.PRODUCT)
    assert tensor.tolist() == [2.0**world, 6.0]


@check
def scaled_sums(rank: int, world: int) -> None:
    tensor = torch.ones(4) * rank
    dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.5))
    assert tensor.tolist() == [1.5] * 4


@check
def non_finite(rank: int, world: int) -> None:
    tensor = torch.ones(1200)
    if rank == 1:
        tensor[0] = float("inf")
    dist.all_reduce(tensor)
    assert not torch.isfinite(tensor[0])
    assert torch.isfinite(tensor[-1])


@check
def any_layout(rank: int, world: int) -> None:
    transposed = torch.arange(12.0).reshape(3, 4).t()
    strided = torch.arange(40, dtype=torch.int16)[::3]
    for tensor in (transposed, strided, torch.tensor(2.5), torch.empty(0), torch.ones(2, requires_grad=True)):
        before = tensor.detach().clone()
        dist.all_reduce(tensor)
        assert torch.equal(tensor.detach(), before * world)
        tensor.detach().copy_(before + rank)
        dist.broadcast(tensor, 2)
        assert torch.equal(tensor.detach(), before + 2)


@check
def values_that_are_not_those_of_the_memory(rank: int, world: int) -> None:
    numbers = torch.tensor([1 + 2j, 3 - 4j]) * (rank + 1)
    negated = numbers.conj().imag
    dist.all_reduce(negated)
    assert negated.tolist() == [-12, 24]
    dist.broadcast(negated.mul_(rank), 1)
    assert numbers.imag.tolist() == [12, -24]


@check
def inference(rank: int, world: int) -> None:
    with torch.inference_mode():
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.bool):
            tensor = torch.ones(4, 3, dtype=dtype).t()
            dist.all_reduce(tensor)
            assert (tensor == (1 if dtype == torch.bool else world)).all()
            dist.broadcast(tensor, 1)
            pieces = [torch.empty_like(tensor) for _ in range(world)]
            dist.all_gather(pieces, tensor)
            assert torch.equal(pieces[2], tensor)


@check
def broadcasts(rank: int, world: int) -> None:
    for dtype in (*FLOATS, *INTEGERS, torch.bool, torch.complex64):
        tensor = (torch.arange(11) * (rank + 1)).to(dtype)
        dist.broadcast(tensor, 1)
        assert torch.equal(tensor, (torch.arange(11) * 2).to(dtype)), dtype


@check
def complex_sums(rank: int, world: int) -> None:
    tensor = torch.full((3, 2), complex(rank, 1.0))
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.full((3, 2), complex(3.0, 3.0)))


@check
def gathers(rank: int, world: int) -> None:
    pieces = [torch.zeros(2, 3, dtype=torch.bfloat16) for _ in range(world)]
    dist.all_gather(pieces, torch.full((2, 3), rank, dtype=torch.bfloat16))
    assert [float(piece[1, 2]) for piece in pieces] == [0, 1, 2]
    strided = [torch.zeros(3, 2).t() for _ in range(world)]
    dist.all_gather(strided, torch.full((2, 3), float(rank)))
    assert [float(piece[1, 2]) for piece in strided] == [0, 1, 2]
    before = dist.group.WORLD.communicator.total_stats.collectives
    uneven = [torch.zeros(each, 2, dtype=torch.bfloat16) for each in range(world)]
    dist.all_gather(uneven, torch.full((rank, 2), float(rank), dtype=torch.bfloat16))
    assert [each.tolist() for each in uneven] == [[], [[1, 1]], [[2, 2], [2, 2]]]
    assert dist.group.WORLD.communicator.total_stats.collectives == before + 1
    for gather in (dist.all_gather_single, dist.all_gather_into_tensor):
        whole = torch.zeros(world * 2, 3)
        gather(whole, torch.full((2, 3), float(rank)))
        assert whole[::2, 0].tolist() == [0, 1, 2]
    lists = [[torch.zeros(2), torch.zeros(3, 1)] for _ in range(world)]
    dist.all_gather_coalesced(lists, [torch.full((2,), float(rank)), torch.full((3, 1), float(rank))])
    assert [(float(first[0]), float(second[2, 0])) for first, second in lists] == [(0, 0), (1, 1), (2, 2)]


@check
def python_objects(rank: int, world: int) -> None:
    objects: list[Any] = [None] * world
    dist.all_gather_object(objects, {"rank": rank, "long": "x" * rank})
    assert [each["rank"] for each in objects] == [0, 1, 2]
    greeting = ["hello" if rank == 0 else None]
    dist.broadcast_object_list(greeting)
    assert greeting == ["hello"]
    mine: list[Any] = [None]
    dist.scatter_object_list(mine, [f"for {each}" for each in range(world)] if rank == 1 else None, src=1)
    assert mine == [f"for {rank}"]
    collected: list[Any] | None = [None] * world if rank == 2 else None
    dist.gather_object(rank * 10, collected, dst=2)
    assert collected == ([0, 10, 20] if rank == 2 else None)
    if rank == 0:
        dist.send_object_list(["a", 1], dst=2)
    elif rank == 2:
        received: list[Any] = [None, None]
        dist.recv_object_list(received, src=0)
        assert received == ["a", 1]


@check
def reductions_to_one(rank: int, world: int) -> None:
    tensor = torch.full((5,), float(rank))
    dist.reduce(tensor, 1)
    assert tensor.tolist() == ([3.0] * 5 if rank == 1 else [float(rank)] * 5)
    tensor = torch.full((5,), rank)
    dist.reduce(tensor, 2, dist.ReduceOp.MAX)
    assert tensor.tolist() == [2 if rank == 2 else rank] * 5
    for scatter in (dist.reduce_scatter_single, dist.reduce_scatter_tensor):
        whole, part = torch.arange(4.0 * world), torch.zeros(4)
        scatter(part, whole)
        assert torch.allclose(part, world * whole.view(world, 4)[rank])
        scatter(part, whole, dist.ReduceOp.AVG)
        assert torch.allclose(part, whole.view(world, 4)[rank])
    part = torch.zeros(2, 2)
    dist.reduce_scatter(part, [torch.full((2, 2), float(each)) for each in range(world)])
    assert torch.allclose(part, torch.full((2, 2), float(world * rank)))
    counts = torch.zeros(2, dtype=torch.int64)
    dist.reduce_scatter(counts, [torch.tensor([each, -rank]) for each in range(world)], dist.ReduceOp.MIN)
    assert counts.tolist() == [rank, -2]


@check
def coalesced(rank: int, world: int) -> None:
    tensors = [torch.full((each,), float(rank)) for each in (1, 300, 7)]
    with dist._coalescing_manager(async_ops=True) as together:
        for tensor in tensors:
            dist.all_reduce(tensor)
    together.wait()
    assert all((tensor == 3).all() for tensor in tensors)
    dist.all_reduce_coalesced(tensors, dist.ReduceOp.AVG)
    assert all((tensor == 3).all() for tensor in tensors)
    wholes = [torch.zeros(world * count) for count in (2, 300)]
    with dist._coalescing_manager(async_ops=True) as together:
        for whole in wholes:
            dist.all_gather_into_tensor(whole, torch.full((len(whole) // world,), float(rank)))
    together.wait()
    assert all(whole.view(world, -1)[:, -1].tolist() == [0, 1, 2] for whole in wholes)
    parts = [torch.zeros(2), torch.zeros(300)]
    with dist._coalescing_manager(async_ops=True) as together:
        for part, whole in zip(parts, wholes, strict=True):
            dist.reduce_scatter_tensor(part, whole)
    together.wait()
    assert all((part == world * rank).all() for part in parts)


@check
def from_one_to_another(rank: int, world: int) -> None:
    after, before = (rank + 1) % world, (rank - 1) % world
    if rank == 0:
        dist.send(torch.ones(3), 1)
    elif rank == 1:
        received = torch.zeros(3)
        dist.recv(received, 0)
        assert received.tolist() == [1, 1, 1]
    received = torch.zeros(2)
    works = [dist.isend(torch.full((2,), float(rank)), after, tag=5), dist.irecv(received, before, tag=5)]
    for work in works:
        work.wait()
    assert received.tolist() == [before] * 2
    batch = [
        dist.P2POp(dist.isend, torch.full((2,), float(rank + 10)), after),
        dist.P2POp(dist.irecv, received, before),
    ]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    assert received.tolist() == [before + 10] * 2
    if rank == 2:
        senders = sorted(dist.recv(received) for _ in range(2))
        assert senders == [0, 1]
    else:
        dist.send(torch.ones(2), 2)


@check
def from_all_to_all(rank: int, world: int) -> None:
    swapped = torch.zeros(world)
    dist.all_to_all_single(swapped, torch.full((world,), float(rank)))
    assert swapped.tolist() == [0, 1, 2]
    lists = [torch.zeros(2) for _ in range(world)]
    dist.all_to_all(lists, [torch.full((2,), 10.0 * rank + each) for each in range(world)])
    assert [float(each[0]) for each in lists] == [10.0 * each + rank for each in range(world)]
    uneven = torch.zeros(sum(range(1, world + 1)))
    dist.all_to_all_single(
        uneven, torch.full(((rank + 1) * world,), float(rank)), list(range(1, world + 1)), [rank + 1] * world
    )
    assert uneven.tolist() == [0, 1, 1, 2, 2, 2]


@check
def from_one_to_all_and_back(rank: int, world: int) -> None:
    mine = torch.zeros(2)
    dist.scatter(mine, [torch.full((2,), float(each)) for each in range(world)] if rank == 0 else None)
    assert mine.tolist() == [rank, rank]
    collected = [torch.zeros(2) for _ in range(world)] if rank == 0 else None
    dist.gather(mine, collected)
    if collected is not None:
        assert [float(each[0]) for each in collected] == [0, 1, 2]


def pair(first: float, second: float, length: int = 2) -> TwoTensor:
    return TwoTensor(torch.full((length,), float(first)), torch.full((length,), float(second)))


def pairs(*tensors: TwoTensor) -> list[tuple[list[float], list[float]]]:
    return [(each.a.tolist(), each.b.tolist()) for each in tensors]


@check
def tensors_made_of_others(rank: int, world: int) -> None:
    mine = pair(0, 0)
    dist.scatter(mine, [pair(each, -each) for each in range(world)] if rank == 0 else None)
    assert pairs(mine) == [([rank, rank], [-rank, -rank])]
    collected = [pair(0, 0) for _ in range(world)]
    every_rank = [([each, each], [-each, -each]) for each in range(world)]
    dist.gather(mine, collected if rank == 1 else None, 1)
    assert rank != 1 or pairs(*collected) == every_rank
    collected = [pair(0, 0) for _ in range(world)]
    dist.all_gather(collected, mine)
    assert pairs(*collected) == every_rank
    whole = pair(0, 0, 2 * world)
    dist.all_gather_into_tensor(whole, mine)
    assert pairs(whole) == [([0, 0, 1, 1, 2, 2], [0, 0, -1, -1, -2, -2])]
    dist.all_to_all(collected, [pair(rank, each) for each in range(world)])
    assert pairs(*collected) == [([each, each], [rank, rank]) for each in range(world)]
    dist.reduce_scatter(mine, [pair(each, rank * each) for each in range(world)])
    assert pairs(mine) == [([3 * rank] * 2, [3 * rank] * 2)]
    dist.reduce_scatter_tensor(mine, pair(1, rank, 2 * world), dist.ReduceOp.MAX)
    assert pairs(mine) == [([1, 1], [2, 2])]
    for operation, first, second in ((dist.ReduceOp.SUM, 3, 30), (dist.ReduceOp.PRODUCT, 0, 0)):
        mine = pair(rank, 10 * rank)
        dist.all_reduce(mine, operation)
        assert pairs(mine) == [([first] * 2, [second] * 2)]
    mine = pair(rank, 5 * rank)
    dist.broadcast(mine, 2)
    assert pairs(mine) == [([2, 2], [10, 10])]
    dist.reduce(mine, 1)
    assert rank != 1 or pairs(mine) == [([6, 6], [30, 30])]
    mine = pair(rank, -rank)
    if rank == 0:
        dist.send(mine, 2)
    elif rank == 2:
        dist.recv(mine, 0)
        assert pairs(mine) == [([0, 0], [0, 0])]


@check
def tensors_under_way_and_distributed_ones(rank: int, world: int) -> None:
    under_way = AsyncCollectiveTensor(torch.full((2,), rank + 1.0))
    dist.all_reduce(under_way)
    assert under_way.tolist() == [6, 6]
    distributed = DTensor.from_local(
        torch.ones(2), init_device_mesh(torch.get_default_device().type, (world,)), [Replicate()]
    )
    with pytest.raises(NotImplementedError, match="allreduce_.*does not have a sharding strategy"):
        dist.all_reduce(distributed)


@check
def barriers(rank: int, world: int) -> None:
    dist.barrier()
    assert dist.barrier(async_op=True).wait()
    dist.group.WORLD.monitored_barrier(wait_all_ranks=True)


@check
def many_in_flight(rank: int, world: int) -> None:
    tensors = [torch.full((20_000,), float(each)) for each in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    last = works[-1].get_future()
    assert torch.equal(last.wait()[0], torch.full((20_000,), 57.0))
    for work in reversed(works):
        assert work.wait()
        assert work.is_completed()
        assert work.is_success()
    assert all((tensor == world * each).all() for each, tensor in enumerate(tensors))
    doubled = (
        dist.all_reduce(torch.ones(1), async_op=True).get_future().then(lambda done: done.value()[0] * 2)
    )
    assert doubled.wait().item() == 2 * world


@check
def subgroups(rank: int, world: int) -> None:
    pair, all_ranks = dist.new_group([0, 2]), dist.new_group()
    tensor = torch.ones(3)
    if rank != 1:
        dist.all_reduce(tensor, group=pair)
        assert tensor.tolist() == [2, 2, 2]
    dist.all_reduce(tensor, group=all_ranks)
    assert tensor.tolist() == [5, 5, 5]
    dist.barrier(group=all_ranks)


@check
def subgroups_in_any_order(rank: int, world: int) -> None:
    outer, inner = dist.new_group([2, 0]), dist.new_group([1, 2])
    alone = dist.new_group([rank], use_local_synchronization=True)
    tensor = torch.full((3,), float(rank))
    if rank != 1:
        dist.broadcast(tensor, 2, group=outer)
        assert tensor.tolist() == [2, 2, 2]
    if rank != 0:
        dist.all_reduce(tensor, group=inner)
        assert tensor.tolist() == [3, 3, 3]
    before, parts = tensor.clone(), [torch.zeros(3)]
    dist.all_reduce(tensor, dist.ReduceOp.AVG, group=alone)
    dist.all_gather(parts, tensor, group=alone)
    assert torch.equal(parts[0], before)
    groups = [each for each in (outer, alone, inner) if each is not dist.GroupMember.NON_GROUP_MEMBER]
    for group in groups if rank == 1 else reversed(groups):
        dist.destroy_process_group(group)


@check
def functional(rank: int, world: int) -> None:
    from torch.distributed import _functional_collectives as collectives
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh(torch.get_default_device().type, (world,))
    assert collectives.all_reduce(torch.ones(2), "sum", mesh).tolist() == [world, world]
    assert collectives.all_gather_tensor(torch.ones(2) * rank, 0, mesh).tolist() == [0, 0, 1, 1, 2, 2]
    assert collectives.reduce_scatter_tensor(torch.ones(6) * rank, "sum", 0, mesh).tolist() == [3, 3]
    assert collectives.broadcast(torch.ones(2) * rank, 1, mesh).tolist() == [1, 1]
    assert collectives.all_to_all_single(torch.ones(3) * rank, None, None, mesh).tolist() == [0, 1, 2]


@check
def statistics(rank: int, world: int) -> None:
    assert dist.get_backend() == "netsum"
    dist.all_reduce(torch.ones(1))
    assert dist.group.WORLD.communicator.total_stats.collectives > 0


def _on_these_ranks(body: Callable[[int, int], None]) -> Any:
    return pytest.param(body, id=body.__name__)


@pytest.mark.parametrize("body", [_on_these_ranks(each) for each in CHECKS])
def test_a_collective_gives_what_its_definition_says(ranks: Ranks, body: Callable[[int, int], None]) -> None:
    ranks.run(body)


@pytest.mark.parametrize("body", [_on_these_ranks(each) for each in CHECKS])
def test_a_collective_does_so_over_a_network_that_loses_packets(
    ranks_with_loss: Ranks, body: Callable[[int, int], None]
) -> None:
    ranks_with_loss.run(body)


def test_bits_are_the_same_at_every_rank_in_every_run_and_with_loss(
    ranks: Ranks, ranks_with_loss: Ranks
) -> None:
    without, again = ranks.run(bits_of_reductions), ranks.run(bits_of_reductions)
    with_loss = ranks_with_loss.run(bits_of_reductions)
    assert len({digest for digest, _ in without + again + with_loss}) == 1
    assert sum(retransmissions for _, retransmissions in with_loss) > 0


def bits_of_reductions(rank: int, world: int) -> tuple[str, int]:
    """Return a digest of the results of reductions, and how many packets were sent again."""
    digest = hashlib.sha256()
    generator = torch.Generator().manual_seed(rank)
    before = dist.group.WORLD.communicator.total_stats.retransmissions
    for dtype in FLOATS:
        for kind in ("SUM", "AVG", "MAX"):
            scale = torch.logspace(-6, 6, 40_000, device="cpu")
            given = torch.randn(40_000, generator=generator, device="cpu") * scale
            tensor = given.clamp(-6e4, 6e4).to(torch.get_default_device(), dtype)
            dist.all_reduce(tensor, getattr(dist.ReduceOp, kind))
            digest.update(tensor.cpu().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest(), dist.group.WORLD.communicator.total_stats.retransmissions - before
