"""Compiled: the loop that handles every packet, from ports through a program's machine code to ports.

One loop for every kind of port: which of the functions of a driver it calls is settled when it is compiled, by the type
of the driver's inbox and outbox. It comes back to Python for what only Python can do, and when another thread wants the switch.
"""

# Numba's decorators are untyped, and the integers of compiled code are NumPy's.
# mypy: disable-error-code="no-any-return,return-value"

from typing import Any, NamedTuple

import numpy as np

from netsum_common.compiled import Array, Integer, borrowed, compiled
from netsum_common.sockets import monotonic_ns
from sim.switch.codegen.traffic import DONE
from sim.switch.flight import Flight
from sim.switch.ports.kinds import receive, transmit
from sim.switch.ports.program_call import run_program

QUIET, ASKED, ATTEND, UNFINISHED = range(4)
"""Why the loop came back: nothing to do, or it is time to look after the ports; another thread wants the switch; the last
batch needs Python, for packets to the controller, digests, or a capture; the program needs more memory to finish it."""

STATUS, RECEIVED_FRAMES, NO_SUCH_PORT = range(3)
"""The loop's report on the last batch: the program's status, how many frames came in, how many left by no port."""

_NS_PER_US = 1000


class Engine(NamedTuple):
    """A program's machine code and memory, for as long as its memory stays where it is."""

    # code, context: addresses of the function to call and of its argument.
    code: int
    context: int
    words: Array  # int64[:]. The context.
    # inputs, out_count, now_us, digest_count: positions in it.
    inputs: int
    out_count: int
    now_us: int
    digest_count: int
    # ports, lengths, frames: uint16[:], int32[:], uint8[:, :]. Where packets leave.
    ports: Array
    lengths: Array
    frames: Array


def engine_of(flight: Flight) -> Engine:
    """Return the addresses of a program that the loop needs; they are read again when its memory may have grown."""
    at = flight.at
    return Engine(
        code=flight.machine.address,
        context=flight.words.ctypes.data,
        words=flight.words,
        inputs=at["in_frames"],
        out_count=at["out_count"],
        now_us=at["now_us"],
        digest_count=at["digest_count"],
        ports=flight.out_ports,
        lengths=flight.out_lengths,
        frames=flight.out_frames,
    )


@compiled
def forward(
    engine: Engine,
    inbox: Any,
    outbox: Any,
    asked: Array,
    epoch_ns: Integer,
    timeout_ms: Integer,
    once: bool,
    outcome: Array,
) -> Integer:
    """Move packets until there is something for Python to do.

    `asked`: not 0 when another thread wants the switch; the driver's `wake` ends a wait. `epoch_ns`: when the switch's clock
    was 0, on the monotonic clock. `timeout_ms`: how long to wait for packets, and about how long to stay. `once`: whether
    Python must see every batch. `outcome`: filled with the result of the last batch. Returns QUIET, ASKED, ATTEND or
    UNFINISHED. A batch that is unfinished has not left yet.
    """
    engine, inbox, outbox = borrowed(engine), borrowed(inbox), borrowed(outbox)
    words = engine.words
    now_ns = monotonic_ns(inbox.record.work)
    until_ns = now_ns + timeout_ms * 1_000_000
    while now_ns < until_ns:
        if asked[0] != 0:
            return ASKED
        count = receive(inbox, timeout_ms)
        outcome[RECEIVED_FRAMES] = count
        if count == 0:
            return QUIET
        now_ns = monotonic_ns(inbox.record.work)
        words[engine.inputs] = inbox.record.frames.ctypes.data
        words[engine.inputs + 1] = inbox.record.frames.strides[0]
        words[engine.inputs + 2] = inbox.record.lengths.ctypes.data
        words[engine.inputs + 3] = inbox.record.ports.ctypes.data
        words[engine.inputs + 4] = count
        words[engine.inputs + 5] = 0
        words[engine.out_count] = 0
        words[engine.now_us] = (now_ns - epoch_ns) // _NS_PER_US
        status = run_program(engine.code, engine.context)
        if status != DONE:
            outcome[STATUS] = status
            return UNFINISHED
        left = words[engine.out_count]
        outcome[NO_SUCH_PORT] = transmit(outbox, engine.ports, engine.lengths, engine.frames, left)
        if once or outcome[NO_SUCH_PORT] > 0 or words[engine.digest_count] > 0:
            return ATTEND
    return QUIET


@compiled
def receive_alone(inbox: Any, timeout_ms: Integer) -> Integer:
    """Call the driver's function from Python."""
    return receive(inbox, timeout_ms)


@compiled
def transmit_alone(outbox: Any, ports: Array, lengths: Array, frames: Array) -> Integer:
    """Call the driver's function from Python, for all of the frames."""
    return transmit(outbox, ports, lengths, frames, np.int64(ports.shape[0]))
