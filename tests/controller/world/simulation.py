"""Virtual time, event loops whose ready callbacks run in a seeded order, and threads that run one at a time."""

import asyncio
import contextlib
import hashlib
import heapq
import itertools
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

UNIX_S = 1_800_000_000.0
"""The Unix time at which every world begins, in seconds."""


class Killed(SystemExit):
    """The process ends here. asyncio lets no handler keep an exception of this class."""


class Thread:
    """A thread that runs only while the simulation waits for it."""

    def __init__(self) -> None:
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._work: Callable[[], None] = lambda: None
        self.killed = False
        self.pausing: float | None = None  # How long it pauses now, in s; None: it has done its work.
        threading.Thread(target=self._run, daemon=True).start()

    def begin(self, work: Callable[[], None]) -> None:
        self._work, self.killed = work, False
        self.resume()

    def resume(self) -> None:
        """Let it run to its next pause."""
        self.pausing = None
        self._go.release()
        self._back.acquire()

    def pause(self, seconds: float) -> None:
        """Wait, in this thread, for a time of the simulation."""
        if self.killed:
            raise Killed
        self.pausing = seconds
        self._back.release()
        self._go.acquire()
        if self.killed:
            raise Killed

    def _run(self) -> None:
        while True:
            self._go.acquire()
            with contextlib.suppress(Killed):
                self._work()
            self.pausing = None
            self._back.release()


_idle: list[Thread] = []
"""Threads of worlds that are over."""


class Simulation:
    """The clock, and the queue of future calls.

    `seed`: of all random choices. `mixing`: how often a ready callback runs out of turn, 0 to 1. `busy_s`: mean time that a
    callback takes.
    """

    def __init__(self, seed: str, mixing: float = 0.0, busy_s: float = 0.0) -> None:
        self.now = 0.0
        self.wall = UNIX_S  # The Unix time when `now` is 0; it jumps when clocks are set.
        self.steps = 0
        self.events: deque[str] = deque(maxlen=60)  # The last steps, in words.
        self.faults: list[str] = []
        self.folder = "a new folder"  # Steps do not show the name, which differs from run to run.
        self._seed, self._mixing, self._busy_s = seed, mixing, busy_s
        self._random = Random(f"{seed} order")
        self._due: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._count = itertools.count()
        self._trace = hashlib.blake2b(digest_size=8)
        self.loops: list[Loop] = []
        self.running: Thread | None = None

    def number(self) -> int:
        return next(self._count)

    def chance(self, name: str) -> Random:
        """Return the choices of one part, which do not depend on those of others."""
        return Random(f"{self._seed} {name}")

    def at(self, seconds: float, call: Callable[..., object], *arguments: Any) -> None:
        """Schedule a call after a delay."""
        heapq.heappush(self._due, (self.now + seconds, next(self._count), call, arguments))

    def unix_seconds(self) -> float:
        return self.wall + self.now

    def pause(self, seconds: float) -> None:
        """Let a simulated thread wait."""
        assert self.running is not None
        self.running.pause(seconds)

    def say(self, words: str) -> None:
        words = words.replace(self.folder, "")
        self._trace.update(words.encode())
        self.events.append(f"{self.now:9.3f} s  {words}")

    @property
    def trace(self) -> str:
        """A digest of the order in which everything has happened."""
        return self._trace.hexdigest()

    def step(self) -> bool:
        """Let the next thing happen; return False if there is nothing left."""
        able = [loop for loop in self.loops if loop.turn()]
        happens = bool(self._due) and self._due[0][0] <= self.now
        if not able and not happens:
            times = [loop.next_timer for loop in self.loops if loop.next_timer is not None]
            if self._due:
                times.append(self._due[0][0])
            if not times:
                return False
            self.now = max(self.now, min(times))
            return True
        self.steps += 1
        chosen = self._random.randrange(len(able) + happens) if len(able) + happens > 1 else 0
        if chosen == len(able):
            _, _, call, arguments = heapq.heappop(self._due)
            call(*arguments)
            return True
        out_of_turn = self._mixing and self._random.random() < self._mixing
        able[chosen].run_one(self._random if out_of_turn else None)
        if self._busy_s:
            self.now += self._random.expovariate(1 / self._busy_s)
        return True


