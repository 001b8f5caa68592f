"""A worker's membership in a job, until it leaves."""

import atexit
import contextlib
import os
import socket
import threading
import weakref
from collections.abc import Callable
from typing import Any

from host_agent.boundary import Position
from host_agent.claims import is_used
from host_agent.communicator import Communicator
from host_agent.errors import MisuseError, PeerError
from host_agent.forks import INHERITED, OfOneProcess
from host_agent.job_api import CONTROLLER_VARIABLE, jobs_pb2
from host_agent.job_api.jobs_pb2 import FromWorker, ToWorker
from host_agent.job_api.tickets import admission_of
from host_agent.joining.join_errors import JoinError
from host_agent.joining.leaf import LeafKeeper
from host_agent.joining.membership_status import MembershipStatus, Watcher
from host_agent.joining.stream import JoinStream
from host_agent.joining.worker_report import report_of
from host_agent.lifecycle import Lifecycle, LifecycleState
from host_agent.verification.trust import Trust
from host_agent.wire import Admission
from netsum_common.channel import ChannelError, TlsFiles, connection_fault, what_to_do
from netsum_common.closing import Closing


class Membership(Closing, OfOneProcess):
    """The membership of this process in a job; a context manager that leaves the job at its end. Made by `join`.

    A child that this process forks has no part in it.

    Attributes
    ----------
    controller : str
        Of which controller.
    """

    def __init__(
        self,
        controller: str,
        request: jobs_pb2.JoinRequest,
        tls: TlsFiles,
        timeout_s: float,
        start: bool = True,
    ) -> None:
        if _inherited:
            raise JoinError(INHERITED)  # Else gRPC may end the process without a word.
        self.controller = controller
        self._tls = tls
        self._status = MembershipStatus(request, starts=start)
        self._communicator: Callable[[], Communicator | None] = lambda: None
        self._lifecycle: Lifecycle | None = None
        self._closed = threading.Event()
        self._making = threading.RLock()  # held while a communicator gets its epoch
        self._held: jobs_pb2.Hold | None = None
        self._attempt = 0  # The last attempt to move the job.
        self._leaf = LeafKeeper(controller, tls, self._no_leaf)
        self._reporter = threading.Thread(target=self._report, name="netsum-report", daemon=True)
        try:
            self._stream = JoinStream(
                controller,
                tls,
                self._status.opening,
                self._on_message,
                self._on_refusal,
                self._on_unreachable,
            )
        except ChannelError as error:
            raise JoinError(f"{CONTROLLER_VARIABLE}: {error}") from error
        open_memberships.add(self)
        super().__init__()
        self._stream.start()
        try:
            if start:
                self.start(timeout_s)
            else:
                self._status.placed(controller, timeout_s)
        except BaseException:
            self.close()
            raise

    def start(self, timeout_s: float) -> None:
        """Wait until the job has started, for which all its workers must call this once.

        Raises
        ------
        JoinError
            As for `join`.
        """
        message = self._status.start()
        if message is not None:
            self._stream.send(message)
        self._status.joined(self.controller, timeout_s)
        if self._reporter.ident is None:
            self._reporter.start()

    @property
    def admission(self) -> Admission:
        """The admission for a communicator; a new one after a restart of the job."""
        return self._status.admission

    @property
    def bind(self) -> tuple[str, int]:
        """The address and UDP port that packets of this worker must come from; see `port`."""
        return self._status.bind

    def port(self) -> socket.socket:
        """Return a UDP socket bound to `bind`, for the caller to close.

        Raises
        ------
        JoinError
            The membership was given up.
        """
        return self._status.port()

    @property
    def job(self) -> str:
        """The name of the job."""
        return self._status.job

    @property
    def host(self) -> str:
        """The host that the controller identified this machine as."""
        return self._status.host

    @property
    def left(self) -> dict[int, str]:
        """The ranks of the workers that have left, and why."""
        return self._status.left

    @property
    def trouble(self) -> str:
        """Why the current admission is invalid; empty while it is valid."""
        return self._status.trouble

    def communicator(self, timeout_s: float = 30.0, *, trust: Trust | None = None) -> Communicator:
        """Return a communicator for the current admission, and report its counts to the controller.

        Parameters
        ----------
        timeout_s : float
            A collective fails if none of its chunks completes for that long.
        trust : Trust, optional
            How results are checked; by default as NETSUM_VERIFY, NETSUM_SECRET, NETSUM_PRIVATE and NETSUM_ON_CORRUPTION say.

        Raises
        ------
        SecretError
            The secret cannot be used.
        UsedAdmissionError
            If the present admission has served one: `start_again` first.
        MisuseError
            The membership's last communicator is not closed.
        JoinError
            The membership was given up.
        """
        trust = trust or Trust.from_environment()
        with self._making:  # A move of the job waits until the communicator is there to take part.
            before = self._communicator()
            if (
                before is not None
                and before.lifecycle.state is not LifecycleState.CLOSED
                and not is_used(self.admission)
            ):
                raise MisuseError(f"close the communicator of job {self.job} before making the next")
            port = self.port()
            try:
                made = Communicator(self.admission, bind=port, timeout_s=timeout_s, trust=trust)
            except BaseException:
                port.close()
                raise
            self.report_on(made)
            made.control.on_boundary(self._on_boundary)
            if self._held is not None:
                self._hold(self._held)
            return made

    def report_on(self, communicator: Communicator) -> None:
        """Report a communicator's counts to the controller about once a second, for operators."""
        self._communicator = weakref.ref(communicator)
        self._lifecycle = communicator.lifecycle

    def start_again(self, timeout_s: float = 60.0) -> Admission:
        """Return an admission that no communicator has used, in a new epoch of the job if necessary.

        All workers close their communicator, call this and make a new one. Where this worker's communicator has failed,
        the job gets its new epoch at once: the others' collectives fail, and they are notified (`watch`). Else it gets it when
        all have called.

        Parameters
        ----------
        timeout_s : float
            How long to wait for the others.

        Raises
        ------
        JoinError
            The job ended, or got no new epoch in time.
        """
        used = self.admission
        if not is_used(used):
            return used
        broken = self._lifecycle is not None and self._lifecycle.cause is not None
        asking = FromWorker(again=jobs_pb2.Again(epoch=used.epoch, broken=broken))
        return self._epoch_after(asking, timeout_s, "starting again in")

    @property
    def newcomers(self) -> int:
        """How many workers wait to be added to the job; `resize` adds them."""
        return self._status.newcomers

    def resize(self, timeout_s: float = 60.0) -> Admission:
        """Return the admission of an epoch without the workers that have left and with those that wait to be added.

        All workers that are there close their communicator, call this and make a new one. They keep the order of their ranks;
        newcomers follow.

        Parameters
        ----------
        timeout_s : float
            How long to wait for the others.

        Raises
        ------
        AbsentWorkersError
            (a JoinError) Some workers are there and have not called it in time.
        JoinError
            The job ended, or got no new epoch in time.
        """
        used = self.admission
        asking = FromWorker(again=jobs_pb2.Again(epoch=used.epoch, resize=True))
        return self._epoch_after(asking, timeout_s, "resizing")

    def _epoch_after(self, asking: FromWorker, timeout_s: float, what: str) -> Admission:
        """Request another epoch than the one in the message until the job has it; return its admission."""
        # Sent repeatedly, as a stream may break and another begin meanwhile.
        return self._status.epoch_after(
            asking.again.epoch, self.controller, timeout_s, lambda: self._stream.send(asking), what
        )

    def watch(
        self,
        on_left: Callable[[int, str], None],
        on_ended: Callable[[str], None],
        on_restarted: Callable[[Admission, str], None] | None = None,
        on_unreachable: Callable[[str], None] | None = None,
    ) -> None:
        """Call back on events of the job: at once for past events, later from a thread of the membership.

        Parameters
        ----------
        on_left : callable
            Takes the rank of a worker that left, and why.
        on_ended : callable
            Takes why the job, or this worker's part in it, has ended.
        on_restarted : callable, optional
            Takes the new admission, and why the job was restarted: collectives under way fail.
        on_unreachable : callable, optional
            Takes why the controller cannot be reached; called with each attempt, about once a second. That alone does
            not disturb a running job.
        """
        self._status.watch(
            Watcher(
                on_left,
                on_ended,
                on_restarted or (lambda admission, reason: None),
                on_unreachable or (lambda reason: None),
            )
        )

    def restarted(self, timeout_s: float) -> Admission:
        """Wait for a restart of the job that has not been returned yet, and return the new admission.

        Raises
        ------
        JoinError
            The job ended, or was not restarted in time.
        """
        return self._status.restarted(self.controller, timeout_s)

    def close(self) -> None:
        """Leave the job; may be called again."""
        if self._closed.is_set():
            return
        self._closed.set()
        open_memberships.discard(self)
        self._status.close()
        self._stream.close()
        self._leaf.close()

    def close_in_child(self) -> None:
        """Drop the connections in a forked child: they are the parent's, and must end with it."""
        self._making, self._closed = threading.RLock(), threading.Event()
        self._closed.set()
        self._status.close_in_child()
        self._stream.close_in_child()
        self._leaf.close_in_child()
        open_memberships.discard(self)
        _inherited.append(self)

    # Callbacks of the stream, run in its thread

    def _on_message(self, message: ToWorker) -> None:
        match message.WhichOneof("message"):
            case "hold":
                with self._making:
                    self._hold(message.hold)
            case "release":
                with self._making:
                    self._release(message.release.epoch)
            case "moved":
                with self._making:
                    self._move(message)
            case "restarted":
                with self._making:
                    communicator = self._communicator()
                    if communicator is not None and communicator.admission == self.admission:
                        communicator.control.note_restart(message.restarted.reason)
                    self._release(self.admission.epoch)
                self._status.on_message(message)
            case "leaf":
                self._leaf.keep(message.leaf.name, message.leaf.ip)
            case _:
                answer = self._status.on_message(message)
                if answer is not None:
                    self._stream.send(answer)

    def _no_leaf(self, name: str, reason: str) -> None:
        self._stream.send(FromWorker(no_leaf=jobs_pb2.NoLeaf(name=name, reason=reason)))

    def _hold(self, hold: jobs_pb2.Hold) -> None:
        """Stop the communicator at the limit of a hold, and report how far it has come."""
        used = self.admission
        if hold.epoch != used.epoch:
            return
        self._attempt = hold.attempt
        communicator = self._communicator()
        if communicator is None or communicator.admission != used:
            self._held = hold  # For a communicator that is made before the move.
            fixed = "it uses its admission without its membership" if is_used(used) else ""
            held = jobs_pb2.Held(epoch=used.epoch, fixed=fixed, attempt=hold.attempt)
            self._stream.send(FromWorker(held=held))
            return
        failure = communicator.lifecycle.cause
        closed = communicator.lifecycle.state is LifecycleState.CLOSED
        until = hold.until if hold.HasField("until") else None
        position = communicator.control.hold(until, tuple(hold.missing))
        fixed = "its communicator has failed" if failure else "it has closed" if closed else ""
        self._send_position(used.epoch, position, fixed)

    def _on_boundary(self, position: Position) -> None:
        self._send_position(self.admission.epoch, position)

    def _send_position(self, epoch: int, position: Position, fixed: str = "") -> None:
        """Report how far this worker has come; `fixed`: why it cannot take part in a move, if it cannot."""
        held = jobs_pb2.Held(
            epoch=epoch, begun=position.begun, ended=position.ended, fixed=fixed, attempt=self._attempt
        )
        self._stream.send(FromWorker(held=held))

    def _release(self, epoch: int) -> None:
        self._held = None
        communicator = self._communicator()
        if communicator is not None and communicator.admission.epoch == epoch:
            communicator.control.release()

    def _move(self, message: ToWorker) -> None:
        """Let the communicator go on in the new epoch; where it cannot, the epoch is a restart to it."""
        self._held = None
        communicator = self._communicator()
        used = self.admission
        unused = not is_used(used)
        goes_on = (
            communicator is not None
            and communicator.admission == used
            and communicator.control.move(admission_of(message.moved.admission))
        )
        if unused or goes_on:
            self._status.moved(message.moved.admission)
        else:
            self._status.on_message(message)

    def _on_refusal(self, code: Any, sentence: str) -> bool:
        return self._status.refused(code.name, sentence)

    def _on_unreachable(self, sentence: str) -> bool:
        named = os.environ.get(CONTROLLER_VARIABLE) == self.controller
        unset = f", or unset {CONTROLLER_VARIABLE} for a switch on loopback" if named else ""
        return self._status.unreachable(
            f"nothing answers at {self.controller} ({connection_fault(sentence)}): "
            + what_to_do(f"start the service{unset}", sentence, self._tls),
            busy="timed out" in sentence,
        )

    def _report(self) -> None:
        while not self._closed.wait(self._status.report_s):
            communicator = self._communicator()
            if communicator is not None:
                self._stream.send(FromWorker(report=report_of(communicator)))
            del communicator


open_memberships: weakref.WeakSet[Membership] = weakref.WeakSet()

_inherited: list[Membership] = []
"""Memberships of a parent process. Kept: gRPC's threads are not in a forked child; to remove its objects would wait for them."""


def _leave_all() -> None:
    for membership in list(open_memberships):
        with contextlib.suppress(PeerError):
            membership.close()


atexit.register(_leave_all)
