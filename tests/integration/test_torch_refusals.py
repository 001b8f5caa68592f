"""Calls that one rank refuses, or cannot make: every rank hears of it, soon, and by name."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from tests.integration.torch_ranks import Ranks

pytestmark = pytest.mark.torch

SOON_S = 20.0
"""Far below the group's timeout, for a machine with much other work."""


def pieces(count: int, length: int = 2) -> list[torch.Tensor]:
    return [torch.ones(length) for _ in range(count)]


# Calls of rank 2 while the others make the second call, and the errors of rank 2.
ODD_CALLS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], str]] = {
    "a type": (
        lambda group: dist.all_reduce(torch.ones(2, dtype=torch.uint64), group=group),
        lambda group: dist.all_reduce(torch.ones(2), group=group),
        "SUM is not defined for torch.uint64",
    ),
    "an output that is too small": (
        lambda group: dist.all_gather_into_tensor(torch.ones(2), torch.ones(2), group=group),
        lambda group: dist.all_gather_into_tensor(torch.ones(6), torch.ones(2), group=group),
        "of 3 times 2 elements",
    ),
    "a list that is too short": (
        lambda group: dist.reduce_scatter(torch.ones(2), pieces(2), group=group),
        lambda group: dist.reduce_scatter(torch.ones(2), pieces(3), group=group),
        "expected a tensor for each of 3 ranks, got 2",
    ),
    "a sparse tensor": (
        lambda group: dist.broadcast(torch.ones(2).to_sparse(), 0, group=group),
        lambda group: dist.broadcast(torch.ones(2), 0, group=group),
        "expected a dense one",
    ),
    "splits that do not add up": (
        lambda group: dist.all_to_all_single(torch.ones(3), torch.ones(3), [1, 1, 1], [1, 1, 3], group=group),
        lambda group: dist.all_to_all_single(torch.ones(3), torch.ones(3), group=group),
        "must add up to the 3 rows",
    ),
    "a sparse tensor through Gloo": (
        lambda group: dist.all_to_all_single(torch.ones(3).to_sparse(), torch.ones(3), group=group),
        lambda group: dist.all_to_all_single(torch.ones(3), torch.ones(3), group=group),
        "expected a dense one",
    ),
    "a type of a product": (
        lambda group: dist.all_reduce(torch.ones(2, dtype=torch.uint64), dist.ReduceOp.PRODUCT, group=group),
        lambda group: dist.all_reduce(torch.ones(2), dist.ReduceOp.PRODUCT, group=group),
        "PRODUCT is not defined for torch.uint64",
    ),
    "a call of the other kind": (
        lambda group: dist.all_to_all_single(torch.ones(3).to_sparse(), torch.ones(3), group=group),
        lambda group: dist.all_reduce(torch.ones(3), group=group),
        "expected a dense one",
    ),
}


@pytest.mark.parametrize("odd", ODD_CALLS)
def test_the_others_hear_what_one_rank_refuses(ranks: Ranks, odd: str) -> None:
    outcomes = ranks.run(_one_refuses, odd)
    own = ODD_CALLS[odd][2]
    assert own in outcomes[2][0], outcomes[2]
    for message, took, after in outcomes[:2]:
        assert "rank 2" in message, message
        assert "refused" in message or "failed" in message, message
        assert own in message, message
        assert took < SOON_S
        assert "failed before" in after or "do not agree" in after, after


def _error_of(call: Callable[[], Any]) -> str:
    try:
        call()
    except Exception as error:
        return str(error)
    return ""


def _one_refuses(rank: int, world: int, odd: str) -> tuple[str, float, str]:
    theirs, others, _ = ODD_CALLS[odd]
    group = dist.new_group()
    dist.barrier(group=group)
    began = time.monotonic()
    message = _error_of(lambda: (theirs if rank == 2 else others)(group))
    took = time.monotonic() - began
    after = _error_of(lambda: others(group)) if rank != 2 else ""
    dist.barrier()
    dist.destroy_process_group(group)
    return message, took, after


def test_what_all_refuse_alike_leaves_the_group_usable(ranks: Ranks) -> None:
    ranks.run(_all_refuse)


