"""A worker's membership in a job as the controller's messages describe it, and waiting for changes.

Messages come in one thread, questions from others; a condition guards the state.
"""

import socket
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from host_agent.errors import AdmissionError
from host_agent.forks import INHERITED
from host_agent.job_api import jobs_pb2
from host_agent.job_api.jobs_pb2 import FromWorker, ToWorker
from host_agent.job_api.tickets import admission_of
from host_agent.joining.join_errors import AbsentWorkersError, JoinError, NoSlotsError
from host_agent.joining.membership_states import MEMBERSHIP_TRANSITIONS, MembershipEvent, MembershipState
from host_agent.wire import Admission
from netsum_common.states import next_state

_JOINED: Final = (MembershipState.ADMITTED, MembershipState.RESTARTING, MembershipState.ENDED)
"""The states of a worker that has been admitted."""

_UNKNOWN: Final = "NOT_FOUND"  # The status for an unknown job or worker.
_FULL: Final = "RESOURCE_EXHAUSTED"  # The status for a switch without free slots.


class Watcher(NamedTuple):
    """The callbacks of one watcher of a job; see `Membership.watch`."""

    on_left: Callable[[int, str], None]
    on_ended: Callable[[str], None]
    on_restarted: Callable[[Admission, str], None]
    on_unreachable: Callable[[str], None]


