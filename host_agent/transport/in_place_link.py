"""The link of a worker that runs the switch's program itself (`in_place`): how it borrows the program, and what went wrong."""

import contextlib
import os
import socket
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from host_agent.protocol.core import WorkerCore
from host_agent.transport.in_place import ROWS, STATE, LentSwitch
from host_agent.transport.system_calls import POLLFD, POLLIN
from host_agent.transport.udp import Bind, UdpLink
from netsum_common.frames import HEADER_BYTES
from netsum_common.lent_program import ADDRESS, GONE, LENT, LINE_BYTES, Borrowed, LendingRequest
from netsum_common.rings import AttachError, ask

ATTACH_TIMEOUT_S: Final = 5.0
SPIN_NS: Final = 20_000
"""How long a worker looks into its mailboxes before it sleeps, where the job's workers have a processor each."""


class InPlaceLink(UdpLink):
    """The lent program of a switch on this machine, or UDP where the switch lends none.

    `bind`: as for `UdpLink`. All workers of a job use such a link, or none does. Raises MisuseError: as for `UdpLink`.
    """

    def __init__(self, core: WorkerCore, bind: Bind) -> None:
        self._connection: socket.socket | None = None
        self._bells: list[int] = []
        self.refusal = ""  # Why the switch lends no program.
        super().__init__(core, bind)
        self._udp = self.ends
        self._borrow()

    @property
    def is_attached(self) -> bool:
        """Whether it runs the program itself."""
        return self._connection is not None

    def enter(self, core: WorkerCore) -> None:
        """Carry the datagrams of another core from now on; see `Link.enter`."""
        self._give_back()
        super().enter(core)
        self._borrow()

    def trouble(self) -> str:
        """Return the error that the system reported about the path to the switch; empty if none."""
        if not self.is_attached:
            return super().trouble()
        state, found = self.ends.state[0], []
        if state["gone"]:
            found.append("the switch that lent its program has ended, or detached this worker")
        if state["ran_dry"]:
            found.append(f"the lent program needs more memory (status {state['ran_dry']})")
        if state["holder"]:
            member = int(state["holder"]) - 1
            ended = self.ends.addresses[member]["state"] == GONE
            found.append(
                f"worker {member} of this switch {'ended' if ended else 'has stopped'} while it held a slot, for which "
                f"{state['locked_out']} packets were given up"
            )
        return "; ".join(found)

    def clear_trouble(self) -> None:
        """Start `trouble` anew."""
        super().clear_trouble()
        if self.is_attached:
            self.ends.state["holder"] = self.ends.state["locked_out"] = 0

    def close(self) -> None:
        """Give the memory and the address back; `exchange` must not be running."""
        self._give_back()
        super().close()

    def close_in_child(self) -> None:
        """Close it in a forked child; see `Link.close_in_child`."""
        self._give_back(for_all=False)
        super().close_in_child()

    def _borrow(self) -> None:
        admission = self._core.admission
        if len(admission.path) > 1:
            self.refusal = "the job is added in a tree, whose switches are processes"
            return
        request = LendingRequest(
            admission.epoch << 32 | admission.token,
            *(admission.worker_id, admission.num_workers, admission.slot_count),
            row_bytes_for(self._core),
        )
        try:
            connection, descriptors = ask(
                admission.switch, self._socket, request.to_bytes(), ATTACH_TIMEOUT_S
            )
        except AttachError as error:
            self.refusal = str(error)
            return
        memory, *self._bells = descriptors
        try:
            borrowed = Borrowed(memory, request.member)
        finally:
            os.close(memory)
        self._connection, self._borrowed = connection, borrowed
        has_processor = admission.num_workers <= len(os.sched_getaffinity(0))
        self.ends = ends_over(borrowed, request.member, self._wake, SPIN_NS if has_processor else 0)
        self.ends.bells[:] = self._bells
        self.ends.poll_fds["fd"] = [self._bells[request.member], self._wake_fd, connection.fileno()]

    def _give_back(self, for_all: bool = True) -> None:
        """Use UDP; `for_all`: end the connection in forked children too, which may still hold it."""
        if self._connection is not None:
            if for_all:
                with contextlib.suppress(OSError):  # The switch was first.
                    self._connection.shutdown(socket.SHUT_RDWR)
            self.ends = self._udp
            self._connection.close()
            for bell in self._bells:
                os.close(bell)
            self._connection = None
            del self._borrowed


def row_bytes_for(core: WorkerCore) -> int:
    """Return the distance of datagrams in memory, with room for a frame's headers between them."""
    # An odd number of cache lines keeps rows in different sets of the cache.
    return LINE_BYTES * (-(-(core.row_bytes + HEADER_BYTES) // LINE_BYTES) | 1)


def ends_over(borrowed: Borrowed, member: int, wake: npt.NDArray[np.int64], spin_ns: int) -> LentSwitch:
    """Return the link over a lent program, without descriptors."""
    lent, words, memory = borrowed.lent, borrowed.words, borrowed.memory
    members, boxes, row_bytes = int(lent["members"]), 4 * int(lent["slots"]), int(lent["row_bytes"])
    room = np.zeros(ROWS * row_bytes + 2 * LINE_BYTES, np.uint8)
    first = LINE_BYTES + -room.ctypes.data % LINE_BYTES
    rows = room[first:][: ROWS * row_bytes].reshape(ROWS, row_bytes)
    state = np.zeros(1, STATE)
    state["member"], state["code"], state["context"] = member, borrowed.address, words.ctypes.data
    state["rows"], state["base"], state["spin_ns"] = rows.ctypes.data, borrowed.base, spin_ns
    own = int(lent["addresses"]) + member * ADDRESS.itemsize
    port = np.frombuffer(memory, ADDRESS, 1, own)["port"].astype(np.uint16)
    frame_bytes = np.zeros(1, np.int32)
    at, out = int(lent["in_frames"]), int(lent["out_frames"])
    words[at + 1], words[at + 2], words[at + 3] = row_bytes, frame_bytes.ctypes.data, port.ctypes.data
    capacity, stride = int(words[out + 4]), int(words[out + 1])

    def leaving(word: int, kind: npt.DTypeLike, size: int) -> Any:
        return np.frombuffer(memory, kind, size, int(words[word]) - borrowed.base)

    poll_fds = np.zeros(3, POLLFD)
    poll_fds["fd"] = -1
    poll_fds["events"] = POLLIN
    mailboxes = np.frombuffer(memory, np.uint32, members * boxes, int(lent["generations"]))
    return LentSwitch(
        wake,
        np.zeros(2, np.int64),
        state,
        np.frombuffer(memory, LENT, 1),
        np.frombuffer(memory, ADDRESS, members, int(lent["addresses"])),
        words,
        rows,
        np.zeros(ROWS, np.int32),
        frame_bytes,
        port,
        leaving(out + 3, np.uint16, capacity),
        leaving(out + 2, np.int32, capacity),
        leaving(out, np.uint8, capacity * stride).reshape(capacity, stride),
        mailboxes.reshape(members, boxes),
        np.zeros(boxes, np.uint32),
        np.frombuffer(memory, np.uint32, members * boxes, int(lent["lengths"])).reshape(members, boxes),
        np.zeros(boxes, np.int64),
        np.zeros(members, np.int64),
        np.random.default_rng(member).integers(1, 1 << 63, 1, np.uint64),
        np.zeros(members, np.int64),
        poll_fds,
        np.ones(1, np.int64),
    )