class Task(asyncio.Task[Any]):
    """A task with a number, which gives sets of tasks the same order in every run."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], loop: "Loop") -> None:
        self.number = loop.simulation.number()
        super().__init__(coroutine, loop=loop)

    def __hash__(self) -> int:
        return self.number


class Loop(asyncio.BaseEventLoop):
    """The event loop of one process in a simulation."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        super().__init__()
        self.simulation, self.name = simulation, name
        self.on_killed: Callable[[], None] = lambda: None
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self._pools: dict[ThreadPoolExecutor, Pool] = {}
        self.set_exception_handler(self._faulty)
        self.set_task_factory(self._task)  # type: ignore[arg-type]  # it takes no further arguments
        simulation.loops.append(self)

    def time(self) -> float:
        return self.simulation.now

    @property
    def next_timer(self) -> float | None:
        timers: Any = self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0]._cancelled:
            timers[0]._scheduled = False
            heapq.heappop(timers)
        return timers[0].when() if timers else None

    def turn(self) -> bool:
        """Whether a callback is ready, now that timers that are due are."""
        while (when := self.next_timer) is not None and when <= self.simulation.now:
            timer: Any = heapq.heappop(self._scheduled)  # type: ignore[attr-defined]
            timer._scheduled = False
            self._ready.append(timer)  # type: ignore[attr-defined]
        return bool(self._ready)  # type: ignore[attr-defined]

    def run_one(self, chance: Random | None) -> None:
        ready: Any = self._ready  # type: ignore[attr-defined]
        place = chance.randrange(len(ready)) if chance else 0
        handle = ready[place]
        del ready[place]
        if handle._cancelled:
            return
        asyncio._set_running_loop(self)
        try:
            handle._run()
        except Killed:
            self.simulation.say(f"{self.name} is killed in the middle of a step")
            self.on_killed()
        finally:
            asyncio._set_running_loop(None)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *arguments: Any, context: Any = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *arguments, context=context)

    def run_in_executor(self, executor: Any, function: Any, *arguments: Any) -> Any:  # type: ignore[override]
        if executor._shutdown:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future = self.create_future()
        pool = self._pools.setdefault(executor, Pool(self))
        pool.put(lambda: function(*arguments), future)
        return future

    def stop_all(self) -> None:
        """Forget everything that was to run, as the end of a process does."""
        self.simulation.loops.remove(self)
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]
        for pool in self._pools.values():
            pool.kill()
        for task in self.tasks:
            if task.done() and not task.cancelled():
                task.exception()  # Nobody is left to hear of it.
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine: Any = task.get_coro()
            for _ in range(3):  # Handlers of the end may wait once more.
                try:
                    coroutine.close()
                except (RuntimeError, Killed, Exception):  # The coroutine has just been killed.
                    continue
                break
        self.tasks.clear()
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]
        self.close()

    def _task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any]
    ) -> asyncio.Task[Any]:
        task = Task(coroutine, self)
        self.tasks[task] = None
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self.tasks.pop(task, None)
        fault = None if task.cancelled() else task.exception()
        if fault is not None and not isinstance(fault, Killed):
            self.simulation.faults.append(f"{self.name}: a task ended with {fault!r}")

    def _faulty(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if isinstance(context.get("exception"), Killed) or self not in self.simulation.loops:
            return  # Nobody is left to hear of it.
        self.simulation.faults.append(f"{self.name}: {context.get('message')}: {context.get('exception')!r}")

    def _write_to_self(self) -> None:
        """Nothing: no selector sleeps."""


class Pool:
    """The one thread of an executor, which carries out requests in order."""

    def __init__(self, loop: Loop) -> None:
        self._loop, self._simulation = loop, loop.simulation
        self._waiting: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._thread: Thread | None = None

    def put(self, work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        self._waiting.append((work, future))
        if len(self._waiting) == 1:
            self._simulation.at(0.0, self._begin)

    def kill(self) -> None:
        self._waiting.clear()
        if self._thread is not None:
            self._thread.killed = True
            self._run(self._thread.resume)
            self._thread = None

    def _begin(self) -> None:
        if not self._waiting:
            return  # The process has been killed.
        work, future = self._waiting[0]
        thread = self._thread = _idle.pop() if _idle else Thread()
        self._run(lambda: thread.begin(lambda: self._carry_out(work, future)))

    def _carry_out(self, work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        result, fault = None, None
        try:
            result = work()
        except Exception as error:
            fault = error
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_settle, future, result, fault)

    def _run(self, resume: Callable[[], None]) -> None:
        thread = self._simulation.running = self._thread
        assert thread is not None
        resume()
        self._simulation.running = None
        if thread.pausing is not None:
            self._simulation.at(thread.pausing, self._resume, thread)
            return
        _idle.append(thread)
        self._thread = None
        if self._waiting:
            self._waiting.popleft()
        if self._waiting:
            self._simulation.at(0.0, self._begin)

    def _resume(self, thread: Thread) -> None:
        if self._thread is thread:  # Else the process was killed.
            self._run(thread.resume)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
