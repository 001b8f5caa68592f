"""A link without a switch process on the way: this worker calls the program that the switch has lent to its job.

The program's registers are in memory that the job's workers share, with a lock for each slot. What leaves for a worker goes into
the worker's mailbox for the pool index: a cache line, with the header of a RESULT or a STATUS. The lanes of a RESULT are the same
for all workers and are kept once, for the pool index, where each worker reads them. A later datagram takes the place of an
earlier one, as a network may lose packets; the protocol's reuse rule keeps a RESULT until its worker has read it.
"""

# The integers of compiled code are NumPy's.
# mypy: disable-error-code="no-any-return"

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import carray, types

from host_agent.transport.exchange import LINKS, Operations
from host_agent.transport.system_calls import POLLFD, poll
from host_agent.wire.constants import HEADER_BYTES as OWN_HEADER_BYTES
from host_agent.wire.constants import KIND_STATUS
from host_agent.wire.header import POOL_INDEX_AT
from netsum_common.compiled import Integer, Record, Records, compiled, compiled_inline, routine_call
from netsum_common.frames import HEADER_BYTES, get16, get32, lost, write_headers
from netsum_common.lent_program import (
    ADDRESS_BYTES,
    BOX_BYTES,
    CAME,
    GONE,
    LOCK_BYTES,
    SHORT_BYTES,
    SIGNAL_BYTES,
    SLEEPS,
)
from netsum_common.memory import (
    add_release,
    copy_bytes,
    fence,
    load16,
    load32,
    load_acquire,
    pointer,
    replace_acquire,
    store_release,
)
from netsum_common.sockets import monotonic_ns, ring_bell, sched_yield

ROWS: Final = 8
"""Datagrams that are written before the program takes them: few, so that they are still in the cache."""
LOCK_TRIES: Final = 64  # Looks at a lock before the processor is given up.
LOCK_NS: Final = 5_000_000
"""How long to wait for a slot before the packet is given up, which is then sent again as one that was lost."""
LOOKS: Final = 16  # Looks for something new before the processor is given up.
SPIN_NS: Final = 20_000  # How long to look before sleeping, and to let others run in between.

STATE: Final = np.dtype(
    [
        (name, np.int64)
        for name in (
            # All but member as LENT has them.
            *("member", "members", "slots", "row_bytes", "drop_ppm", "own_ip", "own_port"),
            # code, context: addresses of the program and of the words it is called with; the others are positions of words.
            *("code", "context", "input", "out_count", "now_us"),
            "rows",  # address of the first datagram to be sent; there is room for a frame's headers before each
            "taken",  # of the one that was taken last
            # Addresses in the shared memory; own, signal: this worker's mailboxes and signals.
            *("addresses", "locks", "signals", "boxes", "lanes", "own", "signal"),
            *("out_frames", "out_stride", "out_lengths", "out_ports"),  # The frames that leave the program.
            *("frame_bytes", "port"),  # The program reads them here, of the frame that it is called with.
            "lengths",  # address of int32[ROWS], the lengths of the datagrams to be sent
            "framed",  # of int64[ROWS], the lengths for which a frame's headers are there
            "seen",  # of uint32[4 * slots], how often each mailbox was filled, as far as it was read
            "told",  # of int64[members], for whom there is something new
            "bells",  # of int64[members], eventfds of the workers
            "poll_fds",  # of POLLFD[3]: the eventfd of this worker, that of `Link.wake`, and the connection
            "draws",  # random state of losses
            "came",  # how often mailboxes were filled, at the last look
            "left",  # how many of them were not read yet
            "cursor",  # the mailbox to look at first
            # ran_dry, holder: the program's status, if it was not 0, and 1 + the worker that kept a slot too long.
            *("ran_dry", "holder", "locked_out"),
            "gone",
        )
    ]
)
"""A worker's end of a lent program."""

_call = routine_call(types.int32(types.int64))
_read = types.ExternalFunction("read", types.intp(types.int32, types.uintp, types.uintp))


class LentSwitch(NamedTuple):
    """The link as compiled code sees it; all else is in the state, by address: references to arrays are counted."""

    # wake, work: int64[1], int64[2]. As for every link.
    wake: npt.NDArray[np.int64]
    work: npt.NDArray[np.int64]
    state: Records  # STATE[1].


@compiled_inline
def _integers(address: Integer, count: Integer) -> npt.NDArray[np.int64]:
    return carray(pointer(address), (count,), np.int64)


