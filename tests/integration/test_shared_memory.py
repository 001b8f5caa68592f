"""Workers and switches that are killed while they share memory, and workers that write nonsense into it."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from host_agent.communicator import Communicator
from host_agent.errors import MissingWorkersError, SwitchSilentError
from host_agent.wire import Admission
from netsum_common.rings import (
    DOWN_TAIL,
    SWITCH_SLEEPS,
    UP_HEAD,
    UP_TAIL,
    WORKER_SLEEPS,
    AttachError,
    Grant,
    RingShape,
    attach,
)
from sim.switch.ports.attaching import MOST_RINGS
from tests.integration.simulated.loopback import LoopbackSwitch, on_all

DEADLINE_S = 60.0
SOON_S = 2.0
NAMED_S = 3.0
"""A deadline in whose last quarter a worker asks, and the switch answers, though the processors are busy with other work."""
WORKERS = 3
KILLS = int(os.environ.get("NETSUM_KILLS", "4"))
SHAPE = RingShape(64, 320)
_fork = multiprocessing.get_context("fork")

VALUES = [np.arange(worker, worker + 5_000, dtype=np.int32) for worker in range(WORKERS)]
SUM = np.sum(VALUES, axis=0, dtype=np.int32)


@pytest.fixture(autouse=True)
def _memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETSUM_LINK", "memory")


@pytest.fixture(scope="module")
def switch() -> Iterator[LoopbackSwitch]:
    with LoopbackSwitch(64, WORKERS) as running:
        yield running


def rings_of(pid: int) -> int:
    """How many mappings of rings a process has."""
    return Path(f"/proc/{pid}/maps").read_text().count("memfd:netsum-rings")


def eventually(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + DEADLINE_S
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def reduce_for_ever(admission: Admission, bind: tuple[str, int], worker: int, ready: Any) -> None:
    """A worker that is to be killed."""
    with Communicator(admission, bind=bind, timeout_s=DEADLINE_S) as communicator:
        ready.send("ready")
        while True:
            communicator.allreduce(VALUES[worker])


@contextmanager
def child(function: Callable[..., None], *arguments: Any) -> Iterator[tuple[Any, Any]]:
    """A forked process, and a pipe from it; it is killed at the end if it still runs."""
    ours, theirs = _fork.Pipe()
    process = _fork.Process(target=function, args=(*arguments, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield process, ours
    finally:
        process.kill()
        process.join(DEADLINE_S)
        ours.close()


@pytest.mark.parametrize("seed", range(KILLS))
def test_a_worker_that_is_killed_leaves_nothing_and_is_named(switch: LoopbackSwitch, seed: int) -> None:
    chance = random.Random(seed)
    before = rings_of(os.getpid())
    (admission, bind), *others = switch.start_job()
    with child(reduce_for_ever, admission, bind, 0) as (victim, pipe):
        communicators = [Communicator(each, bind=address, timeout_s=NAMED_S) for each, address in others]
        assert pipe.recv() == "ready"
        sums = 0

        def until_it_fails(communicator: Communicator) -> Any:
            nonlocal sums
            while True:
                reduced = communicator.allreduce(VALUES[communicator.worker_id])
                assert np.array_equal(reduced, SUM)
                sums += 1
                if sums == kill_after:
                    os.kill(victim.pid, signal.SIGKILL)

        kill_after = chance.randrange(1, 40)
        errors = on_all(communicators, until_it_fails)
        assert all(isinstance(error, MissingWorkersError) for error in errors), errors
        assert all(error.missing == (0,) for error in errors)
    for each in communicators:
        each.close()
    assert eventually(lambda: rings_of(os.getpid()) <= before)


def run_a_switch(pipe: Any) -> None:
    """A switch that is to be killed."""
    with LoopbackSwitch(64, WORKERS) as running:
        pipe.send(running.start_job())
        signal.pause()


@pytest.mark.parametrize("seed", range(KILLS))
def test_a_switch_that_is_killed_is_named(seed: int) -> None:
    chance = random.Random(seed)
    kill_after = chance.randrange(1, 40)
    with child(run_a_switch) as (victim, pipe):
        job = pipe.recv()
        communicators = [Communicator(each, bind=address, timeout_s=SOON_S) for each, address in job]
        sums = 0

        def until_it_fails(communicator: Communicator) -> Any:
            nonlocal sums
            while True:
                reduced = communicator.allreduce(VALUES[communicator.worker_id])
                assert np.array_equal(reduced, SUM)
                sums += 1
                if sums == kill_after:
                    os.kill(victim.pid, signal.SIGKILL)

        errors = on_all(communicators, until_it_fails)
        assert all(isinstance(error, SwitchSilentError) for error in errors), errors
        assert all("has taken back the memory" in str(error) for error in errors)
    for each in communicators:
        each.close()


@contextmanager
def nonsense(switch: tuple[str, int], address: str) -> Iterator[tuple[socket.socket, Grant, mmap.mmap]]:
    """Rings of a worker that has no admission and keeps to no rule."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind((address, 0))
        connection, grant = attach(switch, own, SHAPE, DEADLINE_S)
        memory = mmap.mmap(grant.memory, SHAPE.total)
        with connection:
            yield connection, grant, memory
        grant.close()


