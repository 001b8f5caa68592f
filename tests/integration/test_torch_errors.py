"""Errors as users see them: at every rank, soon, with the cause and the rank."""

import contextlib
import json
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch
import torch.distributed as dist

from host_agent.joining import JoinError
from host_agent.torch.rendezvous import join
from tests.free_ports import free_port
from tests.integration.torch_ranks import TIMEOUT, Ranks, local_service

pytestmark = pytest.mark.torch

Call = Callable[[Any], object]


def _error_of(call: Callable[[], object]) -> tuple[str, str]:
    """Return the type and the message of a call's error."""
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error)
    return "", "no error"


# Ranks 0 and 1 do the first, rank 2 the second.
DISAGREEMENTS: dict[str, tuple[Call, Call, str, str]] = {
    "counts": (
        lambda group: dist.all_reduce(torch.ones(4), group=group),
        lambda group: dist.all_reduce(torch.ones(5), group=group),
        "all_reduce (SUM) of torch.float32 [4]",
        "all_reduce (SUM) of torch.float32 [5]",
    ),
    "shapes": (
        lambda group: dist.all_reduce(torch.ones(2, 6), group=group),
        lambda group: dist.all_reduce(torch.ones(6, 2), group=group),
        "all_reduce (SUM) of torch.float32 [2, 6]",
        "all_reduce (SUM) of torch.float32 [6, 2]",
    ),
    "types that travel alike": (
        lambda group: dist.all_reduce(torch.ones(4), group=group),
        lambda group: dist.all_reduce(torch.ones(4, dtype=torch.bfloat16), group=group),
        "all_reduce (SUM) of torch.float32 [4]",
        "all_reduce (SUM) of torch.bfloat16 [4]",
    ),
    "types that do not": (
        lambda group: dist.all_reduce(torch.ones(4, dtype=torch.int64), group=group),
        lambda group: dist.all_reduce(torch.ones(4, dtype=torch.bool), group=group),
        "all_reduce (SUM) of torch.int64 [4]",
        "all_reduce (SUM) of torch.bool [4]",
    ),
    "operations": (
        lambda group: dist.all_reduce(torch.ones(4), group=group),
        lambda group: dist.all_reduce(torch.ones(4), dist.ReduceOp.MAX, group=group),
        "all_reduce (SUM)",
        "all_reduce (MAX)",
    ),
    "roots": (
        lambda group: dist.broadcast(torch.ones(4), 0, group=group),
        lambda group: dist.broadcast(torch.ones(4), 1, group=group),
        "broadcast from rank 0",
        "broadcast from rank 1",
    ),
    "collectives": (
        lambda group: dist.all_reduce(torch.ones(4), group=group),
        lambda group: dist.barrier(group=group),
        "all_reduce (SUM)",
        "barrier",
    ),
    "a call left out": (
        lambda group: [dist.all_reduce(torch.ones(each), group=group) for each in (1, 2)],
        lambda group: dist.all_reduce(torch.ones(2), group=group),
        "all_reduce (SUM) of torch.float32 [1], call 0",
        "all_reduce (SUM) of torch.float32 [2], call 0",
    ),
}


def test_ranks_that_do_not_agree_get_an_error_that_names_who_called_what(ranks: Ranks) -> None:
    outcomes = ranks.run(_disagreements)
    for rank, errors in enumerate(outcomes):
        for (what, (kind, message)), (_, _, first, second) in zip(
            errors.items(), DISAGREEMENTS.values(), strict=True
        ):
            print(f"rank {rank}, {what}: {message}")
            assert kind == "DistBackendError"
            assert "the ranks do not agree on this collective" in message
            assert f"ranks 0 and 1 called {first}" in message
            assert f"rank 2 called {second}" in message


def _disagreements(rank: int, world: int) -> dict[str, tuple[str, str]]:
    """Each in a group of its own: one that failed cannot be used any more."""
    errors = {}
    for what, (common, odd, *_) in DISAGREEMENTS.items():
        group = dist.new_group()
        errors[what] = _error_of(partial(odd if rank == 2 else common, group))
        dist.barrier()
        dist.destroy_process_group(group)
    return errors


def test_what_comes_after_a_failure_is_refused_and_the_rest_of_the_process_none_the_worse(
    ranks: Ranks,
) -> None:
    ranks.run(_after_a_failure)


def _after_a_failure(rank: int, world: int) -> None:
    group = dist.new_group()
    with pytest.raises(dist.DistBackendError, match="do not agree"):
        dist.all_reduce(torch.ones(4 + rank), group=group)
    work = dist.all_reduce(torch.ones(4), group=group, async_op=True)
    refusal = r"of torch.float32 \[4\], call 1 of this group: this process group failed before: all_reduce .*do not agree"
    with pytest.raises(dist.DistBackendError, match=refusal):
        work.wait()
    assert not work.is_success()
    with pytest.raises(RuntimeError, match="failed before"):
        work.get_future().wait()
    dist.destroy_process_group(group)
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [world] * 4


