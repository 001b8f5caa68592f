"""netsum's flight recorder files as PyTorch's own tool, torchfrtrace, reads them."""

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")
pytest.importorskip("torch.distributed.flight_recorder", reason="needs a PyTorch with torchfrtrace")

import torch
import torch.distributed as dist

from tests.integration.test_torch_errors import await_all, kill_switch_of, reduce_until_it_fails
from tests.integration.torch_ranks import Ranks, local_service

pytestmark = pytest.mark.torch

WORLD = 3
CALLED = [
    "all_reduce",
    "broadcast",
    "reduce",
    "all_gather",
    "reduce_scatter",
    "all_reduce",
    "all_to_all_single",
    "send 0->1",
    "barrier",
]


@pytest.fixture
def own_ranks(tmp_path: Path) -> Iterator[Ranks]:
    """Ranks whose failures write files into the test's folder."""
    with Ranks(WORLD, {"TORCH_FR_DUMP_TEMP_FILE": os.fspath(tmp_path / "netsum_rank_")}) as ranks:
        yield ranks


def analysed(folder: Path, *options: str) -> tuple[str, list[Any]]:
    """Return what torchfrtrace prints, and the collectives that it finds."""
    database = folder.parent / f"{folder.name}.database"
    command = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", os.fspath(folder)]
    done = subprocess.run(
        [*command, "-o", os.fspath(database), *options],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    _, tables = pickle.loads(database.read_bytes())
    return done.stdout + done.stderr, tables.collectives


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_written_on_request_matches_at_all_ranks(own_ranks: Ranks, tmp_path: Path) -> None:
    own_ranks.run(_every_call, os.fspath(tmp_path / "netsum_rank_"))
    printed, found = analysed(tmp_path)
    for trouble in ("errors", "Not all ranks", "MISMATCH", "missing"):
        assert trouble not in printed, printed
    names = [each.collective_name.removeprefix("gloo:") for each in found]
    assert names[-len(CALLED) :] == CALLED
    assert all(each.pass_check and each.collective_state == "completed" for each in found)


def _every_call(rank: int, world: int, prefix: str) -> None:
    from netsum.torch import write_flight_recorder

    group, pair = dist.new_group(), dist.new_group([0, 1])
    ours = torch.arange(4.0) + rank
    dist.all_reduce(ours, group=group)
    dist.broadcast(ours, 1, group=group)
    dist.reduce(ours, 0, group=group)
    dist.all_gather([torch.empty(4) for _ in range(world)], ours, group=group)
    dist.reduce_scatter_tensor(torch.empty(2), torch.ones(2 * world), group=group)
    dist.all_reduce(ours, dist.ReduceOp.PRODUCT, group=group)
    dist.all_to_all_single(torch.empty(world), torch.ones(world), group=group)
    if rank < 2:
        (dist.send if rank == 0 else dist.recv)(ours, 1 - rank, group=pair)
    dist.barrier(group=group)
    write_flight_recorder(prefix)
    dist.barrier(group=group)
    dist.destroy_process_group(group)


# Calls of rank 2 in place of an all_reduce of four float32, and torchfrtrace's findings.
ODD_CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "a count": (lambda: dist.all_reduce(torch.ones(5)), "Error type: SIZE_OR_SYNTAX_MISMATCH"),
    "a type": (
        lambda: dist.all_reduce(torch.ones(4, dtype=torch.int64)),
        "Error type: COLLECTIVE_DTYPE_MISMATCH",
    ),
    "a collective": (lambda: dist.broadcast(torch.ones(4), 0), "Error type: COLLECTIVE_TYPE_MISMATCH"),
}


@pytest.mark.parametrize("odd", ODD_CALLS)
def test_ranks_that_do_not_agree(own_ranks: Ranks, tmp_path: Path, odd: str) -> None:
    own_ranks.run(_disagree, odd)
    assert files_in(tmp_path) == [f"netsum_rank_{rank}" for rank in range(WORLD)]
    found, _ = analysed(tmp_path)
    assert "Collective sequence number: 1 has errors" in found
    assert f"Culprit rank 2; {ODD_CALLS[odd][1]}" in found


