"""Groups and slots: a group takes slots with its first collective, and goes through Gloo where none are free."""

import warnings
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch
import torch.distributed as dist

from host_agent.errors import MisuseError
from tests.integration.torch_ranks import Ranks, local_service

pytestmark = pytest.mark.torch

MANY = 20
"""More groups than a switch of 1,024 slots has room for at 64 slots each."""


def test_groups_that_never_reduce_hold_no_slots(ranks: Ranks) -> None:
    ranks.run(_many_groups)


def _many_groups(rank: int, world: int) -> None:
    groups = [dist.new_group() for _ in range(MANY)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        total = torch.ones(3)
        dist.all_reduce(total, group=groups[-1])
    assert total.tolist() == [world] * 3
    assert groups[-1].communicator.admission.slot_count > 0
    with pytest.raises(MisuseError, match="takes them with its first collective"):
        _ = groups[0].communicator
    dist.barrier()
    for group in groups:
        dist.destroy_process_group(group)


def test_collectives_begun_before_the_slots_are_there_are_done_in_order(ranks: Ranks) -> None:
    ranks.run(_queued)


def _queued(rank: int, world: int) -> None:
    group = dist.new_group()
    total, first, mean = (torch.full((4,), float(rank)) for _ in range(3))
    works = [
        dist.all_reduce(total, group=group, async_op=True),
        dist.broadcast(first, 1, group=group, async_op=True),
        dist.all_reduce(mean, dist.ReduceOp.AVG, group=group, async_op=True),
    ]
    for work in works:
        work.wait()
    assert [each[0].item() for each in (total, first, mean)] == [3.0, 1.0, 1.0]
    dist.barrier()
    dist.destroy_process_group(group)


def test_a_group_that_gets_no_slots_reduces_through_gloo_and_says_so() -> None:
    with (
        local_service("--slots", "2048") as (address, _),
        Ranks(2, {"NETSUM_CONTROLLER": address}) as two,
    ):
        written = two.run(_without_slots)
    assert "This process group reduces through Gloo instead" in written[0]
    assert written[1] == ""


def _without_slots(rank: int, world: int) -> str:
    second, third = dist.new_group(), dist.new_group()
    dist.barrier(second)  # takes the other half of the switch
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dist.barrier(third)
    expected = _results(None)
    assert str(_results(third)) == str(expected)
    with pytest.raises(dist.DistBackendError, match="1 of the sums do not fit the type"):
        dist.all_reduce(torch.tensor([2**30], dtype=torch.int32), group=third)
    with pytest.raises(MisuseError, match="has no slots of a switch$"):
        _ = third.communicator
    dist.barrier()
    for group in (second, third):
        dist.destroy_process_group(group)
    return " ".join(str(each.message) for each in caught if "Gloo" in str(each.message))


def _results(group: Any) -> list[Any]:
    """Return what collectives of all kinds give."""
    rank, world = dist.get_rank(), dist.get_world_size()
    results: list[Any] = []
    for dtype in (
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.float64,
        torch.int8,
        torch.int32,
        torch.int64,
    ):
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX):
            values = torch.arange(6).reshape(2, 3).to(dtype).t() + rank
            dist.all_reduce(values, op, group=group)
            results.append(values.tolist())
    for op in (dist.ReduceOp.BOR, dist.ReduceOp.BAND):
        bits = torch.tensor([4 + rank, 7], dtype=torch.int16)
        dist.all_reduce(bits, op, group=group)
        results.append(bits.tolist())
    some = torch.tensor([rank == 0, False])
    dist.all_reduce(some, group=group)
    every = [torch.empty(2) for _ in range(world)]
    dist.all_gather(every, torch.full((2,), float(rank)), group=group)
    part = torch.empty(2)
    dist.reduce_scatter_tensor(part, torch.arange(2.0 * world), group=group)
    objects: list[Any] = [{"from": rank}]
    dist.broadcast_object_list(objects, 1, group=group)
    return [*results, some.tolist(), torch.stack(every).tolist(), part.tolist(), objects]
