"""A network interface that takes no packets: the send buffer stays full, and the deadline holds all the same."""

import os
import socket

import numpy as np
import pytest

from host_agent import Admission, Communicator
from host_agent.errors import SwitchSilentError


@pytest.mark.parametrize("own_thread", [False, True])
def test_the_deadline_passes_while_the_send_buffer_is_full(own_thread: bool) -> None:
    communicator = Communicator(Admission(1, 7, 9, 0, 2, 256, 256), bind=("127.0.0.1", 0), timeout_s=0.5)
    full, unread = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    full.setblocking(False)
    full.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)
    # Nobody reads the other end, so the kernel refuses datagrams after a few, as for an interface that stands still.
    os.dup2(full.fileno(), communicator._link._socket.fileno())
    communicator._link.link["segments"] = 1
    ones = np.ones(1 << 18, np.int32)
    with communicator, pytest.raises(SwitchSilentError, match="the send buffer is full"):
        communicator.allreduce_async(ones, "max").result(60) if own_thread else communicator.allreduce(
            ones, "max"
        )
    full.close()
    unread.close()