def _all_refuse(rank: int, world: int) -> None:
    group = dist.new_group()
    for odd, (call, _, message) in ODD_CALLS.items():
        assert message in _error_of(lambda: call(group)), odd  # noqa: B023
        for operation, wanted in ((dist.ReduceOp.SUM, world), (dist.ReduceOp.PRODUCT, 1)):
            tensor = torch.ones(3)
            dist.all_reduce(tensor, operation, group=group)
            assert tensor.tolist() == [wanted] * 3
    dist.destroy_process_group(group)


def test_elements_that_share_memory_hold_one_value_or_are_refused(ranks: Ranks) -> None:
    ranks.run(_shared_elements)


def _shared_elements(rank: int, world: int) -> None:
    # The result is right if all ranks have one value for all elements; one rank's layout does not matter to others.
    for operation, wanted in ((dist.ReduceOp.SUM, 3.0), (dist.ReduceOp.PRODUCT, 1.0)):
        tensor = torch.ones(1).expand(4) if rank == 1 else torch.ones(4)
        dist.all_reduce(tensor, operation)
        assert tensor.tolist() == [wanted] * 4
        tensor = torch.ones(1).expand(4) if rank == 1 else torch.arange(4.0)
        if rank == 1:
            with pytest.raises(
                dist.DistBackendError, match="share memory, and their values differ: call clone"
            ):
                dist.all_reduce(tensor, operation)
        else:
            dist.all_reduce(tensor, operation)
            total = (
                torch.arange(4.0) ** 2 if operation == dist.ReduceOp.PRODUCT else 2 * torch.arange(4.0) + 1
            )
            assert torch.equal(tensor, total)
    windows = torch.zeros(5).as_strided((4, 2), (1, 1))
    works = [
        dist.isend(torch.arange(8.0).view(4, 2), (rank + 1) % world),
        dist.irecv(windows, (rank - 1) % world),
    ]
    works[0].wait()
    with pytest.raises(ValueError, match="share memory"):
        works[1].wait()
    dist.barrier()


def test_outputs_that_are_also_inputs(ranks: Ranks) -> None:
    ranks.run(_aliases)


def _aliases(rank: int, world: int) -> None:
    for start in range(world):
        whole = torch.arange(4.0 * world) + 100 * rank
        dist.reduce_scatter_tensor(whole[4 * start : 4 * start + 4], whole)
        wanted = sum(torch.arange(4.0) + 4 * rank + 100 * each for each in range(world))
        assert torch.equal(whole[4 * start : 4 * start + 4], wanted)
        whole = torch.arange(4.0 * world) + 100 * rank
        parts = list(whole.chunk(world))
        dist.reduce_scatter(parts[start], parts)
        assert torch.equal(parts[start], wanted)
        whole = torch.full((4 * world,), float(rank))
        dist.all_gather_into_tensor(whole, whole[4 * start : 4 * start + 4])
        assert whole.view(world, 4)[:, 3].tolist() == [0, 1, 2]
        parts = [torch.full((4,), float(rank)) for _ in range(world)]
        dist.all_gather(parts, parts[start])
        assert [each[3].item() for each in parts] == [0, 1, 2]
        parts = [torch.full((4,), float(rank)) for _ in range(world)]
        dist.gather(parts[start], parts if rank == 0 else None)
        assert rank or [each[3].item() for each in parts] == [0, 1, 2]
        parts = [torch.full((4,), float(each)) for each in range(world)]
        mine = parts[start]
        dist.scatter(mine, parts if rank == 0 else None)
        assert mine.tolist() == [rank] * 4
    swapped = torch.arange(3.0 * world).add_(10 * rank)
    dist.all_to_all_single(swapped, swapped)
    assert swapped.tolist() == [10 * each + 3 * rank + one for each in range(world) for one in range(3)]
    lists = [torch.full((2,), 10.0 * rank + each) for each in range(world)]
    dist.all_to_all(lists[::-1], lists)
    assert [each[0].item() for each in lists[::-1]] == [10 * each + rank for each in range(world)]


def test_tensors_without_values_are_left_alone(ranks: Ranks) -> None:
    ranks.run(_without_values)


