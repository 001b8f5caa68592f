"""The link of a worker that runs the switch's program itself (`in_place`): how it borrows the program, and what went wrong."""

import contextlib
import os
import select
import socket
import time
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from host_agent.protocol.core import WorkerCore
from host_agent.transport.exchange import TIME_UP, WOKEN, exchange
from host_agent.transport.in_place import ROWS, STATE, LentSwitch
from host_agent.transport.system_calls import POLLFD, POLLIN
from host_agent.transport.udp import Bind, UdpLink
from host_agent.wire.constants import HEADER_BYTES as OWN_HEADER_BYTES
from netsum_common.frames import HEADER_BYTES
from netsum_common.lent_program import (
    BOX_BYTES,
    GONE,
    LINE_BYTES,
    READY,
    REFUSED,
    RUN,
    SIGNAL_BYTES,
    WITHDRAWN,
    Borrowed,
    LendingRequest,
)
from netsum_common.rings import MAXIMUM_MESSAGE_BYTES, AttachError, ask

ATTACH_TIMEOUT_S: Final = 15.0
AGREE_TIMEOUT_S: Final = 2.0
"""How long a worker that has something to send waits for the others to ask; they do when their communicators are made."""
PATIENCE: Final = 8  # The wait is this part of a collective's deadline at most.


