"""Errors of failed collectives in terms of torch: ranks, and the call of each rank."""

import contextlib
import functools
import math
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import torch.distributed as dist

from host_agent.errors import (
    ArrayError,
    BrokenCommunicatorError,
    ClosedCommunicatorError,
    MismatchError,
    MissingWorkersError,
    NetsumError,
    PeerError,
    SumOverflowError,
    VerificationError,
)
from host_agent.joining import AbsentWorkersError, JoinError
from host_agent.torch.gloo_reductions import GlooError

LEAVING_GRACE_S: Final = 2.0
"""How long a collective may go on after a worker has left: one that all took part in still ends well."""
DEPARTURE_S: Final = 3.0
"""How long a call that lost its connection waits to hear which rank has left: the controller gives that rank two seconds."""
EXCHANGE_S: Final = 2.0  # Seconds that ranks which disagree wait for the calls of the others.
_AFTERWARDS: Final = (
    "This group cannot be used any more: destroy it and make a new one, or let torchrun restart the job"
)


class Failures:
    """The reasons why collectives of one process group failed.

    `store`: the group's own: ranks that do not agree exchange there what they called. `ranks`: the rank in the world of each
    rank of the group, by which users know the processes.
    """

    def __init__(self, store: dist.Store, rank: int, ranks: Sequence[int], timeout_s: float) -> None:
        self._store = dist.PrefixStore("called/", store)
        self._rank = rank
        self._ranks = ranks
        self._timeout_s = timeout_s
        self._left: dict[int, None] = {}
        self._first_left_at = math.inf
        self._end = ""
        self._departed = threading.Event()
        self._destroyed = False
        self._first = ""

    def note_left(self, worker_id: int) -> None:
        """Keep that a worker left the job."""
        # Who leaves much later than the first most likely leaves because of that.
        now = time.monotonic()
        self._first_left_at = min(self._first_left_at, now)
        if now - self._first_left_at < LEAVING_GRACE_S / 2:
            self._left[worker_id] = None
        self._departed.set()

    def note_end(self, reason: str) -> None:
        """Keep why the job, or this rank's part in it, ended."""
        self._end = f"the job of this group has ended: {reason}"
        self._departed.set()

    def note_restart(self, reason: str) -> None:
        """Keep why the job was restarted: collectives under way are lost."""
        self._end = f"{reason}, so what was added for this group is lost"
        self._departed.set()

    def note_destroyed(self) -> None:
        """Keep that this rank has left by itself."""
        self._destroyed = True
        self._departed.set()

    def broken(self) -> BrokenCommunicatorError | None:
        """Return the error of calls of a group that has failed."""
        return BrokenCommunicatorError(self._first) if self._first else None

    def note_refusal(self, number: int, refusal: str) -> None:
        """Tell the ranks that wait for this one that it does not take part in a call, which all ranks count alike."""
        with contextlib.suppress(RuntimeError):
            self._own_store.set(f"refused/{number}", f"rank {self._ranks[self._rank]} called {refusal}")

    def refusal(self, number: int) -> PeerError | None:
        """Look whether another rank has refused a call."""
        with contextlib.suppress(RuntimeError):
            if self._own_store.check([f"refused/{number}"]):
                return PeerError(self._own_store.get(f"refused/{number}").decode())
        return None

    def explain(self, what: str, error: BaseException) -> BaseException:
        """Return the error that users of torch see; its ``__cause__`` is netsum's own.

        `error`: of the collective. Errors that are not netsum's are returned unchanged.
        """
        if not isinstance(error, NetsumError):
            return error
        if isinstance(error, SumOverflowError):
            reason = (
                f"{error.elements} of the sums do not fit the type: convert to a wider one before the call"
            )
            return backend_error(what, reason, error)
        # The result is wrong at this rank alone: the other ranks have their results.
        if isinstance(error, ArrayError | VerificationError):
            return backend_error(what, str(error), error)
        ends = isinstance(error, ClosedCommunicatorError)
        # A message concerns two ranks: the others of the group go on, as the workers of a parameter server do.
        of_all = not isinstance(error, GlooError) or error.collective
        if isinstance(error, GlooError):
            # A connection breaks at once, and who has left is known later.
            ends = error.timed_out or (error.cut_off and self._departed.wait(DEPARTURE_S))
        gone = bool(self._left or self._end)
        if ends and (self._destroyed or (not gone and not isinstance(error, GlooError))):
            return backend_error(what, "the process group was destroyed before this was done", error)
        if gone and (ends or isinstance(error, JoinError)):
            error = PeerError(self._departure())
        elif isinstance(error, BrokenCommunicatorError):
            return backend_error(what, f"this process group failed before: {self._first}", error)
        reason = self._reason(what, error)
        if not of_all:
            return backend_error(what, reason, error)
        self._first = self._first or f"{what}: {reason}"
        return backend_error(what, f"{reason}. {_AFTERWARDS}", error)

    def _reason(self, what: str, error: NetsumError) -> str:
        if isinstance(error, MissingWorkersError | AbsentWorkersError):
            missing = self._names(error.missing)
            return f"{missing} did not take part before the timeout of {self._timeout_s:g} s"
        if isinstance(error, MismatchError):
            return f"the ranks do not agree on this collective; {self._who_called_what(what)}"
        if isinstance(error, GlooError):
            reason = f"Gloo failed at rank {self._ranks[self._rank]}: {error}"
            return (
                f"{reason}; {self._who_called_what(what)}" if error.timed_out and error.collective else reason
            )
        return str(error)

    def _departure(self) -> str:
        if self._end:
            return self._end
        return f"{self._names(sorted(self._left))} left before this was done"

    @functools.cached_property
    def _own_store(self) -> dist.Store:
        """The group's store by a connection of its own, as another thread may be waiting for something on the group's."""
        try:
            return self._store.clone()
        except RuntimeError:  # Some kinds of store cannot be cloned.
            return self._store

    def _who_called_what(self, what: str) -> str:
        """Write the call of this rank into the store, and read those of the other ranks."""
        callers: dict[str, list[int]] = {what: [self._rank]}
        store = self._own_store
        with contextlib.suppress(RuntimeError):
            store.set(str(self._rank), what)
        until = time.monotonic() + EXCHANGE_S
        for other in range(len(self._ranks)):
            if other == self._rank:
                continue
            said = "something else, or nothing yet"
            with contextlib.suppress(RuntimeError):
                store.wait([str(other)], timedelta(seconds=max(0.001, until - time.monotonic())))
                said = store.get(str(other)).decode()
            callers.setdefault(said, []).append(other)
        in_order = sorted(callers.items(), key=lambda item: min(item[1]))
        return "; ".join(f"{self._names(sorted(members))} called {said}" for said, members in in_order)

    def _names(self, worker_ids: Sequence[int]) -> str:
        names = [str(self._ranks[worker_id]) for worker_id in worker_ids]
        return f"rank {names[0]}" if len(names) == 1 else f"ranks {', '.join(names[:-1])} and {names[-1]}"


def backend_error(what: str, reason: str, cause: BaseException) -> BaseException:
    """Return an error of the type that torch's users expect of a backend."""
    shown: BaseException = dist.DistBackendError(f"{what}: {reason}")
    shown.__cause__ = cause
    return shown