def _without_values(rank: int, world: int) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    meta = torch.empty(2, 3, device="meta")
    with FakeTensorMode():
        fake = torch.empty(2, 3)
    for tensor in (meta, fake):
        many = [tensor] * world
        for call in (
            lambda: dist.all_reduce(tensor),  # noqa: B023
            lambda: dist.all_reduce(tensor, dist.ReduceOp.PRODUCT),  # noqa: B023
            lambda: dist.broadcast(tensor, 1),  # noqa: B023
            lambda: dist.reduce(tensor, 1),  # noqa: B023
            lambda: dist.all_gather(many, tensor),  # noqa: B023
            lambda: dist.reduce_scatter(tensor, many),  # noqa: B023
            lambda: dist.gather(tensor, many if rank == 1 else None, 1),  # noqa: B023
            lambda: dist.scatter(tensor, many if rank == 1 else None, 1),  # noqa: B023
            lambda: dist.all_to_all(many, many),  # noqa: B023
            lambda: dist.send(tensor, (rank + 1) % world),  # noqa: B023
            lambda: dist.recv(tensor, (rank - 1) % world),  # noqa: B023
        ):
            call()  # type: ignore[no-untyped-call]
        assert dist.all_reduce(tensor, async_op=True).get_future().wait() == []
    dist.all_reduce(torch.ones(3))


def test_futures_hold_what_those_of_gloo_hold(ranks: Ranks) -> None:
    ranks.run(_futures)


def _futures(rank: int, world: int) -> None:
    gloo = dist.new_group(backend="gloo")
    for call in (
        lambda group: dist.all_reduce(torch.ones(3), group=group, async_op=True),
        lambda group: dist.all_reduce(torch.ones(3), dist.ReduceOp.PRODUCT, group=group, async_op=True),
        lambda group: dist.reduce(torch.ones(3), 0, group=group, async_op=True),
        lambda group: dist.broadcast(torch.ones(3), 0, group=group, async_op=True),
        lambda group: dist.all_gather(pieces(3), torch.ones(2), group=group, async_op=True),
        lambda group: dist.gather(
            torch.ones(2), pieces(3) if rank == 0 else None, group=group, async_op=True
        ),
        lambda group: dist.scatter(
            torch.ones(2), pieces(3) if rank == 0 else None, group=group, async_op=True
        ),
        lambda group: dist.all_to_all(pieces(3), pieces(3), group=group, async_op=True),
        lambda group: dist.all_to_all_single(torch.ones(3), torch.ones(3), group=group, async_op=True),
        lambda group: dist.barrier(group=group, async_op=True),
    ):
        theirs, ours = (call(group).get_future().wait() for group in (gloo, None))  # type: ignore[no-untyped-call]
        assert [each.shape for each in ours] == [each.shape for each in theirs]
    dist.destroy_process_group(gloo)


def test_a_group_is_split(ranks: Ranks) -> None:
    ranks.run(_split)


def _split(rank: int, world: int) -> None:
    made = dist.group.WORLD.split_group([0, 2])
    assert (made is None) == (rank == 1)
    if made is not None:
        tensor, product = torch.full((3,), rank + 1.0), torch.full((3,), rank + 1.0)
        made.allreduce([tensor]).wait()
        made.allreduce([product], dist.ReduceOp.PRODUCT).wait()
        assert tensor.tolist() == [4] * 3
        assert product.tolist() == [3] * 3
        made.shutdown()
    split = _error_of(lambda: _split_by_pytorch(rank))
    assert split in ("", "No device associated with the default pg, not safe to split any process groups")
    assert not dist.group.WORLD.supports_reconfigure
    with pytest.raises(NotImplementedError, match="by netsum.torch.resize()"):
        dist.group.WORLD.get_reconfigure_handle()
    with pytest.raises(NotImplementedError, match="cannot be merged"):
        dist.group.WORLD.merge_remote_group(dist.HashStore(), 4)


def test_a_mesh_of_one_dimension_is_unflattened(ranks: Ranks) -> None:
    ranks.run(_unflattened)