class InPlaceLink(UdpLink):
    """The lent program of a switch on this machine, once all workers of the job are ready to run it; see `lent_program`.

    `bind`: as for `UdpLink`. Raises MisuseError: as for `UdpLink`.
    """

    def __init__(self, core: WorkerCore, bind: Bind) -> None:
        self._lender: socket.socket | None = None  # The connection to the switch, while it lends the program.
        self._bells: list[int] = []
        self._waits = False  # The job's workers have not agreed yet.
        self._agree_by_ns = 0  # How long to wait for the others; 0: nothing was to be sent yet.
        self._withdrawn = False
        self.refusal = ""  # Why this link is none to the switch's memory.
        super().__init__(core, bind)
        self._udp = self.ends
        self._borrow()

    @property
    def is_attached(self) -> bool:
        """Whether it runs the program itself, or will if the others do."""
        return self._lender is not None

    @property
    def kind(self) -> str:
        """The way that datagrams take; see `Link.kind`."""
        return ("agreeing" if self._waits else "program") if self.is_attached else super().kind

    def enter(self, core: WorkerCore) -> None:
        """Carry the datagrams of another core from now on; see `Link.enter`."""
        self._give_back()
        super().enter(core)
        self._borrow()

    def exchange(self, seconds: float) -> int:
        """Send and receive, once the workers have agreed how; see `Link.exchange`."""
        if self._waits and self._core.passes_under_way:
            until_ns = time.monotonic_ns() + int(seconds * 1e9)
            if not self._agree(seconds):
                return WOKEN if self._wake[0] else TIME_UP
            seconds = max(0.0, (until_ns - time.monotonic_ns()) / 1e9)
        return super().exchange(seconds)

    def trouble(self) -> str:
        """Return the error that the system reported about the path to the switch; empty if none."""
        if not isinstance(self.ends, LentSwitch):
            return super().trouble()
        state, found = self.ends.state[0], []
        if state["gone"] and not self._waits:
            found.append(self._taken_back())
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

    def _taken_back(self) -> str:
        host, port = self._core.admission.switch
        return f"the switch at {host}:{port} has taken back the memory that it shared: it has ended, or detached this worker"

    def clear_trouble(self) -> None:
        """Start `trouble` anew."""
        super().clear_trouble()
        if isinstance(self.ends, LentSwitch):
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
            self._fall_back("the job is added in a tree, whose switches are processes")
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
            self._fall_back(str(error))
            return
        memory, *bells = descriptors
        try:
            borrowed = Borrowed(memory, request.member)
            connection.send(READY)
        except (OSError, ValueError) as error:
            for bell in bells:
                os.close(bell)
            connection.close()
            self._fall_back(f"the memory of the switch could not be used ({error})")
            return
        finally:
            os.close(memory)
        self._lender, self._borrowed, self._bells = connection, borrowed, bells
        self._waits, self._agree_by_ns, self._withdrawn = True, 0, False
        self._borrower = borrower_of(borrowed, request.member, self._wake)
        self.ends = self._borrower.ends
        self.ends.state["gone"] = 1  # Sends nothing yet.
        self._borrower.bells[:] = bells
        self._borrower.poll_fds["fd"] = [bells[request.member], self._wake_fd, -1]

    def _agree(self, seconds: float) -> bool:
        """Wait for the switch's decision; returns whether it is there."""
        assert self._lender is not None
        now_ns = time.monotonic_ns()
        if self._agree_by_ns == 0:
            patience_ns = int(self._core.state["timeout_ns"][0]) // PATIENCE
            self._agree_by_ns = now_ns + min(int(AGREE_TIMEOUT_S * 1e9), patience_ns)
        waiting = select.poll()
        waiting.register(self._lender, select.POLLIN)
        waiting.register(self._wake_fd, select.POLLIN)
        left_ns = max(0, min(int(seconds * 1e9), self._agree_by_ns - now_ns))
        if any(
            descriptor == self._lender.fileno() for descriptor, _ in waiting.poll(-(-left_ns // 1_000_000))
        ):
            self._decided(self._decision())
        elif time.monotonic_ns() >= self._agree_by_ns:
            if self._withdrawn:
                self._decided(b"")
            else:
                self._withdrawn = True
                self._agree_by_ns = time.monotonic_ns() + int(ATTACH_TIMEOUT_S * 1e9)
                reason = f"worker {self._core.admission.worker_id} waited too long for the others to ask"
                with contextlib.suppress(OSError):  # Then the connection has ended, which is seen next.
                    self._lender.send(WITHDRAWN + reason.encode())
        return not self._waits

    def _decision(self) -> bytes:
        assert self._lender is not None
        try:
            return self._lender.recv(MAXIMUM_MESSAGE_BYTES)
        except OSError:
            return b""

    def _decided(self, decision: bytes) -> None:
        """Do as the switch has decided; without a decision others may run the program, so that nothing else can be used."""
        assert self._lender is not None
        self._waits = False
        if decision.startswith(REFUSED):
            self._give_back()
            self._fall_back(decision.removeprefix(REFUSED).decode(errors="replace"))
        elif decision == RUN:
            self._borrower.poll_fds["fd"][2] = self._lender.fileno()
            self.ends.state["gone"] = 0

    def _fall_back(self, reason: str) -> None:
        """Do without the program, as all workers of the job do."""
        self.refusal = reason

    def _give_back(self, for_all: bool = True) -> None:
        """Use UDP; `for_all`: end the connection in forked children too, which may still hold it."""
        if self._lender is not None:
            if for_all:
                with contextlib.suppress(OSError):  # The switch was first.
                    self._lender.shutdown(socket.SHUT_RDWR)
            self.ends = self._udp
            self._lender.close()
            for bell in self._bells:
                os.close(bell)
            self._lender, self._waits = None, False
            del self._borrowed, self._borrower


def row_bytes_for(core: WorkerCore) -> int:
    """Return the distance of datagrams in memory, with room for a frame's headers between them."""
    # An odd number of cache lines keeps rows in different sets of the cache.
    return LINE_BYTES * (-(-(core.row_bytes + HEADER_BYTES) // LINE_BYTES) | 1)


def load(core: WorkerCore) -> None:
    """Compile the loop for lent programs, or load it from the cache."""
    signals, state = np.zeros(SIGNAL_BYTES, np.uint8), np.zeros(1, STATE)
    state["signal"], state["row_bytes"], state["gone"] = signals.ctypes.data, LINE_BYTES, 1
    exchange(*core.records, LentSwitch(np.zeros(1, np.int64), np.zeros(2, np.int64), state), 0)


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
