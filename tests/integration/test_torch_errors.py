"""What users see when something is wrong: at every rank, soon, and saying what."""

import contextlib
import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch.distributed as dist  # noqa: E402
from torch_ranks import run_ranks  # noqa: E402

from host_agent.torch.joining import JoinError, Seat, start_service  # noqa: E402
from host_agent.torch.rendezvous import join  # noqa: E402

pytestmark = pytest.mark.torch


def test_ranks_that_do_not_agree_or_do_not_come_are_told_so() -> None:
    run_ranks(_faults, 2)


def _faults(rank: int, world: int) -> None:
    _disagreements(rank, world)
    _late(rank, world)


def _disagreements(rank: int, world: int) -> None:
    """Each in a group of its own: one that failed is of no use any more."""
    first = rank == 0
    groups = [dist.new_group() for _ in range(7)]
    with pytest.raises(dist.DistBackendError, match="do not agree"):
        dist.all_reduce(torch.ones(4) if first else torch.ones(5), group=groups[0])
    with pytest.raises(dist.DistBackendError, match="do not agree"):
        dist.all_reduce(torch.ones(2, 6) if first else torch.ones(6, 2), group=groups[1])
    with pytest.raises(dist.DistBackendError, match="do not agree"):
        dist.all_reduce(torch.ones(4, dtype=torch.float32 if first else torch.bfloat16), group=groups[2])
    with pytest.raises(dist.DistBackendError, match="do not agree"):
        dist.all_reduce(torch.ones(4, dtype=torch.int64 if first else torch.bool), group=groups[3])
    with pytest.raises(dist.DistBackendError, match="do not agree"):
        dist.all_reduce(torch.ones(4), dist.ReduceOp.SUM if first else dist.ReduceOp.MAX, group=groups[4])
    with pytest.raises(dist.DistBackendError, match="do not agree"):
        dist.barrier(group=groups[5]) if first else dist.all_reduce(torch.ones(4), group=groups[5])
    # What comes after is refused, through wait() as well.
    work = dist.all_reduce(torch.ones(4), group=groups[5], async_op=True)
    with pytest.raises(dist.DistBackendError, match="broken"):
        work.wait()
    assert not work.is_success()
    with pytest.raises(RuntimeError, match="broken"):
        work.get_future().wait()
    with pytest.raises(TypeError, match="BOR is not defined for torch.float32"):
        dist.all_reduce(torch.ones(4), dist.ReduceOp.BOR, group=groups[6])
    with pytest.raises(TypeError, match=r"complex64"):
        dist.group.WORLD.allreduce([torch.ones(4, dtype=torch.complex64)])
    with pytest.raises(ValueError, match="for each of 2 ranks"):
        dist.all_gather([torch.ones(4)], torch.ones(4), group=groups[6])
    # The rest of the process is none the worse.
    tensor = torch.ones(4)
    dist.all_reduce(tensor, group=groups[6])
    dist.all_reduce(tensor)
    assert tensor.tolist() == [4] * 4


def _late(rank: int, world: int) -> None:
    hasty = dist.new_group(timeout=timedelta(seconds=2))
    if rank == 1:
        time.sleep(4)
        return
    work = dist.all_reduce(torch.ones(3), group=hasty, async_op=True)
    with pytest.raises(dist.DistBackendError, match="not done within 0.3 s"):
        work.wait(timedelta(seconds=0.3))
    begun = time.monotonic()
    with pytest.raises(dist.DistBackendError, match="worker 1 did not contribute") as caught:
        work.wait()
    assert isinstance(caught.value.__cause__, TimeoutError)
    assert time.monotonic() - begun < 10


def test_a_killed_rank_is_missed_long_before_the_timeout() -> None:
    outcomes = run_ranks(_killed, 3)
    assert outcomes[1] is None
    assert all(0 < seconds < 10 for seconds in (outcomes[0], outcomes[2]))


def _killed(rank: int, world: int) -> float:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    model(torch.ones(2, 8)).sum().backward()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begun = time.monotonic()
    with pytest.raises(RuntimeError, match="rank 1 of the group left"):
        model(torch.ones(2, 8)).sum().backward()
    with pytest.raises(dist.DistBackendError, match="rank 1 of the group left"):
        dist.all_reduce(torch.ones(100))
    return time.monotonic() - begun


def test_a_service_that_is_not_there_is_an_error_at_every_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETSUM_CONTROLLER", "127.0.0.1:1")
    store = dist.HashStore()
    for rank in (0, 1):
        with pytest.raises(JoinError, match="nothing answers at 127.0.0.1:1"):
            join(store, rank, 2, place=rank, places=2, group="g", timeout=timedelta(seconds=2))


def test_a_job_on_another_machines_loopback_is_refused() -> None:
    store = dist.HashStore()
    elsewhere = {"service": "127.0.0.1:1", "job": "j", "machine": "another"}
    store.set("job", json.dumps(elsewhere))
    with pytest.raises(JoinError, match="rank 1 runs on another machine than rank 0"):
        join(store, 1, 2, place=1, places=2, group="g", timeout=timedelta(seconds=2))


def test_workers_that_do_not_agree_how_many_they_are_are_told_so() -> None:
    service = start_service(places=2)
    with ThreadPoolExecutor() as threads:
        seats = [
            threads.submit(
                Seat, service, job="j", worker_id=worker, num_workers=2 + worker, place=worker, timeout_s=20
            )
            for worker in (0, 1)
        ]
        for seat in seats:
            with pytest.raises(JoinError, match="do not agree how many they are"):
                seat.result()


def test_a_switch_that_dies_is_missed_before_the_timeout() -> None:
    run_ranks(_switch_dies, 2)


def _switch_dies(rank: int, world: int) -> None:
    dist.barrier()
    if rank == 0:
        for process in Path("/proc").glob("[0-9]*"):
            _kill_switch_of(process, os.getpid())
    begun = time.monotonic()
    with pytest.raises(dist.DistBackendError, match="the embedded switch was killed by SIGKILL"):
        dist.all_reduce(torch.ones(100))
    assert time.monotonic() - begun < 15


def _kill_switch_of(process: Path, rank_pid: int) -> None:
    """Kill a process if it is the switch of the service that this rank started."""
    with contextlib.suppress(OSError):
        if b"sim.switch.serve" not in (process / "cmdline").read_bytes():
            return
        service = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        if int(Path(f"/proc/{service}/stat").read_text().rpartition(")")[2].split()[1]) == rank_pid:
            os.kill(int(process.name), signal.SIGKILL)
