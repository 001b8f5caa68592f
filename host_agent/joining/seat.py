"""A worker's place in a job, from when it joins until it leaves."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final

from host_agent.communicator import Communicator
from host_agent.errors import PeerError
from host_agent.joining.addresses import own_addresses
from host_agent.joining.errors import JoinError
from host_agent.joining.report import report_of
from host_agent.joining.stream import JoinStream
from host_agent.wire import Admission, jobs_pb2
from host_agent.wire.channel import CONTROLLER_VARIABLE, ChannelError, TlsFiles
from host_agent.wire.jobs_pb2 import FromWorker, ToWorker
from host_agent.wire.slots_wish import IF_FULL, IfFull, Slots, slots_message

_NOT_FOUND: Final = "NOT_FOUND"


def join(
    controller: str | None = None,
    *,
    job: str,
    rank: int,
    world_size: int,
    slots: Slots | None = None,
    if_full: IfFull = "refuse",
    queue_s: float = 0.0,
    addresses: Sequence[str] | None = None,
    join_token: str = "",
    switch: str = "",
    tls: TlsFiles | None = None,
    timeout_s: float = 60.0,
) -> Seat:
    """Join a job, and return when all its workers have.

    Parameters
    ----------
    controller : str, optional
        "HOST:PORT" or "unix:PATH" of the controller service; None takes ``NETSUM_CONTROLLER``.
    job : str
        Name of the job; the same for all its workers, and for no other job.
    rank, world_size : int
        Which worker this is, of how many.
    slots : int, BandwidthDelay or Share, optional
        How many chunks may be in flight; a number must be a power of two. The first worker's wish counts, unless an
        operator created the job. None leaves it to the controller.
    if_full : {"refuse", "queue", "take less"}
        What to do if so many are not free.
    queue_s : float
        With "queue", how long the job may wait; 0: as long as `timeout_s` allows.
    addresses : sequence of str, optional
        IPv4 addresses of this machine; the controller takes the first that is one of its hosts. None finds them out.
    join_token : str
        Of a job that an operator created with one.
    switch : str
        On which switch to add, where there are several; the controller chooses.
    tls : TlsFiles, optional
        Certificates; None takes the ``NETSUM_TLS_*`` variables.
    timeout_s : float
        How long to wait for the controller and for the other workers.

    Raises
    ------
    JoinError
        With the reason; after `timeout_s` it says who was missing.

    Examples
    --------
    >>> with join(job="digits", rank=0, world_size=4) as seat, seat.communicator() as comm:  # doctest: +SKIP
    ...     total = comm.allreduce(gradients)
    """
    target = controller or os.environ.get(CONTROLLER_VARIABLE)
    if not target:
        raise JoinError(f"no controller is named: set {CONTROLLER_VARIABLE} to HOST:PORT or unix:PATH")
    wish = jobs_pb2.Wish(
        job=job,
        rank=rank,
        world_size=world_size,
        addresses=own_addresses() if addresses is None else addresses,
        join_token=join_token,
        slots=slots_message(slots),
        if_full=IF_FULL[if_full],
        queue_s=queue_s,
        switch=switch,
    )
    return Seat(target, wish, TlsFiles.from_environment() if tls is None else tls, timeout_s)


class Seat:
    """The place of this process in a job; a context manager that leaves it. Made by `join`.

    Attributes
    ----------
    controller : str
        Of which controller.
    host : str
        The host the controller takes this machine for.
    bind : (str, int)
        Where the communicator must be bound.
    admission : Admission
        For the communicator; a new one after a restart of the job.
    """

    admission: Admission

    def __init__(self, controller: str, wish: jobs_pb2.Wish, tls: TlsFiles, timeout_s: float) -> None:
        self.controller = controller
        self.host = ""
        self.bind = ("", 0)
        self._wish = wish
        self._tls = tls
        self._changed = threading.Condition()  # guards all below
        self._lease = ""
        self._admitted = False
        self._epoch_over = False
        self._held: socket.socket | None = None
        self._waiting_for = ""
        self._failure = ""
        self._ended = ""
        self._left: dict[int, str] = {}
        self._restarts = 0
        self._restart_reason = ""
        self._watchers: list[_Watcher] = []
        self._communicator: weakref.ref[Communicator] | None = None
        self._report_s = 1.0
        self._closed = threading.Event()
        try:
            self._stream = JoinStream(
                controller, tls, self._opening, self._on_message, self._on_refusal, self._on_unreachable
            )
        except ChannelError as error:
            raise JoinError(f"{CONTROLLER_VARIABLE}: {error}") from error
        open_seats.add(self)
        self._stream.start()
        try:
            self._await(lambda: self._admitted, timeout_s, "joining")
        except BaseException:
            self.close()
            raise
        threading.Thread(target=self._report, name="netsum-report", daemon=True).start()

    def __enter__(self) -> Seat:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def communicator(self, timeout_s: float = 30.0) -> Communicator:
        """Return a communicator for the present admission, and tell the controller what it does from now on.

        Parameters
        ----------
        timeout_s : float
            A collective fails if none of its chunks completes for that long.
        """
        made = Communicator(self.admission, bind=self.bind, timeout_s=timeout_s)
        self.report_on(made)
        return made

    def report_on(self, communicator: Communicator) -> None:
        """Tell the controller, about once a second, what a communicator does; operators are shown it."""
        self._communicator = weakref.ref(communicator)

    def watch(
        self,
        on_left: Callable[[int, str], None],
        on_ended: Callable[[str], None],
        on_restarted: Callable[[Admission, str], None] | None = None,
    ) -> None:
        """Be told what becomes of the job: at once of what has happened already, later from a thread of the seat.

        Parameters
        ----------
        on_left : callable
            Takes the rank of a worker that left, and why.
        on_ended : callable
            Takes why the job, or this worker's part in it, has ended.
        on_restarted : callable, optional
            Takes the new admission, and why the job was restarted: collectives under way come to nothing.
        """
        watcher = _Watcher(on_left, on_ended, on_restarted or (lambda admission, reason: None))
        with self._changed:
            self._watchers.append(watcher)
            left, ended = dict(self._left), self._ended
        for rank, reason in left.items():
            on_left(rank, reason)
        if ended:
            on_ended(ended)

    @property
    def left(self) -> dict[int, str]:
        """The ranks of the workers that have left, and why."""
        with self._changed:
            return dict(self._left)

    @property
    def trouble(self) -> str:
        """What keeps the present admission from being of use, in a sentence; empty if nothing does."""
        with self._changed:
            if self._ended:
                return f"the job ended: {self._ended}"
            if self._epoch_over:
                return f"the job is being restarted: {self._waiting_for}"
            if self._left:
                return "; ".join(f"worker {rank} left: {reason}" for rank, reason in self._left.items())
            return ""

    def restarted(self, timeout_s: float) -> Admission:
        """Wait for a restart of the job that has not been returned yet, and return the new admission.

        Raises
        ------
        JoinError
            The job ended, or was not restarted in time.
        """
        self._await(lambda: self._restarts > 0, timeout_s, "waiting for a restart of")
        with self._changed:
            self._restarts = 0
            return self.admission

    def close(self) -> None:
        """Leave the job; may be called again."""
        if self._closed.is_set():
            return
        self._closed.set()
        open_seats.discard(self)
        self._stream.close()
        self._release()

    def forget(self) -> None:
        """Drop the connection in a forked child: it is the parent's, and must end with it."""
        self._stream.forget()

    # What the stream asks and tells, in its thread

    def _opening(self) -> FromWorker:
        with self._changed:
            if not self._lease:
                return FromWorker(join=self._wish)
            epoch = self.admission.epoch if self._admitted else 0
            return FromWorker(
                attach=jobs_pb2.Reattachment(
                    job=self._wish.job, rank=self._wish.rank, lease=self._lease, epoch=epoch
                )
            )

    def _on_message(self, message: ToWorker) -> None:
        match message.WhichOneof("message"):
            case "place":
                self._take_place(message.place)
            case "gathering":
                self._wait_for(message.gathering)
            case "admitted":
                self._report_s = message.admitted.report_s
                self._admit(message.admitted.admission, "")
            case "restarted":
                self._admit(message.restarted.admission, message.restarted.reason)
            case "left":
                self._note_left(message.left.rank, message.left.reason)
            case "ended":
                self._end(message.ended.reason)
        with self._changed:
            self._changed.notify_all()

    def _on_refusal(self, code: Any, sentence: str) -> bool:
        with self._changed:
            if code.name == _NOT_FOUND and self._lease and not self._admitted:
                self._lease = ""  # The controller restarted while we gathered: begin anew.
                return True
            if not self._admitted:
                self._failure = sentence
                self._changed.notify_all()
                return False
        self._end(sentence)
        return False

    def _on_unreachable(self, sentence: str) -> bool:
        with self._changed:
            if self._lease or self._closed.is_set():
                return not self._ended
            self._failure = (
                f"nothing answers at {self.controller} ({sentence}): start the service, or unset {CONTROLLER_VARIABLE} "
                "for a switch on loopback"
                + (", or check the certificates of both sides" if self._tls else "")
            )
            self._changed.notify_all()
            return False

    def _take_place(self, place: jobs_pb2.Place) -> None:
        self._release()
        held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            held.bind((place.ip, 0))
        except OSError as error:
            held.close()
            with self._changed:
                self._failure = (
                    f"the controller takes this machine for host {place.host}, whose address {place.ip} "
                    f"it cannot use: {error}"
                )
            return
        with self._changed:
            self._held = held
            self._lease, self.host = place.lease, place.host
            self.bind = held.getsockname()
        self._stream.say(FromWorker(receive=jobs_pb2.Receiver(udp_port=self.bind[1])))

    def _wait_for(self, gathering: jobs_pb2.Gathering) -> None:
        with self._changed:
            missing = list(gathering.missing)
            self._waiting_for = gathering.queued or (f"workers {missing} have not come" if missing else "")
            self._epoch_over = self._admitted

    def _admit(self, ticket: jobs_pb2.AdmissionTicket, reason: str) -> None:
        # Held until now, so that nobody else got the port; from here on the communicator's.
        self._release()
        with self._changed:
            self.admission = _admission(ticket)
            self._epoch_over = False
            self._left.clear()
            if self._admitted:
                self._restarts += 1
            self._admitted = True
            watchers = list(self._watchers)
        if reason:
            for watcher in watchers:
                watcher.on_restarted(self.admission, reason)

    def _note_left(self, rank: int, reason: str) -> None:
        with self._changed:
            if rank in self._left:
                return
            self._left[rank] = reason
            watchers = list(self._watchers)
        for watcher in watchers:
            watcher.on_left(rank, reason)

    def _end(self, reason: str) -> None:
        with self._changed:
            if self._ended:
                return
            self._ended = reason
            if not self._admitted:
                self._failure = reason
            watchers = list(self._watchers)
            self._changed.notify_all()
        if not self._closed.is_set():
            for watcher in watchers:
                watcher.on_ended(reason)

    def _release(self) -> None:
        with self._changed:
            if self._held is not None:
                self._held.close()
                self._held = None

    def _await(self, done: Callable[[], bool], timeout_s: float, what: str) -> None:
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not done():
                if self._failure:
                    raise JoinError(self._failure)
                if self._ended:
                    raise JoinError(f"job {self._wish.job} ended: {self._ended}")
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    why = self._waiting_for or f"the controller at {self.controller} said nothing"
                    raise JoinError(f"{what} job {self._wish.job} took longer than {timeout_s:g} s: {why}")
                self._changed.wait(min(left_s, 1.0))

    def _report(self) -> None:
        while not self._closed.wait(self._report_s):
            communicator = self._communicator() if self._communicator is not None else None
            if communicator is not None:
                self._stream.say(FromWorker(report=report_of(communicator)))
            del communicator