@compiled
def fetch(link: LentSwitch) -> None:
    """Look how often mailboxes were filled.

    Each time that one was filled is answered by reading one, though not always the same: one can be seen before it is counted.
    """
    state = link.state[0]
    came = np.int64(load_acquire(state.signal + CAME))
    state.left += came - state.came & 0xFFFFFFFF
    state.came = came


@compiled
def next_datagram(link: LentSwitch) -> tuple[Integer, Integer]:
    """Return where the next datagram is and its length."""
    state = link.state[0]
    if state.left == 0:
        return np.int64(0), np.int64(-1)
    return _take(state)


@compiled
def _take(state: Record) -> tuple[Integer, Integer]:
    indices, at = 2 * state.slots, state.cursor
    seen = carray(pointer(state.seen), (4 * state.slots,), np.uint32)
    # Mostly RESULTs come that follow the last ones.
    while load_acquire(state.own + at * BOX_BYTES) == seen[at]:
        at = at + 1 & 2 * indices - 1
        if at == state.cursor:  # One was filled twice.
            state.left = 0
            return np.int64(0), np.int64(-1)
    state.left -= 1
    box, datagram = state.own + at * BOX_BYTES, state.taken
    seen[at] = load_acquire(box)
    length = np.int64(load32(box + 4))
    copy_bytes(datagram, box + 8, SHORT_BYTES)
    if length > SHORT_BYTES:
        lanes = state.lanes + (at & indices - 1) * state.row_bytes
        copy_bytes(datagram + OWN_HEADER_BYTES, lanes, min(length, state.row_bytes) - OWN_HEADER_BYTES)
    if at < indices:
        state.cursor = at + 1 & indices - 1
    return datagram, length


@compiled
def free_rows(link: LentSwitch) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Return the rows, all of which are free."""
    state = link.state[0]
    rows = carray(pointer(state.rows), (ROWS, state.row_bytes), np.uint8)
    return rows, carray(pointer(state.lengths), (ROWS,), np.int32)


@compiled
def send(link: LentSwitch, count: int) -> bool:
    """Run the program on that many rows; nothing ever waits."""
    if count > 0:
        _run_all(link.state[0], count)
    return False


@compiled
def _run_all(state: Record, count: int) -> None:
    work = np.empty(2, np.int64)
    _words(state)[state.now_us] = monotonic_ns(work) // 1000
    for row in range(count):
        _run(state, row)
    told = _integers(state.told, state.members)
    for member in range(state.members):
        if told[member] != 0:
            signal = state.signals + member * SIGNAL_BYTES
            add_release(signal + CAME, told[member])
            told[member] = 0
            if load32(signal + SLEEPS) != 0:
                store_release(signal + SLEEPS, np.uint32(0))
                work[0] = 1
                ring_bell(_integers(state.bells, state.members)[member], work)


@compiled_inline
def _words(state: Record) -> npt.NDArray[np.int64]:
    """Return the context that the program is called with, at least the part that is used here."""
    return _integers(state.context, 1 << 16)


@compiled_inline
def _address(state: Record, member: Integer) -> npt.NDArray[np.int64]:
    """Return a worker's address: port, ip, udp_port, state."""
    return _integers(state.addresses + member * ADDRESS_BYTES, 4)


@compiled
def _run(state: Record, row: int) -> None:
    """Run the program on a datagram, with the slot that it names locked, and deliver what leaves."""
    if state.gone != 0 or state.ran_dry != 0 or (state.drop_ppm != 0 and _is_lost(state)):
        return
    size, framed = np.int64(load32(state.lengths + 4 * row)), _integers(state.framed, ROWS)
    datagram = state.rows + row * state.row_bytes
    if framed[row] != size:
        own = _address(state, state.member)
        frame = carray(pointer(datagram - HEADER_BYTES), (HEADER_BYTES,), np.uint8)
        write_headers(frame, size, own[1], own[2], state.own_ip, state.own_port)
        framed[row] = size
    index = get16(carray(pointer(datagram + POOL_INDEX_AT), (2,), np.uint8), 0)
    slot = index >> 1 & state.slots - 1
    state.frame_bytes = HEADER_BYTES + size
    words, at = _words(state), state.input
    words[at] = datagram - HEADER_BYTES
    words[at + 4] = 1
    words[at + 5] = 0
    words[state.out_count] = 0
    lock = state.locks + slot * LOCK_BYTES
    if not _hold(state, lock):
        return
    status = _call(state.code, (state.context,))
    if status == 0:
        kept = False
        for place in range(_words(state)[state.out_count]):
            kept = _deliver(state, place, (index & 1) * state.slots + slot, kept)
    store_release(lock, np.uint32(0))
    if status != 0:
        state.ran_dry = status


