"""A second link beside UDP: memory of this process, whose other end is a switch for a job of one worker."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from numba.core.caching import NullCache

from host_agent.collectives import plan_allreduce
from host_agent.errors import MissingWorkersError, PeerError
from host_agent.progress import Progress
from host_agent.protocol.core import WorkerCore
from host_agent.transport import exchange as loop
from host_agent.transport.exchange import LINKS, Operations
from host_agent.transport.link import Link
from host_agent.wire import Admission
from host_agent.wire.constants import KIND_CONTRIBUTE, KIND_RESULT
from host_agent.wire.header import read_header, write_header

ROWS = 8
ADMISSION = Admission(1, 7, 9, 0, 1, 16, 64)


class Memory(NamedTuple):
    wake: Any
    work: Any
    rows: Any
    lengths: Any
    counts: Any  # datagrams that have come, and of these the ones taken; 1: the switch answers


def fetch(memory):  # type: ignore[no-untyped-def]
    if memory.counts[1] == memory.counts[0]:
        memory.counts[:2] = 0


def take(memory):  # type: ignore[no-untyped-def]
    at = memory.counts[1]
    if at == memory.counts[0]:
        return np.int64(0), np.int64(-1)
    memory.counts[1] += 1
    return np.int64(memory.rows[at].ctypes.data), np.int64(memory.lengths[at])


def free_rows(memory):  # type: ignore[no-untyped-def]
    first = memory.counts[0]
    return memory.rows[first:], memory.lengths[first:]


def send(memory, count):  # type: ignore[no-untyped-def]
    if memory.counts[2] != 0:
        for row in range(memory.counts[0], memory.counts[0] + count):
            words = memory.rows[row].view(np.uint32)
            version, kind, op, flags, job, token, worker, _, index, chunk, exponent, print_ = read_header(
                words
            )
            if kind == KIND_CONTRIBUTE:
                write_header(
                    words,
                    version,
                    KIND_RESULT,
                    op,
                    flags,
                    job,
                    token,
                    worker,
                    1,
                    index,
                    chunk,
                    exponent,
                    print_,
                )
        memory.counts[0] += count
    return memory.lengths.size - memory.counts[0] < 2 and memory.counts[0] == 0


def wait(memory, core, received, blocked, timeout_ns):  # type: ignore[no-untyped-def]
    return np.int64(0)  # What the switch answers is there at once.


_compiled = numba.njit(nogil=True, error_model="numpy")
LINKS[Memory] = Operations(*map(_compiled, (fetch, take, free_rows, send, wait)))


class MemoryLink(Link):
    def __init__(self, core: WorkerCore, answers: bool) -> None:
        super().__init__(core)
        rows, lengths = np.zeros((ROWS, core.row_bytes), np.uint8), np.zeros(ROWS, np.int32)
        counts = np.array([0, 0, answers], np.int64)
        self.ends = Memory(self._wake, np.zeros(2, np.int64), rows, lengths, counts)

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", 1

    def enter(self, core: WorkerCore) -> None:
        self._core = core

    def trouble(self) -> str:
        return "" if self.ends.counts[2] else "the memory has no other end"

    def forget_trouble(self) -> None:
        pass


@pytest.fixture(autouse=True)
def uncached(monkeypatch: pytest.MonkeyPatch) -> None:
    """This module is in no stamp of the cache on disk."""
    for function in (loop.exchange, loop._exchange):
        monkeypatch.setattr(function, "_cache", NullCache())


@pytest.mark.parametrize("own_thread", [False, True])
def test_a_collective_over_another_link(own_thread: bool) -> None:
    core = WorkerCore(ADMISSION, 60 * 10**9)
    progress = Progress(core, MemoryLink(core, answers=True))
    if own_thread:
        progress.start_thread()
    values = np.random.default_rng(1).integers(-(10**6), 10**6, 10_000).astype(np.int32)
    reduced = progress.wait(progress.submit(plan_allreduce(ADMISSION, 0, values, "sum", None, "raise")))
    assert np.array_equal(reduced, values)
    progress.close()


def test_the_error_says_what_the_link_reports() -> None:
    core = WorkerCore(ADMISSION, 10**6)
    progress = Progress(core, MemoryLink(core, answers=False))
    with pytest.raises(PeerError, match="the memory has no other end") as raised:
        progress.wait(
            progress.submit(plan_allreduce(ADMISSION, 0, np.ones(64, np.int32), "sum", None, "raise"))
        )
    assert not isinstance(raised.value, MissingWorkersError)
    progress.close()
