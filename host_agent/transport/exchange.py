"""The loop that joins a worker core to a link. Compiled, without the GIL: no Python per packet.

One loop for every kind of link: which functions it calls is settled when it is compiled, by the type of the named tuple that
the link passes. To add a link, write these functions and their line in `LINKS`, and a `Link` around them.
"""

# Numba's decorators are untyped, and the integers of compiled code are NumPy's.
# mypy: disable-error-code="untyped-decorator,no-any-return"

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from numba.extending import overload

from host_agent.protocol.arrivals import on_datagram
from host_agent.protocol.departures import deadline_ns, fail_at_deadline, next_timer_ns, transmit
from host_agent.protocol.records import FAILURE_NONE
from host_agent.transport.system_calls import (
    DEFAULT_FLOATING_POINT,
    ERRNO_INTERRUPTED,
    FENV_WORDS,
    fegetenv,
    fesetenv,
)
from netsum_common.compiled import Integer, Record, Records, borrowed, compiled
from netsum_common.sockets import last_errno, monotonic_ns

TIME_UP: Final = 0
PASS_DONE: Final = 1
FAILED: Final = 2
WOKEN: Final = 3
INTERRUPTED: Final = 4  # A signal arrived, and Python must handle it.

BATCH: Final = 64  # Most datagrams that are taken in before datagrams are sent.


class Operations(NamedTuple):
    """Operations of the loop on a link; each takes the link's named tuple first. All but `wait` are non-blocking."""

    fetch: Any  # () -> None. Fetch arrivals; datagrams that were taken before may be overwritten.
    # () -> (address, length). The next datagram that has arrived, as two int64; length -1: there is none.
    next_datagram: Any
    # () -> (rows, lengths). A uint8 array for datagrams to be sent, one a row, and an int32 array for their lengths; fewer
    # than two rows while earlier datagrams cannot leave.
    free_rows: Any
    # (count) -> bool. Send this many of these rows, 0 or more, and what waits; whether something still waits.
    send: Any
    # (core, received, blocked, timeout_ns) -> int. Wait for datagrams, if `blocked` for room too, and for `Link.wake`;
    # negative with errno EINTR after a signal. `received` datagrams came last.
    wait: Any


LINKS: Final[dict[type, Operations]] = {}
"""The operations of each kind of link, by the class of its named tuple, which has `wake` (int64[1]) and `work` (int64[2])."""


def _fetch(link: Any) -> None:
    raise NotImplementedError


def _next_datagram(link: Any) -> tuple[int, int]:
    raise NotImplementedError


def _free_rows(link: Any) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    raise NotImplementedError


def _send(link: Any, count: Integer) -> bool:
    raise NotImplementedError


def _wait(link: Any, core: Record, received: Integer, blocked: bool, timeout_ns: Integer) -> Integer:
    raise NotImplementedError


@overload(_fetch, strict=False)
def _fetch_of(link: Any) -> Callable[..., Any]:
    function = LINKS[link.instance_class].fetch
    return lambda link: function(link)


@overload(_next_datagram, strict=False)
def _next_datagram_of(link: Any) -> Callable[..., Any]:
    function = LINKS[link.instance_class].next_datagram
    return lambda link: function(link)


@overload(_free_rows, strict=False)
def _free_rows_of(link: Any) -> Callable[..., Any]:
    function = LINKS[link.instance_class].free_rows
    return lambda link: function(link)


@overload(_send, strict=False)
def _send_of(link: Any, count: Any) -> Callable[..., Any]:
    del count
    function = LINKS[link.instance_class].send
    return lambda link, count: function(link, count)


@overload(_wait, strict=False)
def _wait_of(link: Any, core: Any, received: Any, blocked: Any, timeout_ns: Any) -> Callable[..., Any]:
    del core, received, blocked, timeout_ns
    function = LINKS[link.instance_class].wait
    return lambda link, core, received, blocked, timeout_ns: function(
        link, core, received, blocked, timeout_ns
    )


@compiled
def exchange(state: Records, slots: Records, passes: Records, link: Any, until_ns: int) -> int:
    """Send and receive until a pass is done, the core fails, a signal or a wakeup arrives, or the time is up.

    `state`, `slots`, `passes`: the worker core. `link`: what compiled code knows of the link; its class is a key of `LINKS`.
    `until_ns`: on the monotonic clock. Returns PASS_DONE, FAILED, WOKEN, INTERRUPTED or TIME_UP.
    """
    # A caller with another rounding mode, or that flushes subnormal numbers to zero, would get other bits than the other workers.
    callers = np.empty(FENV_WORDS, np.int64)
    fegetenv(callers.ctypes.data)
    fesetenv(DEFAULT_FLOATING_POINT)
    reason = _exchange(state, slots, passes, link, until_ns)
    fesetenv(callers.ctypes.data)
    return reason


@compiled
def _exchange(state: Records, slots: Records, passes: Records, link: Any, until_ns: int) -> int:
    state, slots, passes, link = borrowed(state), borrowed(slots), borrowed(passes), borrowed(link)
    core = state[0]
    done_before = core.passes_done
    while True:
        now_ns = monotonic_ns(link.work)
        _fetch(link)
        received = np.int64(0)
        while received < BATCH:
            datagram, length = _next_datagram(link)
            if length < 0:
                break
            on_datagram(core, slots, passes, datagram, length, now_ns)
            received += 1
        filled: Integer = np.int64(0)
        rows, lengths = _free_rows(link)
        if lengths.size > 1:
            filled = transmit(state, slots, passes, now_ns, rows, lengths)
        else:
            fail_at_deadline(state, now_ns)
        blocked = _send(link, filled)
        if core.failure != FAILURE_NONE:
            return FAILED
        if core.passes_done > done_before:
            return PASS_DONE
        if link.wake[0] != 0:
            return WOKEN
        if now_ns >= until_ns:
            return TIME_UP
        if not blocked and (received == BATCH or filled >= lengths.size - 1):
            continue  # there may be more to receive, or to send
        # While nothing can leave only the deadline counts: what other timers would send could not leave.
        wake_ns = min(deadline_ns(state) if blocked else next_timer_ns(state), until_ns)
        ready = _wait(link, core, received, blocked, wake_ns - now_ns)
        if ready < 0 and last_errno() == ERRNO_INTERRUPTED:
            return INTERRUPTED