@compiled_inline
def _hold(state: Record, lock: Integer) -> bool:
    """Take a slot's lock; returns whether that was possible in good time."""
    mark = state.member + 1
    for _ in range(LOCK_TRIES):
        if load32(lock) == 0 and replace_acquire(lock, np.int64(0), mark):
            return True
    return _wait_for(state, lock, mark)


@compiled
def _is_lost(state: Record) -> bool:
    return lost(carray(pointer(state.draws), (1,), np.uint64), 0, state.drop_ppm)


@compiled
def _wait_for(state: Record, lock: int, mark: int) -> bool:
    work = np.empty(2, np.int64)
    until_ns = monotonic_ns(work) + LOCK_NS
    while True:
        if replace_acquire(lock, np.int64(0), mark):
            return True
        holder = np.int64(load32(lock))
        if holder != 0 and _address(state, holder - 1 & 31)[3] == GONE:
            break
        if monotonic_ns(work) >= until_ns:
            break
        sched_yield()
    state.holder = np.int64(load32(lock))
    state.locked_out += 1
    return False


@compiled
def _deliver(state: Record, place: int, index: int, kept: bool) -> bool:
    """Put a frame's datagram into the mailbox, for this pool index, of the worker at its address.

    The lanes of a RESULT are the same in all copies that have them: `kept` and the result say whether they are in their place.
    """
    at = state.out_frames + place * state.out_stride
    frame = carray(pointer(at), (HEADER_BYTES + OWN_HEADER_BYTES,), np.uint8)
    size = np.int64(load32(state.out_lengths + 4 * place)) - HEADER_BYTES
    if size <= 0 or size > state.row_bytes:
        return kept
    if size > SHORT_BYTES and not kept:
        lanes = state.lanes + index * state.row_bytes
        copy_bytes(lanes, at + HEADER_BYTES + OWN_HEADER_BYTES, size - OWN_HEADER_BYTES)
        kept = True
    if state.drop_ppm != 0 and _is_lost(state):
        return kept
    port = np.int64(load16(state.out_ports + 2 * place))
    ip, udp_port = get32(frame, HEADER_BYTES - 12), get16(frame, HEADER_BYTES - 6)
    member = place  # Copies for the workers follow each other as the workers do.
    for _ in range(state.members):
        to = _address(state, member)
        if to[2] == udp_port and to[1] == ip and to[0] == port:
            is_status = frame[HEADER_BYTES] & 15 == KIND_STATUS
            number = index + 2 * state.slots if is_status else index
            box = state.boxes + (member * 4 * state.slots + number) * BOX_BYTES
            copy_bytes(box + 8, at + HEADER_BYTES, SHORT_BYTES)
            store_release(box + 4, np.uint32(size))
            store_release(box, np.uint32(load32(box) + np.uint32(1)))
            _integers(state.told, state.members)[member] += 1
            break
        member = member + 1 if member + 1 < state.members else 0
    return kept


@compiled_inline
def _is_ready(link: LentSwitch) -> bool:
    state = link.state[0]
    came = np.int64(load_acquire(state.signal + CAME))
    return bool(state.left != 0 or came != state.came or link.wake[0] != 0)


@compiled
def wait(link: LentSwitch, core: Record, received: int, blocked: bool, timeout_ns: int) -> Integer:
    """Wait until a mailbox was filled; returns what ppoll does."""
    state = link.state[0]
    until_ns = monotonic_ns(link.work) + min(SPIN_NS, timeout_ns)
    while True:
        for _ in range(LOOKS):
            if _is_ready(link):
                return np.int64(1)
        if monotonic_ns(link.work) >= until_ns:
            break
        sched_yield()
    sleeps = state.signal + SLEEPS
    store_release(sleeps, np.uint32(1))
    fence()
    ready: Integer = np.int64(1)
    if not _is_ready(link):
        poll_fds = carray(pointer(state.poll_fds), (3,), POLLFD)
        ready = poll(poll_fds, timeout_ns, link.work)
        if ready < 0:
            return ready
        if poll_fds[0].revents != 0:
            _read(poll_fds[0].fd, link.work.ctypes.data, 8)
        if poll_fds[2].revents != 0:
            state.gone = 1
            poll_fds[2].fd = -1
    store_release(sleeps, np.uint32(0))
    return ready


LINKS[LentSwitch] = Operations(fetch, next_datagram, free_rows, send, wait)
