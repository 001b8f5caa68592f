"""How long ranks of a torch job wait for the error when something goes wrong: ``python -m bench.torch_delays``.

Three ranks on one machine and a service of their own for each case. The other ranks call `all_reduce`; the time is from what
goes wrong to the error, the longest of them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from bench.machine import machine_and_date

ROOT = Path(__file__).resolve().parents[1]

WORLD = 3
TIMEOUT_S = 20.0


def _disagree(service: int) -> None:
    with contextlib.suppress(RuntimeError):
        dist.all_reduce(torch.ones(5))


def _destroy(service: int) -> None:
    dist.destroy_process_group()


def _die(service: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stay_away(service: int) -> None:
    time.sleep(TIMEOUT_S + 5.0)


def _kill_service(service: int) -> None:
    os.kill(service, signal.SIGKILL)


def _kill_switch(service: int) -> None:
    children = Path(f"/proc/{service}/task/{service}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGKILL)


CASES: dict[str, Callable[[int], None]] = {
    "rank 1 calls another shape": _disagree,
    "rank 1 destroyed its group": _destroy,
    "rank 1 died": _die,
    f"rank 1 does not come (timeout {TIMEOUT_S:g} s)": _stay_away,
    "the switch died": _kill_switch,
    "the service was killed": _kill_service,
}


@contextlib.contextmanager
def _service(folder: str) -> Iterator[tuple[str, int]]:
    command = [sys.executable, "-P", "-m", "netsum.local_service", "--places", str(WORLD)]
    with (
        open(f"{folder}/service.log", "w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT) as service,
    ):
        try:
            assert service.stdout is not None
            yield json.loads(service.stdout.readline())["address"], service.pid
        finally:
            service.terminate()


def _rank(rank: int, case: str, controller: str, service: int, folder: str, told: Any) -> None:
    os.environ["NETSUM_CONTROLLER"] = controller
    dist.init_process_group(
        "netsum",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=WORLD,
        timeout=timedelta(seconds=TIMEOUT_S),
    )
    for _ in range(3):
        dist.all_reduce(torch.ones(4))
    if rank == 1:
        told.put((rank, time.monotonic(), ""))
        told.close()
        told.join_thread()
        CASES[case](service)
        return
    try:
        while True:
            dist.all_reduce(torch.ones(4))
    except RuntimeError as error:
        told.put((rank, time.monotonic(), str(error).splitlines()[0]))


def _measure(case: str) -> tuple[float, str]:
    """Return the longest delay of an error in s, and what it said."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch.distributed"])
    with tempfile.TemporaryDirectory() as folder, _service(folder) as (controller, service):
        told = context.Queue()
        ranks = [
            context.Process(target=_rank, args=(rank, case, controller, service, folder, told), daemon=True)
            for rank in range(WORLD)
        ]
        for process in ranks:
            process.start()
        heard = {rank: (at, said) for rank, at, said in (told.get(timeout=300) for _ in ranks)}
        for process in ranks:
            process.kill()
            process.join()
    began = heard[1][0]
    return max((at - began, said) for rank, (at, said) in heard.items() if rank != 1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure each case, and print a line for it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("--runs", type=int, default=1, help="of each case; the longest delay counts")
    chosen = parser.parse_args(arguments)
    print(machine_and_date())
    print(f"load before: {os.getloadavg()[0]:.1f}; {WORLD} ranks; the longest of {chosen.runs}")
    for case in CASES:
        delay_s, said = max(_measure(case) for _ in range(chosen.runs))
        print(f"{case:38} {delay_s:6.2f} s  {said[:100]}", flush=True)


if __name__ == "__main__":
    main()