def _disagree(rank: int, world: int, odd: str) -> None:
    dist.all_reduce(torch.ones(4))
    with pytest.raises(dist.DistBackendError, match="do not agree"):
        ODD_CALLS[odd][0]() if rank == 2 else dist.all_reduce(torch.ones(4))


def test_a_rank_that_does_not_come(own_ranks: Ranks, tmp_path: Path) -> None:
    own_ranks.run(_one_stays_away)
    found, _ = analysed(tmp_path)
    assert "Not all ranks joining collective, sequence number: 1" in found
    assert "missing ranks: {1}" in found


def _one_stays_away(rank: int, world: int) -> None:
    group = dist.new_group(timeout=timedelta(seconds=2))
    dist.all_reduce(torch.ones(4), group=group)
    if rank == 1:
        from netsum.torch import write_flight_recorder

        time.sleep(3)
        write_flight_recorder(os.environ["TORCH_FR_DUMP_TEMP_FILE"])
        return
    with pytest.raises(dist.DistBackendError, match="rank 1 did not take part"):
        dist.all_reduce(torch.ones(4), group=group)


def test_a_rank_that_was_killed(own_ranks: Ranks, tmp_path: Path) -> None:
    own_ranks.run(_one_is_killed)
    assert files_in(tmp_path) == ["netsum_rank_0", "netsum_rank_2"]
    _, found = analysed(tmp_path, "--allow-incomplete-ranks")
    assert [each.collective_state for each in found] == ["completed", "started"]


def _one_is_killed(rank: int, world: int) -> None:
    dist.all_reduce(torch.ones(4))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(dist.DistBackendError, match="rank 1 left"):
        dist.all_reduce(torch.ones(4))


def test_a_rank_that_destroyed_its_group(own_ranks: Ranks, tmp_path: Path) -> None:
    own_ranks.run(_one_leaves)
    found, _ = analysed(tmp_path)
    assert "missing ranks: {1}" in found


def _one_leaves(rank: int, world: int) -> None:
    group = dist.new_group()
    dist.all_reduce(torch.ones(4), group=group)
    if rank == 1:
        from netsum.torch import write_flight_recorder

        dist.destroy_process_group(group)
        write_flight_recorder(os.environ["TORCH_FR_DUMP_TEMP_FILE"])
        return
    with pytest.raises(dist.DistBackendError, match="rank 1 left before this was done"):
        dist.all_reduce(torch.ones(4), group=group)


@pytest.mark.parametrize("killed", ["switch", "service"])
def test_what_all_ranks_wait_for_is_killed(tmp_path: Path, killed: str) -> None:
    """All ranks write the same collective, which has begun everywhere and is done nowhere."""
    files = {"TORCH_FR_DUMP_TEMP_FILE": os.fspath(tmp_path / "netsum_rank_")}
    with (
        local_service() as (address, service),
        Ranks(2, {"NETSUM_CONTROLLER": address, **files}) as ranks,
    ):
        ranks.run(_killed_below, service, killed)
        assert files_in(tmp_path) == ["netsum_rank_0", "netsum_rank_1"]
    printed, found = analysed(tmp_path)
    for trouble in ("errors", "Not all ranks", "missing"):
        assert trouble not in printed, printed
    assert [each.collective_state for each in found][-1] == "started"


def _killed_below(rank: int, world: int, service: int, killed: str) -> None:
    dist.barrier()
    await_all(world)
    if rank == 0:
        if killed == "switch":
            kill_switch_of(service)
        else:
            os.kill(service, signal.SIGKILL)
    with pytest.raises(dist.DistBackendError, match="the job of this group has ended|was killed by SIGKILL"):
        reduce_until_it_fails()


def test_a_file_that_cannot_be_written_is_a_warning(own_ranks: Ranks, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for warned in own_ranks.run(_disagree_with, os.fspath(tmp_path / "file" / "netsum_rank_")):
        assert "cannot write the flight recorder's file" in warned


def _disagree_with(rank: int, world: int, prefix: str) -> str:
    import warnings

    seen: list[Any] = []
    os.environ["TORCH_FR_DUMP_TEMP_FILE"] = prefix
    warnings.showwarning = lambda *found: seen.append(found[0])  # The warning is of another thread.
    _disagree(rank, world, "a count")
    return str(seen[0])
