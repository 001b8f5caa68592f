"""Work handles over a real switch: in the background, in callbacks, cut short, and when the job is restarted."""

import mmap
import signal
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from netsum_common.lane_counts import LOCAL_LANES

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch
import torch.distributed as dist

from tests.integration.torch_ranks import Ranks

pytestmark = pytest.mark.torch

DEADLINE_S = 400.0
CHUNKS, LANES = 2000, LOCAL_LANES


def test_a_collective_progresses_while_the_program_never_lets_go_of_the_interpreter(
    ranks: Ranks, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    begun.write_bytes(b"\0")
    progressed, *_ = ranks.run(_holding_the_interpreter, begun)
    print(f"{progressed} of {CHUNKS} chunks were summed while a Python loop held the GIL")
    assert progressed > 0


def _holding_the_interpreter(rank: int, world: int, begun: Path) -> int:
    tensor = torch.ones(CHUNKS * LANES)
    with begun.open("r+b") as file, mmap.mmap(file.fileno(), 1) as flag:
        if rank != 0:
            until = time.monotonic() + DEADLINE_S
            while not flag[0] and time.monotonic() < until:
                time.sleep(0.002)
            dist.all_reduce(tensor)
            return 0
        communicator = dist.group.WORLD.communicator
        before = communicator.activity().counters["chunks"]
        work = dist.all_reduce(tensor, async_op=True)
        while communicator.activity().in_flight == 0:  # until its thread has begun
            time.sleep(0.001)
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1000.0)  # no other thread is given the interpreter from here on
        try:
            flag[0] = 1
            progressed = _chunks_while_holding(communicator, before)
        finally:
            sys.setswitchinterval(interval)
        work.wait()
    assert torch.equal(tensor, torch.full_like(tensor, world))
    return progressed


def _chunks_while_holding(communicator: Any, before: int) -> int:
    """Count chunks that are done between two looks with no sleep between; nothing here releases the GIL but the sleep."""
    progressed, seen = 0, before
    until = quiet_since = time.monotonic()
    until += DEADLINE_S
    while seen - before < CHUNKS and time.monotonic() < until:
        now = communicator.activity().counters["chunks"]
        if now > seen:
            progressed, quiet_since = progressed + now - seen, time.monotonic()
        elif time.monotonic() - quiet_since > 0.5:
            # The thread looks at Python once a second, and waits for it now.
            time.sleep(0.01)
            now, quiet_since = communicator.activity().counters["chunks"], time.monotonic()
        seen = now
    return progressed


def test_floats_need_no_memory_of_their_size(ranks: Ranks) -> None:
    for needed in ranks.run(_needed):
        assert needed < 4 << 20, "a fourth of the tensor"


def _needed(rank: int, world: int) -> int:
    """Return by how many bytes the process was larger while it reduced 16 MiB of float32."""
    tensor = torch.ones(4 << 20)
    dist.all_reduce(tensor[:1000])
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _resident("VmRSS")
    dist.all_reduce(tensor[1000:])
    return _resident("VmHWM") - before


def _resident(which: str) -> int:
    (line,) = [each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith(which)]
    return int(line.split()[1]) << 10


def test_what_a_signal_interrupts_goes_on_in_the_background(ranks: Ranks) -> None:
    ranks.run(_interrupted)


class _Interrupted(Exception):
    pass


def _interrupted(rank: int, world: int) -> None:
    def interrupt(*_: Any) -> None:
        raise _Interrupted

    tensor = torch.ones(1000)
    dist.barrier()
    if rank == 0:
        before = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(_Interrupted):
            dist.all_reduce(tensor)
        signal.signal(signal.SIGALRM, before)
        dist.group.WORLD.store.set("interrupted", b"")
    else:
        dist.group.WORLD.store.wait(["interrupted"], timedelta(seconds=DEADLINE_S))
        dist.all_reduce(tensor)
    dist.barrier()
    assert torch.equal(tensor, torch.full_like(tensor, world))


def test_what_is_under_way_when_a_group_is_destroyed_fails_and_says_so(ranks: Ranks) -> None:
    ranks.run(_destroyed_under_way)


def _destroyed_under_way(rank: int, world: int) -> None:
    group = dist.new_group()
    if rank == 0:
        work = dist.all_reduce(torch.ones(1000), group=group, async_op=True)
        future = work.get_future()
        waiting = threading.Thread(target=_waiting_in_vain, args=(work,))
        waiting.start()
        dist.destroy_process_group(group)
        waiting.join(DEADLINE_S)
        assert not waiting.is_alive()
        for wait in (work.wait, future.wait):
            with pytest.raises(RuntimeError, match="the process group was destroyed before this was done"):
                wait()
        with pytest.raises(dist.DistBackendError, match="destroyed"):
            group.allreduce([torch.ones(2)]).wait()
        group.shutdown()
        group.abort()
    dist.barrier()
    if rank != 0:
        dist.destroy_process_group(group)


def _waiting_in_vain(work: Any) -> None:
    with pytest.raises(dist.DistBackendError):
        work.wait()


def test_callbacks_may_begin_collectives_and_wait_for_them(ranks: Ranks) -> None:
    ranks.run(_callbacks)


def _callbacks(rank: int, world: int) -> None:
    def proceed(first: Any) -> Any:
        second = dist.all_reduce(first.value()[0], async_op=True).get_future().wait()
        dist.all_reduce(second[0])
        return second[0]

    last = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(proceed)
    assert last.wait().tolist() == [world**3] * 3


def test_a_restart_of_the_job_fails_its_collectives_and_a_new_group_goes_on(
    ranks: Ranks, torch_service: str
) -> None:
    for error in ranks.run(_restarted, torch_service):
        assert "an operator restarted the job, so what was added for this group is lost" in error
        assert "destroy it and make a new one, or let torchrun restart the job" in error


def _restarted(rank: int, world: int, service: str) -> str:
    from controller.service.client import OperatorClient

    group = dist.new_group()
    dist.barrier(group)
    if rank == 0:
        job_id = group.communicator.admission.job_id
        with OperatorClient(service) as operator:
            (job,) = [each for each in operator.jobs() if each.job_id == job_id]
            operator.restart_job(job.name)
    with pytest.raises(dist.DistBackendError) as caught:
        _reduce_until_it_fails(group)
    dist.destroy_process_group(group)
    again = dist.new_group()
    tensor = torch.ones(4)
    dist.all_reduce(tensor, group=again)
    assert tensor.tolist() == [world] * 4
    dist.destroy_process_group(again)
    return str(caught.value)


def _reduce_until_it_fails(group: Any) -> None:
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        dist.all_reduce(torch.ones(4), group=group)
        time.sleep(0.02)


def test_a_timeout_of_a_year_is_one_that_does_not_end(ranks: Ranks) -> None:
    ranks.run(_patient)


def _patient(rank: int, world: int) -> None:
    group = dist.new_group(timeout=timedelta(days=365))
    assert dist.barrier(group, async_op=True).wait(timedelta(seconds=DEADLINE_S))
    dist.destroy_process_group(group)
