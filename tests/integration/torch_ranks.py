"""Ranks of a torch job for tests: forked from one process that has PyTorch loaded, and kept from test to test.

Importing PyTorch in every rank of every test would take longer than all that is tested.
"""

import contextlib
import json
import multiprocessing
import multiprocessing.forkserver
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

TIMEOUT = timedelta(seconds=600)
"""Timeout of the process groups; a collective that hangs fails by then."""


def forking() -> BaseContext:
    """Return a context whose processes begin as copies of one that has loaded what ranks need."""
    context = multiprocessing.get_context("forkserver")
    root = os.fspath(Path(__file__).parents[2])
    context.set_forkserver_preload(["tests.integration.torch_preloaded"])
    kept = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (root, kept)))
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        if kept is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = kept
    return context


class Ranks:
    """The ranks of one default group, each waiting for functions to run; started when first needed.

    Parameters
    ----------
    world : int
        How many.
    environment : mapping
        Environment variables of their own.
    backend : str or None
        None: there is no default group, so `body` makes its own.
    """

    def __init__(
        self, world: int, environment: Mapping[str, str] | None = None, backend: str | None = "netsum"
    ) -> None:
        self.world = world
        self._environment = dict(environment or {})
        self._backend = backend
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._processes: list[Any] = []
        self._pipes: list[Connection] = []

    def run(self, body: Callable[..., Any], *arguments: Any, deadline_s: float = 800.0) -> list[Any]:
        """Return what `body(rank, world, *arguments)` returned at each rank; None for a rank that was killed.

        Raises
        ------
        AssertionError
            A rank raised, or was not done by the deadline. The ranks are started anew for the next test.
        """
        if not self._processes:
            self._start()
        whole = False
        try:
            for pipe in self._pipes:
                pipe.send((body, arguments))
            outcomes, whole = self._gather(time.monotonic() + deadline_s)
        finally:
            if not whole:
                self.close()
        return outcomes

    def close(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(5)
            process.kill()
            process.join()
        self._pipes, self._processes = [], []
        if self._folder is not None:
            self._folder.cleanup()

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        context: Any = forking()
        self._folder = tempfile.TemporaryDirectory()
        for rank in range(self.world):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_serve,
                args=(rank, self.world, self._folder.name, self._backend, self._environment, theirs),
                daemon=True,
            )
            process.start()
            theirs.close()
            self._processes.append(process)
            self._pipes.append(ours)

    def _gather(self, deadline: float) -> tuple[list[Any], bool]:
        """Return the ranks' results, and whether all of them live."""
        outcomes: dict[int, Any] = {}
        whole = True
        while len(outcomes) < self.world:
            missing = [rank for rank in range(self.world) if rank not in outcomes]
            ready = wait([self._pipes[rank] for rank in missing], max(0.0, deadline - time.monotonic()))
            assert ready, f"ranks {missing} were not done by the deadline"
            for pipe in ready:
                rank = self._pipes.index(pipe)  # type: ignore[arg-type]
                try:
                    failed, value = self._pipes[rank].recv()
                except (EOFError, ConnectionError):
                    failed, value, whole = False, None, False
                assert not failed, f"rank {rank}:\n{value}"
                outcomes[rank] = value
        return [outcomes[rank] for rank in range(self.world)], whole


def _serve(
    rank: int,
    world: int,
    folder: str,
    backend: str | None,
    environment: dict[str, str],
    pipe: Connection,
) -> None:
    os.environ.update(environment)
    import torch.distributed as dist

    failed: str | None = None
    if backend is not None:
        try:
            dist.init_process_group(
                backend, init_method=f"file://{folder}/store", rank=rank, world_size=world, timeout=TIMEOUT
            )
        except BaseException:
            failed = traceback.format_exc()
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            body, arguments = pipe.recv()
            try:
                outcome = (failed is not None, failed or body(rank, world, *arguments))
            except BaseException:
                outcome = (True, traceback.format_exc())
            pipe.send(outcome)
    if backend is not None and failed is None:
        dist.destroy_process_group()


@contextlib.contextmanager
def local_service(*options: str) -> Iterator[tuple[str, int]]:
    """Run ``python -m netsum.local_service``; yields what goes into NETSUM_CONTROLLER, and its process id."""
    with tempfile.TemporaryFile("w+") as log:
        service = subprocess.Popen(
            [sys.executable, "-m", "netsum.local_service", "--places", "4", *options],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            assert service.stdout is not None
            # A service that prints nothing ends by itself or with the test's deadline.
            line = service.stdout.readline()
            log.seek(0)
            assert line, f"the service did not start: {log.read()}"
            yield json.loads(line)["address"], service.pid
        finally:
            service.terminate()
            try:
                service.wait(20)
            except subprocess.TimeoutExpired:
                service.kill()
                service.wait()
