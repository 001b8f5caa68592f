"""The worker core's functions, called by their addresses, with addresses for arguments.

Called directly they would be optimized anew in every function above them, for most of a minute; and one explorer runs the shipped
core and changed ones.
"""

# mypy: disable-error-code="no-any-return"

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numba import carray, types

from host_agent.protocol.arrivals import on_datagram
from host_agent.protocol.beginning import begin_pass
from host_agent.protocol.departures import offer as contribute
from host_agent.protocol.departures import transmit
from host_agent.protocol.records import CORE, PASS, PASS_RING, SLOT
from netsum_common.compiled import Integer, Routine, routine_call
from netsum_common.memory import pointer


def receive(core: int, slots: int, count: int, passes: int, datagram: int, length: int, now_ns: int) -> None:
    """Take in a datagram: `on_datagram`."""
    on_datagram(
        carray(pointer(core), (1,), CORE)[0],
        carray(pointer(slots), (count,), SLOT),
        carray(pointer(passes), (PASS_RING,), PASS),
        datagram,
        length,
        now_ns,
    )


def send(
    core: int,
    slots: int,
    count: int,
    passes: int,
    rows: int,
    row_count: int,
    row_bytes: int,
    lengths: int,
    now_ns: int,
) -> Integer:
    """Write the datagrams to be sent into rows: `transmit`; returns how many."""
    return np.int64(
        transmit(
            carray(pointer(core), (1,), CORE),
            carray(pointer(slots), (count,), SLOT),
            carray(pointer(passes), (PASS_RING,), PASS),
            now_ns,
            carray(pointer(rows), (row_count, row_bytes), np.uint8),
            carray(pointer(lengths), (row_count,), np.int32),
        )
    )


def begin(core: int, passes: int, record: int, now_ns: int) -> None:
    """Queue a pass: `begin_pass`."""
    begin_pass(
        carray(pointer(core), (1,), CORE),
        carray(pointer(passes), (PASS_RING,), PASS),
        carray(pointer(record), (1,), PASS)[0],
        now_ns,
    )


def offer(core: int, slots: int, count: int, passes: int, number: int) -> None:
    """Contribute to a quorum chunk: `departures.offer`."""
    contribute(
        carray(pointer(core), (1,), CORE),
        carray(pointer(slots), (count,), SLOT),
        carray(pointer(passes), (PASS_RING,), PASS),
        number,
    )


RECEIVE: Final = types.void(*[types.int64] * 7)
SEND: Final = types.int64(*[types.int64] * 9)
BEGIN: Final = types.void(*[types.int64] * 4)
OFFER: Final = types.void(*[types.int64] * 5)

call_receive = routine_call(RECEIVE)
call_send = routine_call(SEND)
call_begin = routine_call(BEGIN)
call_offer = routine_call(OFFER)


@dataclass(frozen=True)
class CoreCode:
    """A worker core's functions: `Routine` or whatever has an `address` with the same arguments."""

    receive: Any
    send: Any
    begin: Any
    offer: Any


SHIPPED: Final = CoreCode(
    Routine(receive, RECEIVE), Routine(send, SEND), Routine(begin, BEGIN), Routine(offer, OFFER)
)
