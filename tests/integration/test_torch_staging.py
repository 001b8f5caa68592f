"""Staging with a device made up for it: what can be shown of it without a GPU."""

from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_map_only

from host_agent.torch.staging import staged
from tests.integration.torch_ranks import Ranks

pytestmark = pytest.mark.torch


class Elsewhere(torch.Tensor):
    """A tensor on another device, whose memory can be reached by copies alone."""

    held: torch.Tensor
    copies = 0
    is_meta = False  # The tensor has values, unlike tensors of the device that stands in for it.

    @staticmethod
    def __new__(cls, held: torch.Tensor, device: str = "meta") -> "Elsewhere":
        made: Elsewhere = torch.Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), dtype=held.dtype, device=device
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        done = function(*tree_map_only(Elsewhere, lambda each: each.held, args), **(kwargs or {}))
        if function is torch.ops.aten.copy_.default:
            cls.copies += 1
            return args[0]
        return tree_map_only(torch.Tensor, lambda each: Elsewhere(each, args[0].device), done)


@pytest.fixture(autouse=True)
def no_copies_yet() -> None:
    Elsewhere.copies = 0


def test_a_contiguous_tensor_of_the_cpu_is_worked_on_where_it_is() -> None:
    tensor = torch.ones(2, 3)
    given = staged(tensor, read=True, write=True)
    assert given.tensor is tensor
    given.bring_back()


@pytest.mark.parametrize("held", [torch.arange(6.0).reshape(2, 3), torch.arange(6).reshape(2, 3).t()])
def test_what_is_elsewhere_is_copied_once_each_way(held: torch.Tensor) -> None:
    before = held.clone()
    given = staged(Elsewhere(held), read=True, write=True)
    assert given.tensor.device.type == "cpu"
    assert torch.equal(given.tensor, before)
    given.tensor.add_(1)
    assert torch.equal(held, before)
    given.bring_back()
    assert torch.equal(held, before + 1)
    assert Elsewhere.copies == 2


@pytest.mark.parametrize(("read", "write"), [(True, False), (False, True)])
def test_what_is_not_wanted_is_not_copied(read: bool, write: bool) -> None:
    held = torch.ones(3)
    given = staged(Elsewhere(held), read=read, write=write)
    given.tensor.fill_(5)
    given.bring_back()
    assert Elsewhere.copies == 1
    assert held.tolist() == ([5] * 3 if write else [1] * 3)


def test_a_gpu_has_done_all_before_it_is_read_or_written(monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[str] = []

    class Stream:
        def synchronize(self) -> None:
            did.append("waited")

    empty = torch.empty

    def pinned(*args: Any, pin_memory: bool, **kwargs: Any) -> torch.Tensor:
        did.append("pinned" if pin_memory else "pageable")
        return empty(*args, **kwargs)

    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream())
    monkeypatch.setattr(torch, "empty", pinned)
    for read, write in ((True, True), (False, True)):
        staged(Elsewhere(torch.ones(3), "cuda:0"), read=read, write=write)
        assert did == ["waited", "pinned"]
        did.clear()


def test_it_stays_on_the_host_whatever_the_programs_default_device() -> None:
    torch.set_default_device("meta")
    try:
        given = staged(Elsewhere(torch.ones(3, device="cpu")), read=True, write=False)
    finally:
        torch.set_default_device(None)
    assert given.tensor.device.type == "cpu"
    assert given.tensor.tolist() == [1, 1, 1]


def test_values_that_are_not_those_of_the_memory_are_copied() -> None:
    numbers = torch.tensor([1 + 2j, 3 - 4j])
    negated = numbers.conj().imag
    assert negated.is_neg()
    given = staged(negated, read=True, write=True)
    assert given.tensor.tolist() == [-2, 4]
    given.tensor.mul_(10)
    given.bring_back()
    assert numbers.imag.tolist() == [20, -40]
    conjugated = staged(numbers.conj(), read=True, write=False)
    assert conjugated.tensor.tolist() == numbers.conj().tolist()
    assert not conjugated.tensor.is_conj()


def test_collectives_of_tensors_elsewhere_give_what_those_of_the_cpu_give(ranks: Ranks) -> None:
    ranks.run(_elsewhere)


def _elsewhere(rank: int, world: int) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        held = torch.full((4, 3), rank + 1, dtype=dtype).t()
        dist.all_reduce(Elsewhere(held))
        assert (held == 6).all()
        dist.broadcast(Elsewhere(held.fill_(rank)), 1)
        assert (held == 1).all()
        dist.reduce(Elsewhere(held), 2)
        assert (held == (world if rank == 2 else 1)).all()
        whole, part = torch.arange(6).to(dtype), torch.zeros(2, dtype=dtype)
        dist.reduce_scatter_tensor(Elsewhere(part), Elsewhere(whole))
        assert torch.equal(part, world * whole[2 * rank : 2 * rank + 2])
        dist.all_gather_into_tensor(Elsewhere(whole), Elsewhere(part.fill_(rank)))
        assert whole.tolist() == [0, 0, 1, 1, 2, 2]
        pieces = [torch.zeros(each, dtype=dtype) for each in range(world)]
        dist.all_gather(
            [Elsewhere(each) for each in pieces], Elsewhere(torch.full((rank,), rank, dtype=dtype))
        )
        assert [each.tolist() for each in pieces] == [[], [1], [2, 2]]
        _through_gloo(rank, world, dtype)


def _through_gloo(rank: int, world: int, dtype: torch.dtype) -> None:
    own, taken = torch.full((2,), rank, dtype=dtype), torch.zeros(2, dtype=dtype)
    pieces = [torch.zeros(2, dtype=dtype) for _ in range(world)]
    elsewhere = [Elsewhere(each) for each in pieces]
    dist.gather(Elsewhere(own), elsewhere if rank == 1 else None, dst=1)
    assert [each.tolist() for each in pieces] == ([[0, 0], [1, 1], [2, 2]] if rank == 1 else [[0, 0]] * 3)
    dist.scatter(Elsewhere(taken), elsewhere if rank == 1 else None, src=1)
    assert taken.tolist() == [rank, rank]
    dist.all_to_all(elsewhere, [Elsewhere(own + 10 * each) for each in range(world)])
    assert [each.tolist() for each in pieces] == [[10 * rank + each] * 2 for each in range(world)]
    swapped = torch.zeros(world, dtype=dtype)
    dist.all_to_all_single(Elsewhere(swapped), Elsewhere(torch.full((world,), rank, dtype=dtype)))
    assert swapped.tolist() == [0, 1, 2]
    before = (rank - 1) % world
    works = [dist.isend(Elsewhere(own), (rank + 1) % world), dist.irecv(Elsewhere(taken), before)]
    for work in works:
        work.wait()
    assert taken.tolist() == [before, before]
    if rank == 0:
        assert {dist.recv(Elsewhere(taken.fill_(0))) for _ in range(world - 1)} == {1, 2}
        assert taken.tolist() == [3, 3]
    else:
        dist.send(Elsewhere(own.fill_(3)), 0)