def _unflattened(rank: int, world: int) -> None:
    mesh: Any = init_device_mesh("cpu", (world,), mesh_dim_names=("all",))
    made = mesh._unflatten("all", (world, 1), ("data", "tensor"))
    group = made.get_group("data")
    assert dist.get_backend(group) == "netsum"
    tensor = torch.full((3,), rank + 1.0)
    dist.all_reduce(tensor, group=group)
    assert tensor.tolist() == [sum(range(world + 1))] * 3


def test_groups_and_meshes_mix_netsum_with_gloo(ranks: Ranks) -> None:
    ranks.run(_mixed)


def _mixed(rank: int, world: int) -> None:
    by_device = dist.new_group(backend="cpu:netsum,cuda:gloo")
    mesh: Any = init_device_mesh(
        "cpu",
        (world, 1),
        mesh_dim_names=("outer", "inner"),
        backend_override={"outer": "gloo", "inner": "netsum"},
    )
    groups = by_device, mesh.get_group("outer"), mesh.get_group("inner")
    assert [dist.get_backend(each) for each in groups[1:]] == ["gloo", "netsum"]
    for group, size in zip(groups, (world, world, 1), strict=True):
        tensor = torch.full((3,), rank + 1.0)
        dist.all_reduce(tensor, group=group)
        assert tensor.tolist() == [rank + 1 if size == 1 else sum(range(world + 1))] * 3


def _split_by_pytorch(rank: int) -> None:
    group = dist.split_group(split_ranks=[[0, 2], [1]])
    tensor = torch.full((3,), rank + 1.0)
    dist.all_reduce(tensor, group=group)
    assert tensor.tolist() == [2 if rank == 1 else 4] * 3
    dist.destroy_process_group(group)


@pytest.fixture
def mortal_ranks() -> Iterator[Ranks]:
    with Ranks(3) as ranks:
        yield ranks


def test_calls_through_gloo_name_the_call_and_who_was_missing(mortal_ranks: Ranks) -> None:
    messages = mortal_ranks.run(_missing)[0]
    late, late_message, dead, dead_message = messages
    assert "all_to_all_single of torch.float32 [3], call 1 of this group: " in late
    assert "rank 1 called something else, or nothing yet" in late
    assert "ranks 0 and 2 called all_to_all_single of torch.float32 [3], call 1" in late
    assert "recv from rank 1 of torch.float32 [2]: Gloo failed at rank 0: " in late_message
    assert (
        "gather to rank 0 of torch.float32 [2], call 1 of this group: rank 1 left before this was done"
        in dead
    )
    assert "recv from rank 1 of torch.float32 [2]: rank 1 left before this was done" in dead_message


def _missing(rank: int, world: int) -> list[str]:
    late, message, dead, dead_message = (
        dist.new_group(timeout=timedelta(seconds=seconds)) for seconds in (2, 2, 60, 60)
    )
    errors = []
    for group in (late, message, dead, dead_message):
        dist.all_reduce(torch.ones(1), group=group)
    if rank != 1:
        errors.append(_error_of(lambda: dist.all_to_all_single(torch.ones(3), torch.ones(3), group=late)))
    if rank == 0:
        errors.append(_error_of(lambda: dist.recv(torch.ones(2), 1, group=message)))
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 0:
        errors.append(_error_of(lambda: dist.gather(torch.ones(2), pieces(3), group=dead)))
        errors.append(_error_of(lambda: dist.recv(torch.ones(2), 1, group=dead_message)))
    else:
        with suppress(RuntimeError):
            dist.gather(torch.ones(2), None, group=dead)
    return errors


def test_a_message_that_fails_leaves_those_between_other_ranks_alone(mortal_ranks: Ranks) -> None:
    failed, received = mortal_ranks.run(_goes_on)[0]
    assert "recv from rank 2 of torch.float32 [2]: rank 2 left before this was done" in failed
    assert received == [1.0, 1.0]


def _goes_on(rank: int, world: int) -> tuple[str, list[float]]:
    dist.all_reduce(torch.ones(1))
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    failed, received = "", torch.zeros(2)
    if rank == 0:
        failed = _error_of(lambda: dist.recv(torch.ones(2), 2))
        dist.send(torch.ones(2), 1)
        dist.recv(received, 1)
    else:
        dist.recv(received, 0)
        dist.send(received, 0)
    return failed, received.tolist()
