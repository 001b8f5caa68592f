"""A pytest plugin that gives PyTorch's own tests netsum's process groups where they make Gloo's.

    python -m netsum.local_service --places 4 --slots 16 --listen 127.0.0.1:9911 &
    NETSUM_CONTROLLER=127.0.0.1:9911 python -m pytest -p tests.host_agent.torch.gloo_as_netsum test/distributed/FILE.py

The tests are those of PyTorch's sources (test/distributed), which need the package expecttest. PT_BACKEND=gloo leaves the
groups as they are, to see what passes over Gloo. PT_LOG names a file for a line of each test and each kind of call that it made:
"slots" or "gloo", and the operation. Ranks are forked from a process that has loaded what they need.
"""

import functools
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed.distributed_c10d as c10d
from torch.testing._internal.common_distributed import MultiProcessTestCase

import netsum.torch
from host_agent.torch.process_group import NetsumProcessGroup
from tests.integration import torch_preloaded  # noqa: F401

# FSDP2's tests ask for as many devices as ranks; of the CPU they count one.
torch.cpu.device_count = torch.accelerator.device_count = lambda: 4
logged: set[tuple[str, ...]] = set()


def log(*what: str) -> None:
    """Write a line for the running test, unless this process has written it."""
    line = os.environ["PYTEST_CURRENT_TEST"].split(" ")[0], *what
    if "PT_LOG" in os.environ and line not in logged:
        logged.add(line)
        with Path(os.environ["PT_LOG"]).open("a") as file:
            file.write("\t".join(line) + "\n")


def fork(case: MultiProcessTestCase) -> None:
    """Start the ranks of a test."""
    case._start_processes(torch.multiprocessing.get_context("fork").Process)


def logging_calls(method: Any, name_at: int) -> Any:
    """Wrap a method of a group that is called with the name of an operation."""

    @functools.wraps(method)
    def wrapped(group: NetsumProcessGroup, *arguments: Any, **options: Any) -> Any:
        called = arguments[name_at]
        named = called if isinstance(called, str) else called[0]
        log("gloo" if named is called or options.get("through_gloo") else "slots", named.split(" ")[0])
        return method(group, *arguments, **options)

    return wrapped


MultiProcessTestCase._spawn_processes = fork
if os.environ.get("PT_BACKEND", netsum.torch.NAME) == netsum.torch.NAME:
    made = c10d._new_process_group_helper

    @functools.wraps(made)
    def make(size: int, rank: int, ranks: list[int], backend: Any, *arguments: Any, **options: Any) -> Any:
        """Make a group; every backend but those for tests is netsum."""
        if "gloo" in str(backend) or str(backend) == "undefined":
            backend = c10d.Backend(netsum.torch.NAME)
        return made(size, rank, ranks, backend, *arguments, **options)

    c10d._new_process_group_helper = make
    NetsumProcessGroup._work = logging_calls(NetsumProcessGroup._work, 3)  # type: ignore[method-assign]
    NetsumProcessGroup._message = logging_calls(NetsumProcessGroup._message, 0)  # type: ignore[method-assign]
