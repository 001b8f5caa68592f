"""Trainings whose ranks are killed, and replaced, in the middle of a step: the others go on in their processes.

NETSUM_KILLS sets how many ranks are killed; ``python -m tests.integration.test_torch_resize N`` prints how long the others took.
"""

import contextlib
import os
import random
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch
import torch.distributed as dist

from tests.integration.torch_ranks import forking, local_service

pytestmark = pytest.mark.torch

TIMEOUT = timedelta(seconds=120)
SIZE = 40_000


def rank_of_a_training(port: int, rank: int | None, world: int, reports: Connection) -> None:
    """Train until the parent says stop; `rank` None: be added to the running job."""
    import netsum.torch

    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=TIMEOUT)
    if rank is None:
        netsum.torch.join_running(store, timeout=TIMEOUT)
    else:
        dist.init_process_group("netsum", store=store, rank=rank, world_size=world, timeout=TIMEOUT)
    weights, step = torch.zeros(SIZE), torch.zeros(1, dtype=torch.int64)

    def agree() -> None:
        """Take the weights of rank 0, which are those after its last good step."""
        dist.broadcast(weights, 0)
        dist.broadcast(step, 0)

    fresh = rank is None
    while True:
        try:
            if fresh:
                agree()
                fresh = False
            waiting = torch.tensor([netsum.torch.newcomers(), reports.poll()], dtype=torch.int32)
            dist.all_reduce(waiting, dist.ReduceOp.MAX)
            if waiting[1]:
                break
            if waiting[0]:
                netsum.torch.resize(TIMEOUT)
                fresh = True
                continue
            generator = torch.Generator().manual_seed(int(step) * 100 + dist.get_rank())
            gradient = torch.rand(SIZE, generator=generator)
            dist.all_reduce(gradient, dist.ReduceOp.AVG)
            weights += gradient
            step += 1
        except dist.DistBackendError:
            netsum.torch.resize(TIMEOUT)
            fresh = True
            continue
        reports.send((int(step), dist.get_world_size(), time.monotonic(), float(weights.double().sum())))
    reports.send(("weights", weights.numpy().tobytes(), dist.get_world_size()))
    dist.destroy_process_group()


class Training:
    """Processes that train together."""

    def __init__(self, world: int) -> None:
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self._context = forking()
        self.ranks: list[tuple[BaseProcess, Connection]] = []
        for rank in range(world):
            self.add(rank, world)

    def add(self, rank: int | None = None, world: int = 0) -> None:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(  # type: ignore[attr-defined]
            target=rank_of_a_training, args=(self.store.port, rank, world, theirs), daemon=True
        )
        process.start()
        theirs.close()
        self.ranks.append((process, ours))

    def kill(self, index: int) -> float:
        process, reports = self.ranks.pop(index)
        process.kill()
        process.join()
        reports.close()
        return time.monotonic()

    def next_steps(self, world: int, after: float) -> float:
        """Wait until every rank has reported a step in a world of this size, begun after a moment; return the last one's time."""
        deadline = time.monotonic() + TIMEOUT.total_seconds()
        last: dict[int, float] = {}
        while len(last) < len(self.ranks):
            assert time.monotonic() < deadline, (
                f"ranks without a step: {set(range(len(self.ranks))) - set(last)}"
            )
            pipes = [reports for _, reports in self.ranks]
            for ready in wait(pipes, 1.0):
                message = ready.recv()  # type: ignore[union-attr, call-arg]
                if message[1] == world and message[2] > after:
                    last.setdefault(pipes.index(ready), message[2])  # type: ignore[arg-type]
        return max(last.values())

    def stop(self) -> list[bytes]:
        """End the training; return the weights of each rank."""
        for _, reports in self.ranks:
            reports.send("stop")
        ended = []
        for _, reports in self.ranks:
            while (message := reports.recv())[0] != "weights":
                pass
            ended.append(message[1])
        return ended


@contextlib.contextmanager
def training(world: int) -> Iterator[Training]:
    with local_service() as (address, _):
        os.environ["NETSUM_CONTROLLER"] = address
        running = Training(world)
        try:
            yield running
        finally:
            for process, _ in running.ranks:
                process.kill()
                process.join()
            del os.environ["NETSUM_CONTROLLER"]


def killed_and_replaced(kills: int, seed: int, world: int = 4) -> list[float]:
    """Kill ranks at random moments, each replaced by a new process; return the seconds to the next good step of all others."""
    draw = random.Random(seed)
    seconds = []
    with training(world) as running:
        running.next_steps(world, 0.0)
        for _ in range(kills):
            time.sleep(draw.random() * 0.2)
            moment = running.kill(draw.randrange(world))
            seconds.append(running.next_steps(world - 1, moment) - moment)
            running.add()
            running.next_steps(world, time.monotonic())
        weights = running.stop()
    assert len(weights) == world
    assert len(set(weights)) == 1, "all ranks end with the same weights"
    return seconds


@pytest.mark.timeout(600)
def test_the_others_go_on_without_a_killed_rank_and_with_its_replacement() -> None:
    killed_and_replaced(int(os.environ.get("NETSUM_KILLS", "2")), seed=1)


def test_what_is_not_the_default_group_of_netsum_has_no_size_to_change() -> None:
    import netsum.torch
    from host_agent.errors import MisuseError

    with pytest.raises(MisuseError, match="only a default group of init_process_group"):
        netsum.torch.resize()


def test_a_store_without_a_job_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import netsum.torch
    from host_agent.errors import MisuseError
    from host_agent.joining import JoinError

    with pytest.raises(JoinError, match=r"no job over netsum was announced in this store within 0\.2 s"):
        netsum.torch.join_running(dist.HashStore(), timeout=timedelta(seconds=0.2))
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(MisuseError, match="set MASTER_ADDR and MASTER_PORT"):
        netsum.torch.join_running()


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    seconds = killed_and_replaced(int(sys.argv[1]), seed=2)
    print(
        f"{len(seconds)} ranks of 4 killed and replaced; seconds to the next step of all others: "
        f"median {statistics.median(seconds):.2f}, worst {max(seconds):.2f}; all ended with the same weights"
    )


if __name__ == "__main__":
    main()
