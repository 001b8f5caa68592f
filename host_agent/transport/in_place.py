"""A link without a switch process on the way: this worker calls the program that the switch has lent to its job.

The program's registers are in memory that the job's workers share, with a lock for each slot. A RESULT or STATUS for a worker
goes into the worker's mailbox for the pool index. A later one takes its place, as a network may lose packets; the protocol's
reuse rule keeps a RESULT until its worker has read it.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import carray, types

from host_agent.transport.exchange import LINKS, Operations
from host_agent.transport.system_calls import poll
from host_agent.wire.constants import KIND_STATUS
from host_agent.wire.header import POOL_INDEX_AT
from netsum_common.compiled import Integer, Record, Records, compiled, compiled_inline, routine_call
from netsum_common.frames import HEADER_BYTES, get16, get32, lost, write_headers
from netsum_common.lent_program import (
    CAME,
    GONE,
    LOCK_BYTES,
    SIGNAL_BYTES,
    SLEEPS,
    STATUS_BYTES,
)
from netsum_common.memory import (
    add_release,
    copy_bytes,
    fence,
    load32,
    load_acquire,
    pointer,
    prefetch,
    replace_acquire,
    store_release,
)
from netsum_common.sockets import monotonic_ns, ring_bell, sched_yield

ROWS: Final = 16
"""Datagrams that are written before the program takes them: few, so that they are still in the cache."""
LOCK_TRIES: Final = 64  # Looks at a lock before the processor is given up.
LOCK_NS: Final = 5_000_000
"""How long to wait for a slot before the packet is given up, which is then sent again as one that was lost."""

STATE: Final = np.dtype(
    [
        (name, np.int64)
        for name in (
            "member",
            *("code", "context"),
            "rows",  # address of the first datagram
            "base",  # where the memory is
            "came",  # how often mailboxes were filled, at the last look
            *("ready", "taken"),  # mailboxes that are filled, and those of them that were taken
            "cursor",  # the mailbox to look at first
            *(
                "ran_dry",
                "holder",
            ),  # the program's status, if it was not 0, and 1 + the worker that kept a slot too long
            *("locked_out", "spin_ns", "gone"),
        )
    ]
)
"""A worker's end of a lent program."""

_call = routine_call(types.int32(types.int64))
_read = types.ExternalFunction("read", types.intp(types.int32, types.uintp, types.uintp))


class LentSwitch(NamedTuple):
    """The link as compiled code sees it."""

    # wake, work: int64[1], int64[2]. As for every link.
    wake: npt.NDArray[np.int64]
    work: npt.NDArray[np.int64]
    state: Records  # STATE[1].
    lent: Records  # LENT[1]. The layout of the memory.
    addresses: Records  # ADDRESS[members].
    words: npt.NDArray[np.int64]  # The context that the program is called with.
    # rows, lengths: uint8[ROWS, :], int32[ROWS]. Datagrams to be sent; there is room for a frame's headers before each.
    rows: npt.NDArray[np.uint8]
    lengths: npt.NDArray[np.int32]
    # frame_bytes, port: int32[1], uint16[1]. The frame that the program is called with.
    frame_bytes: npt.NDArray[np.int32]
    port: npt.NDArray[np.uint16]
    # out_ports, out_lengths, out_frames: uint16[:], int32[:], uint8[:, :]. Frames that leave the program.
    out_ports: npt.NDArray[np.uint16]
    out_lengths: npt.NDArray[np.int32]
    out_frames: npt.NDArray[np.uint8]
    # mailboxes: uint32[members, 4 * slots]. How often each was filled; first those of RESULTs, then those of STATUSes.
    mailboxes: npt.NDArray[np.uint32]
    seen: npt.NDArray[np.uint32]  # uint32[4 * slots]. This worker's, as far as they were read.
    sizes: npt.NDArray[np.uint32]  # uint32[members, 4 * slots]. The length of the datagram in each.
    ready: npt.NDArray[np.int64]  # int64[4 * slots]. Mailboxes to be read.
    told: npt.NDArray[np.int64]  # int64[members]. Workers for whom there is something new.
    draws: npt.NDArray[np.uint64]  # uint64[1]. Random state of losses.
    bells: npt.NDArray[np.int64]  # int64[members]. Eventfds of the workers.
    # POLLFD[3]. The eventfd of this worker, that of `Link.wake`, and the connection.
    poll_fds: Records
    one: npt.NDArray[np.int64]  # int64[1]. 1.


