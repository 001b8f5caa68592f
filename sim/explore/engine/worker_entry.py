"""The worker core's functions with addresses for arguments, all int64, as `call_worker` calls them."""

import numpy as np
from numba import carray

from host_agent.protocol.arrivals import on_datagram
from host_agent.protocol.beginning import begin_pass
from host_agent.protocol.departures import offer as contribute
from host_agent.protocol.departures import transmit
from host_agent.protocol.records import CORE, PASS, PASS_RING, SLOT
from netsum_common.compiled import Integer, compiled
from netsum_common.memory import pointer


@compiled
def receive(
    core: int, slots: int, count: int, passes: int, datagram: int, length: int, now_ns: int
) -> Integer:
    """Take in a datagram: `on_datagram`."""
    on_datagram(
        carray(pointer(core), (1,), CORE)[0],
        carray(pointer(slots), (count,), SLOT),
        carray(pointer(passes), (PASS_RING,), PASS),
        datagram,
        length,
        now_ns,
    )
    return np.int64(0)


@compiled
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


@compiled
def begin(core: int, passes: int, record: int, now_ns: int) -> Integer:
    """Queue a pass: `begin_pass`."""
    begin_pass(
        carray(pointer(core), (1,), CORE),
        carray(pointer(passes), (PASS_RING,), PASS),
        carray(pointer(record), (1,), PASS)[0],
        now_ns,
    )
    return np.int64(0)


@compiled
def offer(core: int, slots: int, count: int, passes: int, number: int) -> Integer:
    """Contribute to a quorum chunk: `departures.offer`."""
    contribute(
        carray(pointer(core), (1,), CORE),
        carray(pointer(slots), (count,), SLOT),
        carray(pointer(passes), (PASS_RING,), PASS),
        number,
    )
    return np.int64(0)
