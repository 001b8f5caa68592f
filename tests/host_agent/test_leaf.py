"""How often a rank starts the leaf of its host."""

import contextlib
import hashlib
import os
import resource
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from host_agent.joining import leaf
from netsum_common.channel import TlsFiles

DEADLINE_S = 100.0
CONTROLLER = "unix:/nowhere"


def wait_for_leaf(name: str) -> None:
    """Wait for a leaf that says it is ready."""
    address = f"\0netsum-{name}/{hashlib.sha256(CONTROLLER.encode()).hexdigest()[:8]}"
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(DEADLINE_S)
            try:
                connection.connect(address)
                if connection.recv(10) == leaf.READY:
                    return
            except OSError:
                time.sleep(0.05)
    raise AssertionError("no leaf was ready")


def children() -> set[int]:
    """The processes that this one has started and not waited for."""
    return {
        int(pid) for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()
    }


@pytest.fixture(autouse=True)
def start_ready_leaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let keepers start a process that is ready at once, in place of a switch."""
    command = [sys.executable, "-P", "-m", "tests.host_agent.ready_leaf"]
    monkeypatch.setattr(leaf, "command_of", lambda _: command)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


def test_a_leaf_is_kept_by_a_process_with_more_than_1024_files() -> None:
    """The limit of select(), which a server with many connections passes."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    others = children()
    name = f"files-{os.getpid()}"
    keeper = leaf.LeafKeeper(CONTROLLER, TlsFiles(), lambda *_: None)
    with contextlib.ExitStack() as files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(2048, limits[1]), limits[1]))
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        for _ in range(1024):
            files.enter_context(open(os.devnull, "rb"))
        keeper.keep(name, "127.0.0.1")
        wait_for_leaf(name)
        (pid,) = children() - others
        assert keeper._thread is not None
        assert keeper._thread.is_alive()
        keeper.close()
        os.kill(pid, signal.SIGKILL)


def test_a_leaf_that_was_ready_is_started_again_however_often_it_is_killed() -> None:
    failures: list[tuple[str, str]] = []
    name = f"killed-{os.getpid()}"
    keeper = leaf.LeafKeeper(CONTROLLER, TlsFiles(), lambda *failure: failures.append(failure))
    others = children()  # Children of other tests of this process.
    keeper.keep(name, "127.0.0.1")
    for _ in range(2 * leaf._MOST_STARTS):
        wait_for_leaf(name)
        # Once more: the keeper, which connected before, has then heard it too and counts no failed start.
        wait_for_leaf(name)
        (pid,) = children() - others
        os.kill(pid, signal.SIGKILL)
        while pid in children():
            time.sleep(0.01)
    wait_for_leaf(name)
    (pid,) = children() - others
    keeper.close()
    os.kill(pid, signal.SIGKILL)
    assert not failures
