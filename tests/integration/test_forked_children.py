"""Trainers that fork: data loaders, `subprocess`, `os.fork`, with groups that are idle, under way and not begun."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import njit

from host_agent.errors import MisuseError, NetsumError
from host_agent.joining import JoinError, Membership, join
from host_agent.joining.stream import JoinStream
from netsum_common.channel import PLAINTEXT
from netsum_common.closing import Closing
from tests.controller.service_harness import Bench, until
from tests.integration.simulated.loopback import LoopbackSwitch
from tests.integration.test_shared_memory import rings_of

DEADLINE_S = 60.0
SOON_S = 10.0
"""Less than anything waits that gives up."""
STATES = ("not begun", "idle", "under way")
FORKED = "forked from one that had joined a job"


@pytest.fixture
def service(torch_service: str) -> str:
    return torch_service


def join_all(service: str, job: str, world: int = 2) -> list[Membership]:
    with ThreadPoolExecutor(world) as threads:
        return list(
            threads.map(lambda rank: join(service, job=job, rank=rank, world_size=world), range(world))
        )


def close_all(*opened: Closing) -> None:
    for each in opened:
        each.close()


def in_child(body: Callable[[], Any]) -> str:
    """Return a forked child's result, or the error that it gets; it must be soon."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(int(SOON_S))
            try:
                outcome = str(body())
            except BaseException as error:
                outcome = f"{type(error).__name__}: {error}"
            os.write(writing, outcome.encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        outcome = pipe.read()
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"the child ended with {status}, after {outcome!r}"
    return outcome


@contextmanager
def silent_child() -> Iterator[None]:
    """A child forked as a library in C does: nothing of Python runs in it, and it keeps every descriptor."""
    libc = ctypes.CDLL(None)
    fork, pause = libc.fork, libc.pause
    fork.argtypes = pause.argtypes = ()

    @njit  # type: ignore[untyped-decorator]
    def fork_and_stay() -> Any:
        pid = fork()
        while pid == 0:
            pause()
        return pid

    pid = fork_and_stay()
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_communicator_begins_while_a_child_keeps_what_it_inherited(service: str) -> None:
    memberships = join_all(service, "begins")
    with silent_child(), ExitStack() as opened:
        workers = [opened.enter_context(membership.communicator()) for membership in memberships]
        futures = [each.allreduce_async(np.ones(5, np.float32)) for each in workers]
        assert [future.result(DEADLINE_S).tolist() for future in futures] == [[2.0] * 5] * 2
    for membership in memberships:
        membership.close()


def test_a_job_starts_again_while_a_child_keeps_what_it_inherited(service: str) -> None:
    memberships = join_all(service, "again")
    workers = [membership.communicator() for membership in memberships]
    with silent_child(), ExitStack() as opened, ThreadPoolExecutor(2) as threads:
        with pytest.raises(NetsumError, match="serves only one"):
            memberships[0].communicator()
        for each in workers:
            each.close()
        list(threads.map(lambda membership: membership.start_again(DEADLINE_S), memberships))
        workers = [opened.enter_context(membership.communicator()) for membership in memberships]
        futures = [each.allreduce_async(np.ones(5, np.float32)) for each in workers]
        assert [future.result(DEADLINE_S).tolist() for future in futures] == [[2.0] * 5] * 2
    for membership in memberships:
        membership.close()


def test_a_membership_has_one_communicator_at_a_time(service: str) -> None:
    (membership,) = join_all(service, "alone", 1)
    with membership, membership.communicator() as before:
        membership.start_again(DEADLINE_S)
        with pytest.raises(MisuseError, match="close the communicator of job alone"):
            membership.communicator()
        before.close()
        with membership.communicator() as after:
            assert after.address == membership.bind
        with pytest.raises(MisuseError, match="timeout_s must be"):
            membership.communicator(timeout_s=0.0)
    with pytest.raises(JoinError, match="given up"):
        membership.port()


def test_what_came_before_a_socket_was_connected_is_not_read(service: str) -> None:
    """Anyone can send to a port that is bound and not connected; a worker reads its switch's packets alone."""
    (membership,) = join_all(service, "spoofed", 1)
    with membership, membership.port() as early, membership.port() as stranger:
        early.sendto(b"x" * 276, membership.bind)
        stranger.setblocking(False)
        with membership.communicator() as worker:
            with pytest.raises(BlockingIOError):
                stranger.recv(1)
            assert worker.allreduce(np.ones(3, np.float32)).tolist() == [1.0] * 3


def test_a_switch_takes_its_memory_back_while_a_child_keeps_what_it_inherited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from host_agent.communicator import Communicator

    monkeypatch.setenv("NETSUM_LINK", "memory")
    with LoopbackSwitch(64, 2) as switch:
        before = rings_of(os.getpid())
        workers = [Communicator(admission, bind=bind) for admission, bind in switch.start_job()]
        assert rings_of(os.getpid()) > before
        with silent_child():
            for each in workers:
                each.close()
            del each, workers
            until(lambda: rings_of(os.getpid()) <= before, "the switch keeps rings of workers that have left")


@pytest.mark.parametrize("state", STATES)
def test_a_child_cannot_take_part_in_its_parents_place(service: str, state: str) -> None:
    """Else the switch would add the child's numbers, and leave out the parent's, which come second."""
    memberships = join_all(service, f"in-its-place-{state.replace(' ', '-')}")
    mine, wrong = np.ones(5, np.float32), np.full(5, 100, np.float32)
    workers = [] if state == "not begun" else [membership.communicator() for membership in memberships]
    if state == "idle":
        for future in [each.allreduce_async(mine) for each in workers]:
            future.result(DEADLINE_S)
    futures = [workers[0].allreduce_async(mine)] if state == "under way" else []
    if workers:
        assert FORKED in in_child(lambda: workers[0].allreduce(wrong))
        assert FORKED in in_child(lambda: workers[0].allreduce_async(wrong).result(SOON_S))
    assert FORKED in in_child(lambda: memberships[0].communicator().allreduce(wrong))
    assert FORKED in in_child(lambda: join(service, job="of-the-child", rank=0, world_size=1))
    assert in_child(lambda: close_all(*workers, *memberships)) == "None"
    workers = workers or [membership.communicator() for membership in memberships]
    futures += [each.allreduce_async(mine) for each in workers[len(futures) :]]
    assert [future.result(DEADLINE_S).tolist() for future in futures] == [[2.0] * 5] * 2
    close_all(*workers, *memberships)


GARBAGE = """
import asyncio, gc, os, signal, sys, threading

def allocate_in_child():
    signal.alarm(20)
    gc.set_threshold(700)
    return [[] for _ in range(10_000)]

if sys.argv[1] == "by an allocation as soon as it is forked":
    os.register_at_fork(after_in_child=allocate_in_child)
import grpc
import host_agent.forks

async def call_in_vain():
    server, = held = [grpc.aio.server()]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
    call = channel.stream_stream("/x/y")()
    held += [channel, call, held]  # A cycle, which the collector alone takes away.
    try:
        await asyncio.wait_for(call.read(), 0.2)
    except (TimeoutError, grpc.aio.AioRpcError):
        pass
    await server.stop(0)

gc.disable()
thread = threading.Thread(target=asyncio.run, args=(call_in_vain(),))
thread.start()
thread.join()
gc.set_threshold(1_000_000_000)
gc.enable()
pid = os.fork()
if pid == 0:
    signal.alarm(20)
    gc.collect()
    os._exit(0 if gc.isenabled() else 3)
print(os.waitpid(pid, 0)[1], gc.isenabled(), flush=True)  # The end below writes no buffer out.
os._exit(0)
"""


@pytest.mark.parametrize("begun", ["by the child's program", "by an allocation as soon as it is forked"])
def test_a_collection_of_garbage_in_a_child_does_not_end_its_parents_objects_of_grpc(begun: str) -> None:
    """As in a DataLoader's worker: gRPC's objects wait, or crash, in a process that has none of their threads."""
    done = subprocess.run(
        [sys.executable, "-c", GARBAGE, begun],
        stdout=subprocess.PIPE,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    assert done.stdout == "0 True\n"


def test_programs_that_a_worker_starts_inherit_nothing(service: str) -> None:
    """By `subprocess` with all descriptors, spawn or forkserver: everything is closed on exec."""

    def kept() -> set[str]:
        found = set()
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):  # The list's own descriptor is closed already.
                if os.get_inheritable(int(name)):
                    found.add(name)
        return found

    before = kept()
    (membership,) = join_all(service, "inherited", 1)
    with membership, membership.communicator() as worker, membership.port():
        assert worker.allreduce(np.ones(3, np.float32)).tolist() == [1.0] * 3
        assert kept() <= before


CHILD_THAT_EXITS = """
import os, sys, time
import numpy as np
from tests.integration.test_forked_children import join_all
memberships = join_all(sys.argv[1], "exits")
workers = [membership.communicator() for membership in memberships]
future = workers[0].allreduce_async(np.ones(5, np.float32))
time.sleep(0.05)
if os.fork() == 0:
    sys.exit(0)
_, status = os.wait()
futures = [future, workers[1].allreduce_async(np.ones(5, np.float32))]
print(status, [float(each.result()[0]) for each in futures])
"""


def test_a_child_exits_while_its_parents_collective_is_under_way(service: str) -> None:
    """Exit by the interpreter's end, which runs registered functions."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD_THAT_EXITS, service],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    assert done.stdout == "0 [2.0, 2.0]\n"


PARENT_THAT_IS_KILLED = """
import os, signal, sys
from host_agent.joining import join
membership = join(sys.argv[1], job="killed", rank=0, world_size=2, addresses=["127.0.2.1"])
child = os.fork()
if child == 0:
    signal.pause()
print(child, flush=True)
signal.pause()
"""


def test_a_rank_that_is_killed_is_missed_at_once_though_its_child_lives(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bench = Bench(tmp_path, monkeypatch)
    try:
        bench.address = "127.0.0.1:0"
        bench.address = bench.serve(grace_s=0.1).address
        membership = bench.joining("killed", 1, 2)
        killed = subprocess.Popen(
            [sys.executable, "-c", PARENT_THAT_IS_KILLED, bench.address], stdout=subprocess.PIPE, text=True
        )
        with killed:
            assert killed.stdout is not None
            child = int(killed.stdout.readline())
            killed.kill()
            other = membership.result(DEADLINE_S)
            at = time.monotonic()
            until(lambda: other.left)
            assert time.monotonic() - at < SOON_S
            os.kill(child, signal.SIGKILL)
        other.close()
    finally:
        bench.close()


@pytest.mark.parametrize("connected", ["127.0.0.1", "::ffff:127.0.0.1", "::1"])
def test_a_child_finds_its_parents_connection_to_a_controller_in_whichever_form(connected: str) -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as controller:
        port = controller.getsockname()[1]
        stream = JoinStream(f"localhost:{port}", PLAINTEXT, *[pytest.fail] * 4)  # type: ignore[arg-type]
        connection = socket.create_connection((connected, port))
        stream.close_in_child()
        with pytest.raises(OSError, match="Bad file descriptor"):
            connection.getpeername()
        connection.detach()