def test_what_cannot_be_done_is_refused_at_the_call_and_the_group_goes_on(ranks: Ranks) -> None:
    ranks.run(_misuse)


def _misuse(rank: int, world: int) -> None:
    with pytest.raises(TypeError, match="BOR is not defined for torch.float32"):
        dist.all_reduce(torch.ones(4), dist.ReduceOp.BOR)
    with pytest.raises(TypeError, match="AVG is not defined for torch.bool"):
        dist.all_reduce(torch.ones(4, dtype=torch.bool), dist.ReduceOp.AVG)
    with pytest.raises(TypeError, match="SUM is not defined for torch.float8_e8m0fnu"):
        dist.all_reduce(torch.ones(4).to(torch.float8_e8m0fnu))
    with pytest.raises(TypeError, match="MAX is not defined for torch.complex64"):
        dist.group.WORLD.allreduce([torch.ones(4, dtype=torch.complex64)], dist.ReduceOp.MAX)
    with pytest.raises(ValueError, match="for each of 3 ranks, got 1"):
        dist.all_gather([torch.ones(4)], torch.ones(4))
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [world] * 4


def test_a_rank_that_does_not_come_is_named_when_the_timeout_has_passed(ranks: Ranks) -> None:
    ranks.run(_late)


def _late(rank: int, world: int) -> None:
    # In a subgroup, whose second rank is rank 2 of the world.
    hasty = dist.new_group([0, 2], timeout=timedelta(seconds=4))
    if rank == 0:
        work = dist.all_reduce(torch.ones(3), group=hasty, async_op=True)
        with pytest.raises(dist.DistBackendError, match="not done within 0.2 s; it goes on"):
            work.wait(timedelta(seconds=0.2))
        with pytest.raises(
            dist.DistBackendError, match="barrier, call 1 of this group was not done within 0.1 s"
        ):
            dist.barrier(hasty, timeout=timedelta(seconds=0.1))
        with pytest.raises(
            dist.DistBackendError, match="rank 2 did not take part before the timeout of 4 s"
        ) as caught:
            work.wait()
        assert isinstance(caught.value.__cause__, TimeoutError)
        print(caught.value)
    dist.barrier()
    if rank != 1:
        dist.destroy_process_group(hasty)


def test_a_rank_that_destroyed_its_group_is_named(ranks: Ranks) -> None:
    ranks.run(_gone)


def _gone(rank: int, world: int) -> None:
    group = dist.new_group()
    if rank == 1:
        dist.destroy_process_group(group)
        return
    with pytest.raises(dist.DistBackendError, match="rank 1 left before this was done"):
        dist.all_reduce(torch.ones(3), group=group)
    dist.destroy_process_group(group)


def test_a_killed_rank_is_named_long_before_the_timeout(torch_service: str) -> None:
    with Ranks(3, {"NETSUM_CONTROLLER": torch_service}) as ranks:
        assert ranks.run(_killed) == ["named", None, "named"]


def _killed(rank: int, world: int) -> str:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    model(torch.ones(2, 8)).sum().backward()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(
        dist.DistBackendError,
        match=r"^(all_reduce|broadcast) .* of this group: rank 1 left before this was done",
    ):
        model(torch.ones(2, 8)).sum().backward()
    with pytest.raises(dist.DistBackendError, match="rank 1 left before this was done"):
        dist.all_reduce(torch.ones(100))
    return "named"


@pytest.mark.parametrize("hook", ["none", "built in", "in Python"])
def test_ctrl_c_while_the_backward_pass_waits(torch_service: str, hook: str) -> None:
    with Ranks(2, {"NETSUM_CONTROLLER": torch_service}) as ranks:
        assert ranks.run(_interrupted, hook)[0] == "KeyboardInterrupt"


def _interrupted(rank: int, world: int, hook: str) -> str:
    from netsum.torch import allreduce_hook

    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    if hook == "built in":
        model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    elif hook == "in Python":
        model.register_comm_hook(dist.group.WORLD, allreduce_hook)
    model(torch.ones(2, 8)).sum().backward()
    loss = model(torch.ones(2, 8)).sum()
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:  # begins once rank 0 was interrupted
        store.wait(["interrupted"])
        loss.backward()
        return ""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main = threading.get_ident()

    def interrupt() -> None:
        _await_engine(main)
        os.kill(os.getpid(), signal.SIGINT)
        store.set("interrupted", "")

    threading.Thread(target=interrupt, daemon=True).start()
    try:
        loss.backward()
    except BaseException as error:
        return type(error).__name__
    return "no error"


