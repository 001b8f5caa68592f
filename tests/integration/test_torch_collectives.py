"""Every collective of the c10d surface, in one job of three ranks on the embedded switch."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch.distributed as dist  # noqa: E402
from torch_ranks import run_ranks  # noqa: E402

pytestmark = pytest.mark.torch

WORLD = 3
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)


def test_every_collective_gives_what_its_definition_says() -> None:
    run_ranks(_all_collectives, WORLD)


def _all_collectives(rank: int, world: int) -> None:
    for check in CHECKS:
        try:
            check(rank, world)
        except Exception as error:
            error.add_note(f"in {check.__name__}")
            raise
    assert dist.get_backend() == "netsum"
    assert dist.group.WORLD.communicator.total_stats.collectives > 100


def reductions(rank: int, world: int) -> None:
    for dtype in FLOATS + INTEGERS:
        given = [(torch.arange(600) % 5 + each + 1).to(dtype) for each in range(world)]
        stacked = torch.stack(given).double()
        expected = {"SUM": stacked.sum(0), "MIN": stacked.amin(0), "MAX": stacked.amax(0)}
        if dtype in FLOATS:
            expected["AVG"] = stacked.mean(0)
        for name, wanted in expected.items():
            tensor = given[rank].clone()
            dist.all_reduce(tensor, getattr(dist.ReduceOp, name))
            precision = torch.finfo(dtype).eps if dtype in FLOATS else 0
            torch.testing.assert_close(
                tensor.double(), wanted, rtol=precision, atol=1e-7 if dtype in FLOATS else 0
            )


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


def bools(rank: int, world: int) -> None:
    some, every = torch.tensor([rank == 1, True, False]), torch.tensor([rank == 1, True, False])
    dist.all_reduce(some, dist.ReduceOp.SUM)
    dist.all_reduce(every, dist.ReduceOp.MIN)
    assert some.tolist() == [True, True, False]
    assert every.tolist() == [False, True, False]


def wide_integers(rank: int, world: int) -> None:
    limit = 2**63 // world - 1
    given = [
        torch.randint(-limit, limit, (500,), generator=torch.Generator().manual_seed(each))
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


def sums_that_do_not_fit(rank: int, world: int) -> None:
    for dtype in INTEGERS:
        tensor = torch.full((3,), torch.iinfo(dtype).max, dtype=dtype)
        with pytest.raises(dist.DistBackendError, match="not fit"):
            dist.all_reduce(tensor)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)  # the group goes on
    assert tensor.tolist() == [world] * 3


def products_go_through_gloo(rank: int, world: int) -> None:
    tensor = torch.tensor([2.0, rank + 1])
    dist.all_reduce(tensor, dist.ReduceOp.PRODUCT)
    assert tensor.tolist() == [2.0**world, 6.0]


def scaled_sums(rank: int, world: int) -> None:
    tensor = torch.ones(4) * rank
    dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.5))
    assert tensor.tolist() == [1.5] * 4


def non_finite(rank: int, world: int) -> None:
    tensor = torch.ones(600)
    if rank == 1:
        tensor[0] = float("inf")
    dist.all_reduce(tensor)
    assert not torch.isfinite(tensor[0])
    assert torch.isfinite(tensor[-1])


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


def broadcasts(rank: int, world: int) -> None:
    for dtype in (*FLOATS, *INTEGERS, torch.bool, torch.complex64):
        tensor = (torch.arange(11) * (rank + 1)).to(dtype)
        dist.broadcast(tensor, 1)
        assert torch.equal(tensor, (torch.arange(11) * 2).to(dtype)), dtype


def gathers(rank: int, world: int) -> None:
    pieces = [torch.zeros(2, 3, dtype=torch.bfloat16) for _ in range(world)]
    dist.all_gather(pieces, torch.full((2, 3), rank, dtype=torch.bfloat16))
    assert [float(piece[1, 2]) for piece in pieces] == [0, 1, 2]
    whole = torch.zeros(world * 2, 3)
    dist.all_gather_single(whole, torch.full((2, 3), float(rank)))
    assert whole[::2, 0].tolist() == [0, 1, 2]
    objects: list[Any] = [None] * world
    dist.all_gather_object(objects, {"rank": rank, "long": "x" * rank})
    assert [each["rank"] for each in objects] == [0, 1, 2]
    told = ["hello" if rank == 0 else None]
    dist.broadcast_object_list(told)
    assert told == ["hello"]


def reductions_to_one(rank: int, world: int) -> None:
    tensor = torch.full((5,), float(rank))
    dist.reduce(tensor, 1)
    assert tensor.tolist() == ([3.0] * 5 if rank == 1 else [float(rank)] * 5)
    whole = torch.arange(4.0 * world)
    part = torch.zeros(4)
    dist.reduce_scatter_single(part, whole)
    assert torch.allclose(part, world * whole.view(world, 4)[rank])
    part = torch.zeros(2, 2)
    dist.reduce_scatter(part, [torch.full((2, 2), float(each)) for each in range(world)])
    assert torch.allclose(part, torch.full((2, 2), float(world * rank)))


def coalesced(rank: int, world: int) -> None:
    with dist._coalescing_manager(async_ops=True) as together:
        tensors = [torch.full((each,), float(rank)) for each in (1, 300, 7)]
        for tensor in tensors:
            dist.all_reduce(tensor)
    together.wait()
    assert all((tensor == 3).all() for tensor in tensors)


def from_one_to_another(rank: int, world: int) -> None:
    if rank == 0:
        dist.send(torch.ones(3), 1)
    elif rank == 1:
        received = torch.zeros(3)
        dist.recv(received, 0)
        assert received.tolist() == [1, 1, 1]
    swapped = torch.zeros(world)
    dist.all_to_all_single(swapped, torch.full((world,), float(rank)))
    assert swapped.tolist() == [0, 1, 2]
    mine = torch.zeros(2)
    dist.scatter(mine, [torch.full((2,), float(each)) for each in range(world)] if rank == 0 else None)
    assert mine.tolist() == [rank, rank]
    collected = [torch.zeros(2) for _ in range(world)] if rank == 0 else None
    dist.gather(mine, collected)
    if collected is not None:
        assert [float(each[0]) for each in collected] == [0, 1, 2]


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


def subgroups(rank: int, world: int) -> None:
    pair, everyone = dist.new_group([0, 2]), dist.new_group()
    tensor = torch.ones(3)
    if rank != 1:
        dist.all_reduce(tensor, group=pair)
        assert tensor.tolist() == [2, 2, 2]
    dist.all_reduce(tensor, group=everyone)
    assert tensor.tolist() == [5, 5, 5]
    dist.barrier(group=everyone)


def functional(rank: int, world: int) -> None:
    from torch.distributed._functional_collectives import all_reduce

    assert all_reduce(torch.ones(2), "sum", dist.group.WORLD).tolist() == [world, world]


CHECKS = (
    reductions, bits, bools, wide_integers, sums_that_do_not_fit, products_go_through_gloo, scaled_sums, non_finite,
    any_layout, broadcasts, gathers, reductions_to_one, coalesced, from_one_to_another, many_in_flight, subgroups,
    functional,
)  # fmt: skip