class _Watcher:
    def __init__(
        self,
        on_left: Callable[[int, str], None],
        on_ended: Callable[[str], None],
        on_restarted: Callable[[Admission, str], None],
    ) -> None:
        self.on_left, self.on_ended, self.on_restarted = on_left, on_ended, on_restarted


def _admission(ticket: jobs_pb2.AdmissionTicket) -> Admission:
    return Admission(
        job_id=ticket.job_id,
        token=ticket.token,
        epoch=ticket.epoch,
        worker_id=ticket.worker_id,
        num_workers=ticket.num_workers,
        slot_count=ticket.slot_count,
        lanes=ticket.lanes,
        switch=(ticket.switch_ip, ticket.switch_port),
    )


open_seats: weakref.WeakSet[Seat] = weakref.WeakSet()

_inherited: list[Seat] = []
"""Seats of a parent process. Kept: gRPC's threads are not in a forked child, and taking its objects down would wait for them."""


def _leave_all() -> None:
    for seat in list(open_seats):
        with contextlib.suppress(PeerError):
            seat.close()


def _forget_in_child() -> None:
    for seat in list(open_seats):
        seat.forget()
        _inherited.append(seat)
    open_seats.clear()


atexit.register(_leave_all)
os.register_at_fork(after_in_child=_forget_in_child)