def _await_engine(thread: int) -> None:
    """Wait until a thread has been in autograd's engine for a while: in the reducer, which waits."""
    seen = 0
    while seen < 100:
        frames = [each.f_code for each, _ in traceback.walk_stack(sys._current_frames()[thread])]
        inside = torch.autograd.graph._engine_run_backward.__code__ in frames
        seen = seen + 1 if inside else 0
        time.sleep(0.005)


def test_a_switch_that_dies_is_reported_before_the_timeout() -> None:
    with local_service() as (address, service), Ranks(2, {"NETSUM_CONTROLLER": address}) as ranks:
        ranks.run(_switch_dies, service)


def _switch_dies(rank: int, world: int, service: int) -> None:
    dist.barrier()
    await_all(world)
    if rank == 0:
        kill_switch_of(service)
    with pytest.raises(dist.DistBackendError, match="the embedded switch was killed by SIGKILL"):
        reduce_until_it_fails()


def test_a_service_that_is_killed_is_reported_long_before_the_timeout() -> None:
    with local_service() as (address, service), Ranks(2, {"NETSUM_CONTROLLER": address}) as ranks:
        ranks.run(_service_dies, service, deadline_s=TIMEOUT.total_seconds() / 2)


def _service_dies(rank: int, world: int, service: int) -> None:
    unused = dist.new_group()
    dist.barrier()
    await_all(world)
    if rank == 0:
        os.kill(service, signal.SIGKILL)
    gone = "the job of this group has ended: .* has taken back the memory that it shared.* and nothing answers at unix:"
    with pytest.raises(dist.DistBackendError, match=gone):
        reduce_until_it_fails()
    with pytest.raises(dist.DistBackendError, match="the job of this group has ended: nothing answers at"):
        dist.all_reduce(torch.ones(100), group=unused)


def await_all(world: int) -> None:
    """Wait until all ranks are here: one may be out of a barrier whose result the others have not received yet."""
    store = dist.distributed_c10d._get_default_store()
    if store.add("here", 1) == world:
        store.set("all are here", "")
    store.wait(["all are here"])


def reduce_until_it_fails() -> None:
    """The switch ends a moment after the service, and ranks that run its program need it until they wait the next time."""
    while True:
        dist.all_reduce(torch.ones(100))


def kill_switch_of(service: int) -> None:
    """Kill the switch that a service started."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == service and b"sim.switch.serve" in (process / "cmdline").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)


def test_ranks_that_cannot_meet_get_the_reason_from_init_process_group(torch_service: str) -> None:
    with Ranks(3, backend=None) as ranks:
        ranks.run(_no_service)
        ranks.run(_world_sizes, torch_service, free_port())
        ranks.run(_missing, torch_service, free_port())


def _no_service(rank: int, world: int) -> None:
    os.environ["NETSUM_CONTROLLER"] = "127.0.0.1:1"
    store = dist.HashStore()
    kind, message = _error_of(lambda: dist.init_process_group("netsum", store=store, rank=0, world_size=1))
    print(message)
    assert kind == "JoinError"
    assert "127.0.0.1:1" in message


def _world_sizes(rank: int, world: int, service: str, port: int) -> None:
    os.environ["NETSUM_CONTROLLER"] = service
    kind, message = _error_of(
        lambda: dist.init_process_group(
            "netsum",
            init_method=f"tcp://127.0.0.1:{port}",
            rank=rank,
            world_size=2 if rank == 1 else 3,
            timeout=timedelta(seconds=30),
        )
    )
    print(message)
    assert kind == "JoinError"
    assert "rank 1" in message
    assert re.search("rank 1 was started for 2 ranks, rank 0 for 3|for 3 ranks, rank 1 for 2", message)


def _missing(rank: int, world: int, service: str, port: int) -> None:
    os.environ["NETSUM_CONTROLLER"] = service
    if rank == 2:
        return
    store = dist.TCPStore("127.0.0.1", port, is_master=rank == 0, wait_for_workers=False)
    kind, message = _error_of(
        lambda: dist.init_process_group(
            "netsum", store=store, rank=rank, world_size=3, timeout=timedelta(seconds=4)
        )
    )
    print(message)
    assert kind == "JoinError"
    assert "rank 2 of 3 did not come within 4 s" in message


def test_a_job_on_another_machines_loopback_is_refused() -> None:
    store = dist.HashStore()
    elsewhere = {"service": "127.0.0.1:1", "job": "j", "machine": "another"}
    store.set("job", json.dumps(elsewhere))
    store.set("size/0", "2")
    with pytest.raises(JoinError, match="rank 1 runs on another machine than rank 0"):
        join(store, 1, range(2), places=2, group="g", timeout=timedelta(seconds=2))