@compiled_inline
def _signal(link: LentSwitch, member: Integer) -> Integer:
    return link.state[0].base + link.lent[0].signals + member * SIGNAL_BYTES


@compiled_inline
def _mailbox(link: LentSwitch, member: Integer, box: Integer) -> Integer:
    """Return where the datagram of a mailbox is."""
    lent, indices = link.lent[0], 2 * link.lent[0].slots
    if box < indices:
        return link.state[0].base + lent.results + (member * indices + box) * lent.row_bytes
    return link.state[0].base + lent.statuses + (member * indices + box - indices) * STATUS_BYTES


@compiled
def fetch(link: LentSwitch) -> None:
    """Look into the mailboxes if any was filled since.

    Each time that one was filled is answered by reading one, though not always the same: one can be seen before it is counted.
    """
    state, indices = link.state[0], 2 * link.lent[0].slots
    if state.taken < state.ready:
        return
    state.ready = state.taken = 0
    came = np.int64(load_acquire(_signal(link, state.member) + CAME))
    count = came - state.came & 0xFFFFFFFF
    if count == 0:
        return
    filled, seen = link.mailboxes[state.member], link.seen
    # Mostly RESULTs come that follow the last ones.
    box = state.cursor
    while state.ready < count and state.ready < indices and filled[box] != seen[box]:
        link.ready[state.ready] = box
        state.ready += 1
        box = box + 1 & indices - 1
    if state.ready < count:
        for step in range(state.ready, 2 * indices):
            at = state.cursor + step & indices - 1 if step < indices else step
            if filled[at] != seen[at]:
                link.ready[state.ready] = at
                state.ready += 1
                box = at + 1 & indices - 1 if at < indices else box
    state.came = came
    state.cursor = box


@compiled
def next_datagram(link: LentSwitch) -> tuple[Integer, Integer]:
    """Return where the next datagram is and its length."""
    state = link.state[0]
    if state.taken == state.ready:
        return np.int64(0), np.int64(-1)
    box = link.ready[state.taken]
    state.taken += 1
    if state.taken < state.ready:
        following = link.ready[state.taken]
        prefetch(_mailbox(link, state.member, following), np.int64(link.sizes[state.member, following]))
    place = np.int64(link.mailboxes[state.member, box : box + 1].ctypes.data)
    link.seen[box] = load_acquire(place)
    return _mailbox(link, state.member, box), np.int64(link.sizes[state.member, box])


@compiled
def free_rows(link: LentSwitch) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Return the rows, all of which are free."""
    return link.rows, link.lengths


@compiled
def send(link: LentSwitch, count: int) -> bool:
    """Run the program on that many rows; nothing ever waits."""
    state = link.state[0]
    if count > 0:
        link.words[link.lent[0].now_us] = monotonic_ns(link.work) // 1000
    for row in range(count):
        if state.ran_dry == 0:
            _run(link, row)
    for member in range(link.told.size):
        if link.told[member] != 0:
            add_release(_signal(link, member) + CAME, link.told[member])
            link.told[member] = 0
            sleeps = _signal(link, member) + SLEEPS
            if load32(sleeps) != 0:
                store_release(sleeps, np.uint32(0))
                ring_bell(link.bells[member], link.one)
    return False


@compiled_inline
def _run(link: LentSwitch, row: Integer) -> None:
    """Run the program on a datagram, with the slot that it names locked, and deliver what leaves."""
    state, lent, words = link.state[0], link.lent[0], link.words
    if state.gone != 0 or lost(link.draws, 0, lent.drop_ppm):
        return
    datagram, size = state.rows + row * link.rows.shape[1], np.int64(link.lengths[row])
    own = link.addresses[state.member]
    frame = carray(pointer(datagram - HEADER_BYTES), (HEADER_BYTES,), np.uint8)
    write_headers(frame, size, own.ip, own.udp_port, lent.own_ip, lent.own_port)
    index = get16(carray(pointer(datagram + POOL_INDEX_AT), (2,), np.uint8), 0)
    slot = index >> 1 & lent.slots - 1
    link.frame_bytes[0] = HEADER_BYTES + size
    at = lent.in_frames
    words[at] = datagram - HEADER_BYTES
    words[at + 4] = 1
    words[at + 5] = 0
    words[lent.out_count] = 0
    lock = state.base + lent.locks + slot * LOCK_BYTES
    if not _hold(link, lock):
        return
    status = _call(state.code, (state.context,))
    if status == 0:
        box = (index & 1) * lent.slots + slot
        for place in range(words[lent.out_count]):
            _deliver(link, place, box)
    store_release(lock, np.uint32(0))
    if status != 0:
        state.ran_dry = status


@compiled_inline
def _hold(link: LentSwitch, lock: Integer) -> bool:
    """Take a slot's lock; returns whether that was possible in good time."""
    state = link.state[0]
    mark = state.member + 1
    for _ in range(LOCK_TRIES):
        if load32(lock) == 0 and replace_acquire(lock, np.int64(0), mark):
            return True
    until_ns = monotonic_ns(link.work) + LOCK_NS
    while True:
        if replace_acquire(lock, np.int64(0), mark):
            return True
        holder = np.int64(load32(lock))
        if holder != 0 and link.addresses[holder - 1 & 31].state == GONE:
            break
        if monotonic_ns(link.work) >= until_ns:
            break
        sched_yield()
    state.holder = np.int64(load32(lock))
    state.locked_out += 1
    return False


