"""The loop that joins a worker core to a UDP socket. Compiled, without the GIL: no Python per packet."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from common.compiled import borrowed
from host_agent.compiled import Integer, Record, Records, compiled
from host_agent.protocol.arrivals import on_datagrams
from host_agent.protocol.departures import deadline_ns, fail_at_deadline, next_timer_ns, transmit
from host_agent.protocol.records import FAILURE_NONE
from host_agent.transport.messages import Inbox, Outbox, prepare, receive, send
from host_agent.transport.system_calls import (
    DEFAULT_FLOATING_POINT,
    ERRNO_INTERRUPTED,
    FENV_WORDS,
    POLLIN,
    POLLOUT,
    fegetenv,
    fesetenv,
    last_errno,
    monotonic_ns,
    poll,
)

TIME_UP: Final = 0
PASS_DONE: Final = 1
FAILED: Final = 2
WOKEN: Final = 3
INTERRUPTED: Final = 4
"""A signal arrived, and Python must handle it."""


BATCHES_IN_FLIGHT: Final = 8
"""While many chunks are in flight, the socket is read about so often between the transmission of a chunk and its RESULT. A
wakeup for every RESULT costs more than handling it, for the worker and for the sender. Reading an eighth of the chunks in
flight at a time leaves seven eighths under way, so that no link is idle."""
FEWEST_TO_REST: Final = 16
SHORTEST_REST_NS: Final = 100_000
"""Shorter pauses would last longer than intended: the system's timers have a slack of 50 microseconds."""
LONGEST_REST_NS: Final = 1_000_000


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
    """Send and receive until a pass is done, the core fails, a signal or a wakeup arrives, or the time is up.

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
    # A caller with another rounding mode, or that flushes subnormal numbers to zero, would get other bits than the other workers.
    callers = np.empty(FENV_WORDS, np.int64)
    fegetenv(callers.ctypes.data)
    fesetenv(DEFAULT_FLOATING_POINT)
    reason = _exchange(state, slots, passes, links, inbox, outbox, poll_fds, timespec, until_ns)
    fesetenv(callers.ctypes.data)
    return reason


@compiled
def _exchange(
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
    state, slots, passes, links = borrowed(state), borrowed(slots), borrowed(passes), borrowed(links)
    inbox, outbox, poll_fds = borrowed(inbox), borrowed(outbox), borrowed(poll_fds)
    core = state[0]
    link = links[0]
    done_before = core.passes_done
    while True:
        now_ns = monotonic_ns(timespec)
        received = receive(link, inbox)
        if received > 0:
            on_datagrams(state, slots, passes, inbox.rows, inbox.lengths, received, now_ns)
        filled = np.int64(0)
        if link.messages_sent == link.messages:
            filled = transmit(state, slots, passes, now_ns, outbox.rows, outbox.lengths)
            prepare(link, outbox, filled)
        else:
            fail_at_deadline(state, now_ns)
        blocked = link.messages_sent < link.messages and send(link, outbox)
        if core.failure != FAILURE_NONE:
            return FAILED
        if core.passes_done > done_before:
            return PASS_DONE
        if link.wake != 0:
            return WOKEN
        if now_ns >= until_ns:
            return TIME_UP
        if not blocked and (received == inbox.lengths.size or filled >= outbox.lengths.size - 1):
            continue  # there may be more to receive, or to send
        # While the socket's buffer is full only the deadline counts: what other timers would send could not leave.
        wake_ns = min(deadline_ns(state) if blocked else next_timer_ns(state), until_ns)
        rest_ns: Integer = np.int64(0)
        if received > 0 and not blocked and link.rests != 0:
            rest_ns = min(rest_after_ns(core, received), wake_ns - now_ns)
        if rest_ns > 0:
            ready = poll(poll_fds[1:], rest_ns, timespec)
        else:
            poll_fds[0].events = np.int16(POLLIN | POLLOUT) if blocked else np.int16(POLLIN)
            ready = poll(poll_fds, wake_ns - now_ns, timespec)
        if ready < 0 and last_errno() == ERRNO_INTERRUPTED:
            return INTERRUPTED


@compiled
def rest_after_ns(core: Record, received: Integer) -> Integer:
    """Return how long to pause after a wakeup that brought few of many chunks in flight; 0: no pause."""
    if core.in_flight < FEWEST_TO_REST or received * BATCHES_IN_FLIGHT >= core.in_flight:
        return np.int64(0)
    rest_ns = min(core.result_ns // BATCHES_IN_FLIGHT, LONGEST_REST_NS)
    return rest_ns if rest_ns >= SHORTEST_REST_NS else np.int64(0)
