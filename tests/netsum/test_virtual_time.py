"""Workers in virtual time: clocks, what strategies make of them, and the same events on other links."""

import itertools
import signal
import threading
from typing import Any

import pytest

from tests.virtual.network import NetworkOf, StarLinks, UniformLinks, payload_of
from tests.virtual.timeline import DeadlockError, Event, Timeline, replay

MBIT = 10**6


def star(seconds: float, rate_bps: int = 100 * MBIT, rtt_us: float = 4000) -> StarLinks:
    """A star on which an all-reduce of one packet takes this time among any number of workers."""
    return StarLinks(NetworkOf(rate_bps, rtt_us), {(1024, workers, 0): seconds for workers in range(1, 9)})


def test_a_collective_begins_with_the_last_and_ends_for_all_at_once() -> None:
    slow: list[Event] = [["compute", 3.0], ["meet", [0, 1], "sum", 8], ["mark", 0]]
    fast: list[Event] = [["compute", 1.0], ["meet", [0, 1], "sum", 8], ["mark", 1]]
    assert replay([slow, fast], 2, star(0.5)) == {0: 3.5, 1: 3.5}


def test_a_message_takes_latency_and_the_rate_and_waits_for_those_before_it() -> None:
    wire = 8 * (1448 + 66 + 24) / (100 * MBIT)
    sender: list[Event] = [["send", 1, 0, 1448], ["mark", 0], ["send", 1, 0, 1448]]
    receiver: list[Event] = [["receive", 0, 0], ["mark", 1], ["receive", 0, 0], ["mark", 2]]
    marks = replay([sender, receiver], 2, star(0))
    # Two links of 1 ms each, and the switch sends a segment on when it has it whole.
    assert marks == pytest.approx({0: wire, 1: 2 * wire + 2e-3, 2: 3 * wire + 2e-3})


def test_messages_of_several_hosts_share_the_link_of_their_receiver() -> None:
    wire = 8 * (1448 + 66 + 24) / (100 * MBIT)
    senders: list[list[Event]] = [[["send", 2, 0, 1448]] for _ in range(2)]
    receiver: list[Event] = [["receive", 0, 0], ["receive", 1, 0], ["mark", 0]]
    assert replay([*senders, receiver], 3, star(0))[0] == pytest.approx(3 * wire + 2e-3)


def test_a_long_message_is_passed_on_while_it_comes() -> None:
    size = 100 * 1448
    wire = 8 * 100 * (1448 + 66 + 24) / (100 * MBIT)
    marks = replay([[["send", 1, 0, size]], [["receive", 0, 0], ["mark", 0]]], 2, star(0))
    assert marks[0] == pytest.approx(1.01 * wire + 2e-3)


def test_a_wait_that_was_notified_before_it_began_does_not_wait() -> None:
    notifier: list[Event] = [["notify", 0], ["compute", 9.0]]
    late: list[Event] = [["compute", 1.0], ["wait", 0, 1], ["mark", 0]]
    early: list[Event] = [["wait", 0, 1], ["mark", 1]]
    assert replay([notifier, late, early], 3, UniformLinks()) == {0: 1.0, 1: 0.0}


def test_activities_that_all_wait_are_named() -> None:
    with pytest.raises(DeadlockError, match=r"host 1: \['receive', 0, 7\]"):
        replay([[["compute", 1.0]], [["receive", 0, 7]]], 2, UniformLinks())


def test_different_collectives_at_once_are_an_error() -> None:
    timeline = Timeline(UniformLinks(), 2)
    timeline.submit(timeline.turn() or 0, ["meet", [0, 1], "sum", 8])
    with pytest.raises(DeadlockError, match="disagree"):
        timeline.submit(timeline.turn() or 1, ["meet", [0, 1], "gather", 8])


def test_workers_gather_by_broadcasts() -> None:
    assert payload_of("gather", 1000, 4) == 4 * 1024
    assert payload_of("sum", 1025, 4) == 2 * 1024
    assert payload_of("broadcast", 0, 4) == 1024


OPTIONS: dict[str, dict[str, Any]] = {
    "admm": {"every": 3},
    "codistillation": {"every": 3},
    "diloco": {"sync_every": 3},
    "downpour": {},
    "dynamic-averaging": {"threshold": 0.05},
    "easgd": {"every": 2},
    "fedavg": {"samples": 5},
    "hierarchical": {"every": 2, "between": 2},
    "local-sgd": {"sync_every": 3},
    "stale-synchronous": {"bound": 1},
    "synchronous": {},
}


