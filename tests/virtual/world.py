"""Workers as threads of this process of which one runs at a time, in the order of virtual time."""

import contextlib
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import torch

from tests.virtual.timeline import Event, Links, Timeline

Result = TypeVar("Result")


class _Stopped(BaseException):
    """Another activity has failed."""


class VirtualWorld:
    """A clock that the threads of several workers share.

    Results depend on the workers' computing and the links alone: a thread runs until its next event, then the one whose
    virtual time is the earliest. Only `compute` and communication take virtual time.
    """

    def __init__(self, workers: int, links: Links) -> None:
        self.workers = workers
        self.timeline = Timeline(links, workers)
        # Events of each activity, in the order of time; `tests.virtual.timeline.replay` takes them.
        self.events: list[list[Event]] = [[] for _ in range(workers)]
        # A semaphore of `threading` is Python code, which an interruption can leave with its lock in the wrong state.
        self._turns: list[SimpleQueue[None]] = [SimpleQueue() for _ in range(workers)]
        self._main: SimpleQueue[None] = SimpleQueue()
        self._activity = threading.local()
        self._threads: list[threading.Thread] = []
        self._fault: BaseException | None = None
        self.conditions = 0

    def run(self, body: Callable[[int], Result]) -> list[Result]:
        """Run `body(rank)` at each worker, and return the results.

        Raises BaseException: the error of the first worker that failed, or an interruption. All threads have ended then.
        """
        results: dict[int, Result] = {}

        def work(rank: int) -> None:
            results[rank] = body(rank)

        try:
            for rank in range(self.workers):
                self._start_thread(rank, work, (rank,))
            self._hand_over()
            self._await_end()
        except BaseException as fault:
            self._fault = fault
        if self._fault is not None:
            self._stop()
        for thread in self._threads:
            thread.join()
        if self._fault is not None:
            raise self._fault
        return [results[rank] for rank in range(self.workers)]

    def _await_end(self) -> None:
        # A signal that arrives just before the wait begins does not end the wait, so the wait is short.
        while True:
            with contextlib.suppress(Empty):
                return self._main.get(timeout=0.1)

    @property
    def activity(self) -> int:
        """Number of the calling thread's activity."""
        number: int = self._activity.number
        return number

    @property
    def now(self) -> float:
        """The calling thread's time, in seconds."""
        return self.timeline.now[self.activity]

    def compute(self, seconds: float) -> None:
        """Let the calling thread compute for this time."""
        self.do(["compute", seconds])

    def mark(self, number: int) -> None:
        """Note the calling thread's time."""
        self.do(["mark", number])

    def do(self, event: Event) -> None:
        """Submit an event that takes virtual time, and return when it is over."""
        activity = self.activity
        self.events[activity].append(event)
        self.timeline.submit(activity, event)
        self._pass_on(activity)

    def start(self, target: Callable[..., Any], arguments: tuple[Any, ...]) -> int:
        """Start another thread of the calling thread's worker, and return its number."""
        activity = len(self.events)
        self.events.append([])
        self._turns.append(SimpleQueue())
        self._start_thread(activity, target, arguments)
        self.do(["start", activity])
        return activity

    def _start_thread(self, activity: int, target: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        def run() -> None:
            self._activity.number = activity
            torch.set_num_threads(1)  # A setting of each thread.
            try:
                self._await_turn(activity)
                target(*arguments)
                self.timeline.end(activity)
                self._hand_over()
            except _Stopped:
                pass
            except BaseException as fault:
                self._fault = self._fault or fault
                self._main.put(None)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _pass_on(self, activity: int) -> None:
        following = self.timeline.turn()
        if following == activity and self._fault is None:
            return
        self._wake(following)
        self._await_turn(activity)

    def _hand_over(self) -> None:
        self._wake(self.timeline.turn())

    def _wake(self, activity: int | None) -> None:
        (self._main if activity is None else self._turns[activity]).put(None)

    def _await_turn(self, activity: int) -> None:
        if self._fault is None:
            self._turns[activity].get()
        if self._fault is not None:
            raise _Stopped

    def _stop(self) -> None:
        for turn in self._turns:
            turn.put(None)


class Threads:
    """`threading` as far as strategies use it, in virtual time."""

    def __init__(self, world: VirtualWorld) -> None:
        self._world = world

    def Thread(
        self, target: Callable[..., Any], args: tuple[Any, ...] = (), daemon: bool = True
    ) -> "_Thread":  # As in threading.
        """Return a thread; it is not started."""
        return _Thread(self._world, target, args)

    def Condition(self) -> "_Condition":  # As in threading.
        """Return a condition."""
        return _Condition(self._world)


class _Thread:
    def __init__(self, world: VirtualWorld, target: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._world, self._target, self._arguments = world, target, arguments
        self._activity = -1

    def start(self) -> None:
        self._activity = self._world.start(self._target, self._arguments)

    def join(self) -> None:
        self._world.do(["join", self._activity])


class _Condition:
    """A condition whose lock does nothing: one thread runs at a time, and none waits while it holds the lock."""

    def __init__(self, world: VirtualWorld) -> None:
        self._world = world
        self._name = world.conditions
        world.conditions += 1

    def __enter__(self) -> "_Condition":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def notify_all(self) -> None:
        self._world.do(["notify", self._name])

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until the predicate holds; a wait without end is a `DeadlockError`, so `timeout` is not needed."""
        while not predicate():
            self._world.do(["wait", self._name, self._world.timeline.notified(self._name) + 1])
        return True