class MembershipStatus:
    """A worker's part in a job, as the controller reports it.

    `starts`: whether to ask for slots as soon as there is a place; else `start` does.
    """

    admission: Admission  # The present one; there is none before `joined` has returned.

    def __init__(self, request: jobs_pb2.JoinRequest, starts: bool = True) -> None:
        self.host = ""  # The host the controller takes this machine for.
        self.bind = ("", 0)  # The address on which this worker receives.
        self.newcomers = 0  # How many workers wait to be added when the job is resized.
        self.report_s = 1.0  # How often the controller wants a report.
        self._request = request
        self._changed = threading.Condition()  # guards all below
        self._starts = starts
        self._state = MembershipState.JOINING
        self._lease = ""
        # Bound from the first place on, as forked children may hold the port of a socket that was closed in between.
        self._port: socket.socket | None = None
        self._waiting_for = ""
        self._missing: list[int] = []
        self._failure: JoinError | None = None
        self._ended = ""
        self._left: dict[int, str] = {}
        self._restarts = 0
        self._watchers: list[Watcher] = []

    # For the worker

    @property
    def job(self) -> str:
        """The name of the job."""
        return self._request.job

    def watch(self, watcher: Watcher) -> None:
        """Report past events to a watcher, and all later ones."""
        with self._changed:
            self._watchers.append(watcher)
            left, ended = dict(self._left), self._ended
        for rank, reason in left.items():
            watcher.on_left(rank, reason)
        if ended:
            watcher.on_ended(ended)

    @property
    def left(self) -> dict[int, str]:
        """The ranks of the workers that have left, and why."""
        with self._changed:
            return dict(self._left)

    @property
    def trouble(self) -> str:
        """Why the current admission is invalid; empty while it is valid."""
        with self._changed:
            if self._ended:
                return f"the job ended: {self._ended}"
            if self._state is MembershipState.RESTARTING:
                return f"the job is being restarted: {self._waiting_for}"
            if self._left:
                return "; ".join(f"worker {rank} left: {reason}" for rank, reason in self._left.items())
            return ""

    def placed(self, controller: str, timeout_s: float) -> None:
        """Wait until the worker is a member; `JoinError` if it is refused, or the controller did not answer in time."""
        self._await(lambda: self._lease != "", controller, timeout_s, "joining")

    def start(self) -> FromWorker | None:
        """Request slots from now on; return the message to send if the worker is a member already."""
        with self._changed:
            waited = not self._starts and self._port is not None
            self._starts = True
            return self._receiver() if waited else None

    def port(self) -> socket.socket:
        """Return a socket bound to `bind`, for the caller to close; `JoinError` if this worker is no member."""
        with self._changed:
            if self._port is None:
                raise self._failure or JoinError(
                    f"this process is not a member of job {self._request.job} yet"
                )
            return self._port.dup()

    def joined(self, controller: str, timeout_s: float) -> None:
        """Wait until the worker is admitted; `JoinError` if it is refused, or was not admitted in time."""
        self._await(lambda: self._state in _JOINED, controller, timeout_s, "joining")

    def restarted(self, controller: str, timeout_s: float) -> Admission:
        """Wait for a restart of the job that has not been returned yet, and return the new admission.

        Raises JoinError: the job ended, or was not restarted in time.
        """
        self._await(lambda: self._restarts > 0, controller, timeout_s, "waiting for a restart of")
        with self._changed:
            self._restarts = 0
            return self.admission

    def epoch_after(
        self,
        epoch: int,
        controller: str,
        timeout_s: float,
        ask: Callable[[], None],
        what: str = "starting again in",
    ) -> Admission:
        """Request a new epoch until the job has one other than `epoch`, and return its admission.

        Raises JoinError: the job ended, or got no other epoch in time.
        """
        self._await(lambda: self.admission.epoch != epoch, controller, timeout_s, what, ask)
        with self._changed:
            self._restarts = 0
            return self.admission

    def close(self) -> None:
        """Stop reporting to watchers."""
        with self._changed:
            self._on(MembershipEvent.CLOSE)
            self._failure = self._failure or JoinError(
                f"the membership in job {self._request.job} was given up"
            )
            self._changed.notify_all()
        self._release()

    def close_in_child(self) -> None:
        """Give the membership up in a forked child, which has no part in it."""
        self._changed, self._failure = threading.Condition(), JoinError(INHERITED)
        self.close()

    # For the stream

    def opening(self) -> FromWorker:
        """Return the first message of a stream."""
        with self._changed:
            if not self._lease:
                return FromWorker(join=self._request)
            joined = self._state in _JOINED
            epoch = self.admission.epoch if joined else 0
            rank = self.admission.rank if joined else self._request.rank
            return FromWorker(
                attach=jobs_pb2.Reattachment(job=self._request.job, rank=rank, lease=self._lease, epoch=epoch)
            )

    def on_message(self, message: ToWorker) -> FromWorker | None:
        """Process a message of the controller; return the reply, if there is one."""
        answer = None
        match message.WhichOneof("message"):
            case "place":
                answer = self._take_place(message.place)
            case "gathering":
                self._wait_for(message.gathering)
            case "admitted":
                self.report_s = message.admitted.report_s
                self._admit(message.admitted.admission, "")
            case "restarted":
                self._admit(message.restarted.admission, message.restarted.reason)
            case "left":
                self._note_left(message.left.rank, message.left.reason)
            case "moved":
                self._admit(message.moved.admission, message.moved.reason)
            case "ended":
                self._end(message.ended.reason)
            case "newcomers":
                self.newcomers = message.newcomers.count
        with self._changed:
            self._changed.notify_all()
        return answer

    def moved(self, ticket: jobs_pb2.AdmissionTicket) -> None:
        """Take the admission of another epoch that this worker's communicator goes on in."""
        with self._changed:
            self.admission = admission_of(ticket)

    def refused(self, status: str, sentence: str) -> bool:
        """Process a status with which the controller ended the stream; return whether to join anew."""
        with self._changed:
            if status == _UNKNOWN and self._state is MembershipState.PLACED:
                self._on(MembershipEvent.FORGET)
                self._lease = ""
                return True
            if self._state not in (*_JOINED, MembershipState.CLOSED):
                self._fail(NoSlotsError(sentence) if status == _FULL else JoinError(sentence))
                return False
        self._end(sentence)
        return False

    def unreachable(self, sentence: str, busy: bool = False) -> bool:
        """Process the reason of a broken connection; return whether to reconnect.

        `busy`: whether the controller took too long to answer, which many workers at once can cause.
        """
        with self._changed:
            if busy:
                self._waiting_for = self._waiting_for or sentence
            elif self._state is MembershipState.JOINING:
                self._fail(JoinError(sentence))
            if self._state in (MembershipState.FAILED, MembershipState.ENDED):
                return False
        for watcher in self._watching():
            watcher.on_unreachable(sentence)
        return True

    # Transitions

    def _on(self, event: MembershipEvent) -> None:
        what = f"the membership in job {self._request.job}"
        self._state = next_state(MEMBERSHIP_TRANSITIONS, self._state, event, what)

    def _fail(self, failure: JoinError) -> None:
        with self._changed:
            self._on(MembershipEvent.FAIL)
            self._failure = self._failure or failure
            self._changed.notify_all()

    def _watching(self) -> list[Watcher]:
        with self._changed:
            return [] if self._state is MembershipState.CLOSED else list(self._watchers)

    def _take_place(self, place: jobs_pb2.Place) -> FromWorker | None:
        self._release()
        port = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            port.bind((place.ip, 0))
        except OSError as error:
            port.close()
            self._fail(
                JoinError(
                    f"the controller identified this machine as host {place.host}, but its address {place.ip} "
                    f"cannot be used: {error}"
                )
            )
            return None
        with self._changed:
            self._on(MembershipEvent.PLACE)
            if self._state is not MembershipState.PLACED:
                port.close()
                return None
            self._port = port
            self._lease, self.host = place.lease, place.host
            self.bind = port.getsockname()
            return self._receiver() if self._starts else None

    def _receiver(self) -> FromWorker:
        return FromWorker(receive=jobs_pb2.Receiver(udp_port=self.bind[1]))

    def _wait_for(self, gathering: jobs_pb2.Gathering) -> None:
        with self._changed:
            missing = self._missing = list(gathering.missing)
            self._waiting_for = gathering.queued or (f"workers {missing} have not joined" if missing else "")
            self._on(MembershipEvent.GATHER)

    def _admit(self, ticket: jobs_pb2.AdmissionTicket, reason: str) -> None:
        try:
            admission = admission_of(ticket)
        except AdmissionError as error:
            self._end(str(error))
            return
        with self._changed:
            again = self._state is not MembershipState.PLACED
            self._on(MembershipEvent.ADMIT)
            if self._state is not MembershipState.ADMITTED:
                return
            self.admission = admission
            self._left.clear()
            self._restarts += again
        if reason:
            for watcher in self._watching():
                watcher.on_restarted(self.admission, reason)

    def _note_left(self, rank: int, reason: str) -> None:
        with self._changed:
            if rank in self._left:
                return
            self._left[rank] = reason
        for watcher in self._watching():
            watcher.on_left(rank, reason)

    def _end(self, reason: str) -> None:
        with self._changed:
            if self._ended:
                return
            self._ended = reason
            self._on(MembershipEvent.END)
            if self._state is MembershipState.FAILED:
                self._failure = self._failure or JoinError(reason)
            self._changed.notify_all()
        for watcher in self._watching():
            watcher.on_ended(reason)

    def _release(self) -> None:
        with self._changed:
            if self._port is not None:
                self._port.close()
                self._port = None

    def _await(
        self,
        done: Callable[[], bool],
        controller: str,
        timeout_s: float,
        what: str,
        ask: Callable[[], None] = lambda: None,
    ) -> None:
        """Wait, repeating the request about once a second."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not done():
                if self._failure is not None:
                    raise self._failure
                if self._ended:
                    raise JoinError(f"job {self._request.job} ended: {self._ended}")
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    why = self._waiting_for or f"the controller at {controller} said nothing"
                    message = f"{what} job {self._request.job} took longer than {timeout_s:g} s: {why}"
                    raise AbsentWorkersError(message, self._missing) if self._missing else JoinError(message)
                ask()
                self._changed.wait(min(left_s, 1.0))
