"""Runs a function as the ranks of a torch job, each a process of its own, with a deadline."""

import multiprocessing
import os
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Any

TIMEOUT = timedelta(seconds=45)
"""Of the process groups; a collective that hangs fails by then."""


def run_ranks(
    body: Callable[[int, int], Any],
    world: int = 2,
    *,
    deadline_s: float = 90.0,
) -> list[Any]:
    """Return what `body(rank, world)` returned at each rank; None for a rank that was killed by a signal.

    Raises
    ------
    AssertionError
        A rank raised, or was not done by the deadline.
    """
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        ranks = []
        for rank in range(world):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(
                target=_rank,
                args=(body, rank, world, f"{folder}/store", theirs),
            )
            process.start()
            theirs.close()
            ranks.append((process, ours))
        try:
            return _gather([pipe for _, pipe in ranks], time.monotonic() + deadline_s)
        finally:
            for process, _ in ranks:
                process.join(2)
                process.kill()
                process.join()


def _gather(pipes: list[Connection], deadline: float) -> list[Any]:
    outcomes: dict[int, Any] = {}
    while len(outcomes) < len(pipes):
        open_pipes = [pipe for rank, pipe in enumerate(pipes) if rank not in outcomes]
        ready = wait(open_pipes, max(0.0, deadline - time.monotonic()))
        missing = [rank for rank in range(len(pipes)) if rank not in outcomes]
        assert ready, f"ranks {missing} were not done by the deadline"
        for pipe in ready:
            try:
                failed, value = pipe.recv()
            except EOFError:
                failed, value = False, None
            assert not failed, f"rank {pipes.index(pipe)}:\n{value}"
            outcomes[pipes.index(pipe)] = value
    return [outcomes[rank] for rank in range(len(pipes))]


def _rank(
    body: Callable[[int, int], Any],
    rank: int,
    world: int,
    store: str,
    pipe: Connection,
) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        import torch
        import torch.distributed as dist

        import netsum.torch

        netsum.torch.register()
        torch.set_num_threads(1)
        dist.init_process_group(
            "netsum", init_method=f"file://{store}", rank=rank, world_size=world, timeout=TIMEOUT
        )
        value = body(rank, world)
        dist.destroy_process_group()
        pipe.send((False, value))
    except BaseException:
        pipe.send((True, traceback.format_exc()))
