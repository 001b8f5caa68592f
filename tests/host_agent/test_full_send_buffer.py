"""A network interface that sends nothing: the send buffer stays full, and the deadline holds all the same."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from host_agent.collectives import AllReduceRequest
from host_agent.errors import SwitchSilentError
from host_agent.protocol.core import WorkerCore
from host_agent.schedule import Schedule
from host_agent.transport.exchange import FAILED, TIME_UP
from host_agent.transport.udp import UdpLink
from host_agent.wire import Admission

TIMEOUT_NS = 3_600 * 10**9
ADMISSION = Admission(1, 7, 9, 0, 2, 256, 256)


@pytest.fixture
def full() -> Iterator[socket.socket]:
    """A socket that takes a few datagrams and no more, as the other end is not read."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with near, far:
        near.setblocking(False)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)
        yield near


def test_the_deadline_passes_while_the_send_buffer_is_full(full: socket.socket) -> None:
    core = WorkerCore(ADMISSION, TIMEOUT_NS)
    with closing(UdpLink(core, ("127.0.0.1", 0))) as link:
        os.dup2(full.fileno(), int(link.link["fd"][0]))
        link.link["segments"] = 1
        schedule = Schedule(core)
        schedule.add(AllReduceRequest(np.ones(1 << 18, np.int32), "max").plan(ADMISSION, 0))
        now_ns = time.monotonic_ns()
        schedule.begin(now_ns)
        assert link.exchange(0.0) == TIME_UP
        assert "the send buffer is full" in link.trouble()
        core.state["progress_ns"] = now_ns - TIMEOUT_NS + 10_000_000
        assert link.exchange(60.0) == FAILED, "at the deadline, not after the time of the call"
        (outcome,) = schedule.take_ended(time.monotonic_ns(), link.trouble())
        assert isinstance(outcome.error, SwitchSilentError)
        assert "the send buffer is full" in str(outcome.error)
