"""The loop that joins a worker core to a UDP socket. Compiled, without the GIL: no Python per packet."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from host_agent.compiled import Records, compiled
from host_agent.protocol.arrivals import on_datagrams
from host_agent.protocol.departures import next_timer_ns, transmit
from host_agent.protocol.records import FAILURE_NONE
from host_agent.transport.messages import Inbox, Outbox, prepare, receive, send
from host_agent.transport.system_calls import (
    ERRNO_INTERRUPTED,
    POLLIN,
    POLLOUT,
    last_errno,
    monotonic_ns,
    poll,
)

TIME_UP: Final = 0
PASS_DONE: Final = 1
FAILED: Final = 2
WOKEN: Final = 3
INTERRUPTED: Final = 4
"""A signal came: Python must get a chance to handle it."""


@compiled
def exchange(
    state: Records,
    slots: Records,
    passes: Records,
    links: Records,
    inbox: Inbox,
    outbox: Outbox,
    poll_fds: Records,
    timespec: npt.NDArray[np.int64],
    until_ns: int,
) -> int:
    """Send and receive until a pass is done, the core fails, someone interrupts, or the time is up.

    Parameters
    ----------
    state, slots, passes : structured arrays
        The worker core.
    links : LINK array, one element
        The socket.
    inbox, outbox
        Its buffers.
    poll_fds : POLLFD array, two elements
        The socket, and an eventfd that wakes the loop when it waits.
    timespec : int64 array, two elements
        To work in.
    until_ns : int
        On the monotonic clock.

    Returns
    -------
    int
        PASS_DONE, FAILED, WOKEN, INTERRUPTED or TIME_UP.
    """
    core = state[0]
    link = links[0]
    done_before = core.passes_done
    while True:
        now_ns = monotonic_ns(timespec)
        received = receive(link, inbox)
        if received > 0:
            on_datagrams(state, slots, passes, inbox.rows, inbox.lengths, received, now_ns)
        if link.messages_sent == link.messages:
            prepare(link, outbox, transmit(state, slots, passes, now_ns, outbox.rows, outbox.lengths))
        busy = received > 0
        blocked = False
        if link.messages_sent < link.messages:
            busy = True
            blocked = send(link, outbox)
        if core.failure != FAILURE_NONE:
            return FAILED
        if core.passes_done > done_before:
            return PASS_DONE
        if link.wake != 0:
            return WOKEN
        if now_ns >= until_ns:
            return TIME_UP
        if busy and not blocked:
            continue
        # While the socket's buffer is full the core's timers can wait: what they would send could not leave.
        poll_fds[0].events = np.int16(POLLIN | POLLOUT) if blocked else np.int16(POLLIN)
        wake_ns = until_ns if blocked else min(next_timer_ns(state), until_ns)
        ready = poll(poll_fds, wake_ns - now_ns, timespec)
        if ready < 0 and last_errno() == ERRNO_INTERRUPTED:
            return INTERRUPTED
