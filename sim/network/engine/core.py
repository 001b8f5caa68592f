"""The worker core's two functions, called by their addresses.

They are the shipped ones. Called directly they would be optimized anew in every function above them, for most of a minute.
"""

# mypy: disable-error-code="no-any-return,return-value"

from typing import Final

import numpy as np
from numba import carray, types

from host_agent.protocol.arrivals import on_datagram
from host_agent.protocol.departures import transmit
from host_agent.protocol.records import CORE, PASS, PASS_RING, SLOT
from netsum_common.compiled import Integer, Routine, routine_call
from netsum_common.memory import pointer

_TAKE_IN: Final = types.void(*[types.int64] * 7)
_TRANSMIT: Final = types.int64(*[types.int64] * 9)

call_take_in = routine_call(_TAKE_IN)
call_transmit = routine_call(_TRANSMIT)


def _take_in(
    state: int, slots: int, slot_count: int, passes: int, datagram: int, length: int, now_ns: int
) -> None:
    on_datagram(
        carray(pointer(state), (1,), CORE)[0],
        carray(pointer(slots), (slot_count,), SLOT),
        carray(pointer(passes), (PASS_RING,), PASS),
        datagram,
        length,
        now_ns,
    )


def _transmit(
    state: int,
    slots: int,
    slot_count: int,
    passes: int,
    now_ns: int,
    rows: int,
    row_count: int,
    row_bytes: int,
    lengths: int,
) -> Integer:
    return np.int64(
        transmit(
            carray(pointer(state), (1,), CORE),
            carray(pointer(slots), (slot_count,), SLOT),
            carray(pointer(passes), (PASS_RING,), PASS),
            now_ns,
            carray(pointer(rows), (row_count, row_bytes), np.uint8),
            carray(pointer(lengths), (row_count,), np.int32),
        )
    )


TAKE_IN: Final = Routine(_take_in, _TAKE_IN)  # `host_agent.protocol.arrivals.on_datagram`.
TRANSMIT: Final = Routine(_transmit, _TRANSMIT)  # `host_agent.protocol.departures.transmit`.