@compiled_inline
def _deliver(link: LentSwitch, place: Integer, box: Integer) -> None:
    """Put a frame's datagram into the mailbox of the worker at its address."""
    lent = link.lent[0]
    frame = link.out_frames[place]
    ip, udp_port = get32(frame, HEADER_BYTES - 12), get16(frame, HEADER_BYTES - 6)
    size = np.int64(link.out_lengths[place]) - HEADER_BYTES
    if size <= 0 or size > lent.row_bytes or lost(link.draws, 0, lent.drop_ppm):
        return
    count = link.addresses.size
    for step in range(count):
        member = (place + step) % count  # Copies for the workers follow each other as the workers do.
        to = link.addresses[member]
        if to.udp_port == udp_port and to.ip == ip and to.port == link.out_ports[place]:
            is_status = frame[HEADER_BYTES] & 15 == KIND_STATUS and size <= STATUS_BYTES
            at = box + 2 * lent.slots if is_status else box
            copy_bytes(_mailbox(link, member, at), frame.ctypes.data + HEADER_BYTES, size)
            link.sizes[member, at] = size
            filled = link.mailboxes[member, at : at + 1]
            store_release(filled.ctypes.data, np.uint32(filled[0] + 1))
            link.told[member] += 1
            break


@compiled_inline
def _is_ready(link: LentSwitch) -> bool:
    state = link.state[0]
    own = _signal(link, state.member)
    return bool(
        state.taken < state.ready or np.int64(load_acquire(own + CAME)) != state.came or link.wake[0] != 0
    )


@compiled
def wait(link: LentSwitch, core: Record, received: int, blocked: bool, timeout_ns: int) -> Integer:
    """Wait until a mailbox was filled; returns what ppoll does."""
    state = link.state[0]
    if state.spin_ns > 0:
        until_ns = monotonic_ns(link.work) + min(state.spin_ns, timeout_ns)
        while monotonic_ns(link.work) < until_ns:
            if _is_ready(link):
                return np.int64(1)
    sleeps = _signal(link, state.member) + SLEEPS
    store_release(sleeps, np.uint32(1))
    fence()
    ready: Integer = np.int64(1)
    if not _is_ready(link):
        ready = poll(link.poll_fds, timeout_ns, link.work)
        if ready < 0:
            return ready
        if link.poll_fds[0].revents != 0:
            _read(link.poll_fds[0].fd, link.work.ctypes.data, 8)
        if link.poll_fds[2].revents != 0:
            state.gone = 1
            link.poll_fds[2].fd = -1
    store_release(sleeps, np.uint32(0))
    return ready


LINKS[LentSwitch] = Operations(fetch, next_datagram, free_rows, send, wait)
