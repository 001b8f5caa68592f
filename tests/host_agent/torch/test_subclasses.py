"""Calls with a tensor that consists of two others, in a group that ends them when the test says so."""

from concurrent.futures import Future
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch
import torch.distributed as dist
from torch import Tensor
from torch.testing._internal.two_tensor import TwoTensor

from host_agent.torch.subclasses import for_subclasses
from host_agent.torch.work import NetsumWork

pytestmark = pytest.mark.torch


@for_subclasses
class Group(dist.ProcessGroup):
    def __init__(self) -> None:
        super().__init__(0, 1)
        self.under_way: list[Future[None]] = []

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> NetsumWork:
        assert all(type(each) is Tensor for each in tensors)
        self.under_way.append(Future())
        return NetsumWork("all_reduce", tensors, self.under_way[-1:])


@pytest.mark.parametrize("first", [0, 1])
def test_the_work_is_done_when_all_parts_are(first: int) -> None:
    group, part = Group(), torch.ones(3)
    work = group.allreduce([TwoTensor(part, torch.zeros(3))], dist.AllreduceOptions())
    future = work.get_future()
    assert len(group.under_way) == 2
    for each in (first, 1 - first):
        assert not work.is_completed()
        assert not future.done()
        group.under_way[each].set_result(None)
    assert work.is_completed()
    assert work.wait()
    assert future.wait()[0] is part


def test_a_part_that_fails_fails_the_work() -> None:
    group = Group()
    work = group.allreduce([TwoTensor(torch.ones(3), torch.zeros(3))])
    group.under_way[0].set_result(None)
    group.under_way[1].set_exception(ValueError("the second"))
    with pytest.raises(ValueError, match="the second"):
        work.wait()


def test_a_tensor_without_parts_is_given_to_the_group() -> None:
    group = Group()
    assert isinstance(group.allreduce([torch.ones(3)]), NetsumWork)
    assert len(group.under_way) == 1