def train(name: str, links: Any, slowest: float = 1.0) -> tuple[list[dict[str, Any]], Any]:
    """Train a linear model in virtual time at four hosts, the last of which is slower."""
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")
    import netsum
    from tests.host_agent.strategies import tasks
    from tests.virtual.group import run_workers

    def body(rank: int, group: Any, world: Any) -> dict[str, Any]:
        model = tasks.linear_model(rank + 1)
        inputs, targets = tasks.rows(rank)
        optimizer = torch.optim.SGD(model.parameters(), 0.02)
        s: Any = netsum.strategy(name, model, optimizer, group=group, **OPTIONS[name])
        with s:
            if getattr(s, "serves", False):
                s.serve()
                return {**tasks.summary(s), "staleness": s.staleness}
            rounds = s.rounds(2) if name == "fedavg" else None
            for step in range(6):
                if rounds is not None and step % 3 == 0:
                    next(rounds)
                with s.step():
                    world.compute(0.01 * (slowest if rank == 3 else 1))
                    outputs = model(inputs)
                    s.loss(torch.nn.functional.mse_loss(outputs, targets), inputs, outputs).backward()
                world.mark(100 * rank + step)
            assert rounds is None or next(rounds, None) is None, "the last round is averaged, too"
        return tasks.summary(s)

    return run_workers(4, body, links)


@pytest.mark.torch
@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_each_strategy_runs_alike_every_time_and_its_events_give_its_times(name: str) -> None:
    def links() -> StarLinks:
        sizes = {(1024 * chunks, workers, 0): 1e-3 for chunks in range(1, 9) for workers in (2, 4)}
        return StarLinks(NetworkOf(10 * MBIT, 500), sizes)

    results, world = train(name, links())
    again, other = train(name, links())
    assert results == again
    assert world.events == other.events
    assert replay(world.events, 4, links()) == world.timeline.marks
    ends = [result["model"] for result in results]
    assert len({str(end) for end in ends}) == (2 if name == "codistillation" else 1)


@pytest.mark.torch
def test_a_slow_worker_holds_up_a_synchronous_training_and_not_an_asynchronous_one() -> None:
    # A step takes 10 ms, or 100 ms at the slow worker; communication takes no time.
    _, synchronous = train("synchronous", UniformLinks(), slowest=10)
    assert synchronous.timeline.marks[105] == pytest.approx(0.6)
    _, asynchronous = train("downpour", UniformLinks(), slowest=10)
    assert asynchronous.timeline.marks[105] == pytest.approx(0.06)
    assert asynchronous.timeline.marks[305] == pytest.approx(0.6)


@pytest.mark.torch
def test_no_worker_is_farther_ahead_than_the_bound_in_virtual_time() -> None:
    _, world = train("stale-synchronous", UniformLinks(), slowest=10)
    marks = world.timeline.marks
    for step in range(3, 6):
        # A worker may begin a step when the slowest has ended the step that is bound + 1 before it.
        assert marks[100 + step] >= marks[300 + step - 2] - 1e-9


@pytest.mark.torch
def test_an_error_at_one_worker_ends_all() -> None:
    pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")
    from tests.virtual.group import run_workers

    def body(rank: int, group: Any, world: Any) -> None:
        world.compute(rank)
        if rank == 1:
            raise ValueError("no batch")
        world.compute(9)

    with pytest.raises(ValueError, match="no batch"):
        run_workers(3, body)


@pytest.mark.torch
@pytest.mark.timeout(60)
@pytest.mark.parametrize("workers", [1, 3])
def test_an_interruption_ends_all_workers(workers: int) -> None:
    pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")
    from tests.virtual.group import run_workers

    unwound: list[int] = []
    main = threading.main_thread().ident
    assert main is not None

    def body(rank: int, group: Any, world: Any) -> None:
        try:
            for step in itertools.count():
                world.compute(1.0)
                if step == rank == 0:
                    signal.pthread_kill(main, signal.SIGINT)
        finally:
            unwound.append(rank)

    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        run_workers(workers, body)
    assert sorted(unwound) == list(range(workers))
    assert set(threading.enumerate()) <= before
