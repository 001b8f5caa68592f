"""Process groups of ranks that fork, as a DataLoader's workers are."""

import multiprocessing
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from tests.integration.test_forked_children import FORKED, STATES, in_child, silent_child
from tests.integration.torch_ranks import Ranks

pytestmark = pytest.mark.torch


def total_of(value: float, group: Any) -> float:
    total = torch.tensor(value)
    dist.all_reduce(total, group=group)
    return float(total.item())


@pytest.mark.parametrize("state", STATES)
def test_collectives_go_on_while_the_workers_of_a_data_loader_live(ranks: Ranks, state: str) -> None:
    ranks.run(_with_loader, state)


def _with_loader(rank: int, world: int, state: str) -> None:
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]  # Else it may have no children.
    group = dist.new_group()
    begun = torch.ones(3)
    if state == "idle":
        assert total_of(1.0, group) == world
    work = dist.all_reduce(begun, group=group, async_op=True) if state == "under way" and rank == 0 else None
    batches = 0
    for batch in DataLoader(torch.arange(8.0), batch_size=4, num_workers=1, multiprocessing_context="fork"):
        if state == "under way" and batches == 0:
            work = work or dist.all_reduce(begun, group=group, async_op=True)
            work.wait()
            assert begun.tolist() == [world] * 3
        assert total_of(batch.sum().item(), group) == world * batch.sum().item()
        batches += 1
    assert batches == 2
    dist.barrier()
    dist.destroy_process_group(group)


@pytest.mark.parametrize("state", STATES)
def test_a_child_gets_a_sentence_and_its_parent_the_right_sum(ranks: Ranks, state: str) -> None:
    ranks.run(_child_reduces, state)


def _child_reduces(rank: int, world: int, state: str) -> None:
    group = dist.new_group()
    total, work = torch.ones(3), None
    if state == "idle":
        assert total_of(1.0, group) == world
    if state == "under way" and rank == 0:
        work = dist.all_reduce(total, group=group, async_op=True)
    assert FORKED in in_child(lambda: total_of(100.0, group))
    assert FORKED in in_child(lambda: dist.all_reduce(torch.ones(3), group=group, async_op=True).wait())
    assert FORKED in in_child(lambda: dist.barrier(group))
    assert in_child(lambda: dist.destroy_process_group(group)) == "None"
    work = work or dist.all_reduce(total, group=group, async_op=True)
    work.wait()
    assert total.tolist() == [world] * 3
    dist.barrier()
    dist.destroy_process_group(group)


def test_a_group_begins_while_a_child_of_a_library_in_c_keeps_what_it_inherited(ranks: Ranks) -> None:
    ranks.run(_with_silent_child)


def _with_silent_child(rank: int, world: int) -> None:
    group = dist.new_group()
    with silent_child():
        assert total_of(1.0, group) == world
    dist.barrier()
    dist.destroy_process_group(group)