@pytest.mark.parametrize("seed", range(6))
def test_nonsense_in_rings_disturbs_no_other_worker(switch: LoopbackSwitch, seed: int) -> None:
    job = switch.start_job()
    rng = np.random.default_rng(seed)
    chance = random.Random(seed)
    with nonsense(job[0][0].switch, job[0][1][0]) as (_, grant, memory):
        words = np.frombuffer(memory, np.uint32)
        rows = np.frombuffer(memory, np.uint8, SHAPE.rows * SHAPE.row_bytes, SHAPE.up_rows)
        communicators = [Communicator(each, bind=address, timeout_s=DEADLINE_S) for each, address in job]
        futures = [
            [each.allreduce_async(VALUES[each.worker_id]) for _ in range(20)] for each in communicators
        ]
        while not all(future.done() for theirs in futures for future in theirs):
            rows[:] = rng.integers(0, 256, rows.size, np.uint8)
            first = SHAPE.up_lengths // 4
            lengths = rng.choice(
                np.array([0, 1, 20, 276, 319, 320, 321, 4096, 2**31, 2**32 - 1], np.uint32), SHAPE.rows
            )
            words[first : first + SHAPE.rows] = lengths
            # Mostly possible values, so that the switch goes on reading.
            words[UP_HEAD // 4] = (int(words[UP_TAIL // 4]) + chance.randrange(SHAPE.rows)) & 0xFFFFFFFF
            words[DOWN_TAIL // 4] = chance.getrandbits(32)
            words[SWITCH_SLEEPS // 4] = words[WORKER_SLEEPS // 4] = chance.randrange(4)
            with suppress(BlockingIOError):
                os.eventfd_write(grant.switch_bell, 1)
        for theirs in futures:
            for future in theirs:
                assert np.array_equal(future.result(), SUM)
        for each in communicators:
            each.close()
        del words, rows


def test_rings_with_an_impossible_index_are_closed(switch: LoopbackSwitch) -> None:
    job = switch.start_job()
    with nonsense(job[0][0].switch, job[0][1][0]) as (connection, grant, memory):
        words = np.frombuffer(memory, np.uint32)
        words[UP_HEAD // 4] = SHAPE.rows + 1
        del words
        os.eventfd_write(grant.switch_bell, 1)
        connection.settimeout(DEADLINE_S)
        assert connection.recv(1) == b""


@pytest.mark.parametrize(
    "shape",
    [RingShape(3, 320), RingShape(1 << 20, 320), RingShape(64, 1 << 20), RingShape(0, 0), RingShape(64, 63)],
)
def test_rings_of_other_shapes_are_refused(switch: LoopbackSwitch, shape: RingShape) -> None:
    (admission, (host, _)), *_ = switch.start_job()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind((host, 0))
        with pytest.raises(AttachError, match="shares no memory: the request is none"):
            attach(admission.switch, own, shape, DEADLINE_S)


def test_workers_come_and_go_faster_than_the_switch_tidies_up(switch: LoopbackSwitch) -> None:
    """The switch takes memory back twice a second; no worker is refused for the memory of workers that have left."""
    (admission, (host, _)), *_ = switch.start_job()
    for _ in range(2 * MOST_RINGS):
        with nonsense(admission.switch, host):
            pass


def test_an_address_must_be_bound(switch: LoopbackSwitch) -> None:
    (admission, _), *_ = switch.start_job()
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own,
        pytest.raises(AttachError, match="shares no memory"),
    ):
        attach(admission.switch, own, SHAPE, DEADLINE_S)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="another user can only be tried by root")
def test_another_user_cannot_attach(switch: LoopbackSwitch) -> None:
    (admission, (host, _)), *_ = switch.start_job()
    program = f"""
import os, socket, sys
from netsum_common.rings import AttachError, RingShape, attach
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind(({host!r}, 0))
os.setuid(65534)
try:
    attach({admission.switch!r}, own, RingShape(64, 320), {DEADLINE_S})
except AttachError as error:
    print(error)
"""
    outcome = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    assert "attached" not in outcome.stdout
    assert outcome.stdout.strip(), "it attached"


def test_its_memory_cannot_be_cut_short(switch: LoopbackSwitch) -> None:
    (admission, (host, _)), *_ = switch.start_job()
    with nonsense(admission.switch, host) as (_, grant, _memory):
        with pytest.raises(PermissionError):
            os.ftruncate(grant.memory, 0)
        with pytest.raises(PermissionError):
            os.ftruncate(grant.memory, 1 << 30)


@pytest.mark.parametrize("lanes", [64, 256, 1024])
def test_the_bits_are_those_of_udp(monkeypatch: pytest.MonkeyPatch, lanes: int) -> None:
    random = np.random.default_rng(lanes)
    arrays = [random.standard_normal(40 * lanes + 7).astype(np.float32) for _ in range(2)]
    sums = []
    with LoopbackSwitch(lanes, 2) as switch:
        for link in ("udp", "memory"):
            monkeypatch.setenv("NETSUM_LINK", link)
            with ExitStack() as attached:
                communicators = [
                    attached.enter_context(Communicator(admission, bind=bind, timeout_s=DEADLINE_S))
                    for admission, bind in switch.start_job()
                ]
                sums += on_all(communicators, lambda each: each.allreduce(arrays[each.worker_id]).tobytes())
    assert len(set(sums)) == 1
    assert np.allclose(np.frombuffer(sums[0], np.float32), arrays[0] + arrays[1], atol=1e-5)


def test_ports_by_udp_and_by_memory_in_one_job(
    switch: LoopbackSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    communicators = []
    for number, (admission, bind) in enumerate(switch.start_job()):
        monkeypatch.setenv("NETSUM_LINK", "udp" if number == 1 else "memory")
        communicators.append(Communicator(admission, bind=bind, timeout_s=DEADLINE_S))
    for each in on_all(communicators, lambda one: one.allreduce(VALUES[one.worker_id])):
        assert np.array_equal(each, SUM)
    for each in communicators:
        each.close()
