"""The link of a worker that runs the switch's program itself (`in_place`): how it borrows the program, and what went wrong."""

import contextlib
import os
import socket
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from host_agent.protocol.core import WorkerCore
from host_agent.transport.in_place import ROWS, STATE, LentSwitch
from host_agent.transport.system_calls import POLLFD, POLLIN
from host_agent.transport.udp import Bind, UdpLink
from host_agent.wire.constants import HEADER_BYTES as OWN_HEADER_BYTES
from netsum_common.frames import HEADER_BYTES
from netsum_common.lent_program import (
    BOX_BYTES,
    GONE,
    LINE_BYTES,
    SIGNAL_BYTES,
    Borrowed,
    LendingRequest,
)
from netsum_common.rings import AttachError, ask

ATTACH_TIMEOUT_S: Final = 5.0


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
            ended = self._borrowed.addresses[member]["state"] == GONE
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
        self._borrower = borrower_of(borrowed, request.member, self._wake)
        self.ends = self._borrower.ends
        self._borrower.bells[:] = self._bells
        self._borrower.poll_fds["fd"] = [self._bells[request.member], self._wake_fd, connection.fileno()]

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
            del self._borrowed, self._borrower


def row_bytes_for(core: WorkerCore) -> int:
    """Return the distance of datagrams in memory, with room for a frame's headers between them."""
    # An odd number of cache lines keeps rows in different sets of the cache.
    return LINE_BYTES * (-(-(core.row_bytes + HEADER_BYTES) // LINE_BYTES) | 1)


class Borrower(NamedTuple):
    """A worker's link over a lent program, with what the link's state has the addresses of."""

    ends: LentSwitch
    bells: npt.NDArray[np.int64]
    poll_fds: npt.NDArray[np.void]
    kept: tuple[Any, ...]


def borrower_of(borrowed: Borrowed, member: int, wake: npt.NDArray[np.int64]) -> Borrower:
    """Return the link over a lent program, without descriptors."""
    lent, words = borrowed.lent, borrowed.words
    members, boxes, row_bytes = int(lent["members"]), 4 * int(lent["slots"]), int(lent["row_bytes"])
    room = np.zeros((ROWS + 1) * row_bytes + 2 * LINE_BYTES, np.uint8)
    first = -(room.ctypes.data + OWN_HEADER_BYTES) % LINE_BYTES + LINE_BYTES  # Lanes begin on a cache line.
    state = np.zeros(1, STATE)
    for name in ("members", "slots", "row_bytes", "drop_ppm", "own_ip", "own_port", "out_count", "now_us"):
        state[name] = lent[name]
    for name in ("addresses", "locks", "signals", "boxes", "lanes"):
        state[name] = borrowed.base + int(lent[name])
    at, out = int(lent["in_frames"]), int(lent["out_frames"])
    state["member"] = member
    state["code"], state["context"], state["input"] = borrowed.address, words.ctypes.data, at
    state["rows"] = room.ctypes.data + first
    state["taken"] = state["rows"] + ROWS * row_bytes
    state["own"] = state["boxes"] + member * boxes * BOX_BYTES
    state["signal"] = state["signals"] + member * SIGNAL_BYTES
    state["out_frames"], state["out_stride"], state["out_lengths"], state["out_ports"] = words[out : out + 4]
    fields: Any = STATE.fields
    places = {name: state.ctypes.data + fields[name][1] for name in ("frame_bytes", "port")}
    state["port"] = borrowed.addresses[member]["port"]
    words[at + 1], words[at + 2], words[at + 3] = row_bytes, places["frame_bytes"], places["port"]
    bells, poll_fds = np.zeros(members, np.int64), np.zeros(3, POLLFD)
    poll_fds["fd"], poll_fds["events"] = -1, POLLIN
    arrays: dict[str, npt.NDArray[Any]] = {
        "lengths": np.zeros(ROWS, np.int32),
        "framed": np.zeros(ROWS, np.int64),
        "seen": np.zeros(boxes, np.uint32),
        "told": np.zeros(members, np.int64),
        "draws": np.random.default_rng(member).integers(1, 1 << 63, 1, np.uint64),
        "bells": bells,
        "poll_fds": poll_fds,
    }
    for name, array in arrays.items():
        state[name] = array.ctypes.data
    ends = LentSwitch(wake, np.zeros(2, np.int64), state)
    return Borrower(ends, bells, poll_fds, (borrowed, room, arrays))
