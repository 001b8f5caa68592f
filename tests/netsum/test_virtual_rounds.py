"""Rounds with a quorum in virtual time: who contributes, who comes late, and when a round ends on which links."""

from pathlib import Path
from typing import Any

import pytest

from tests.virtual.network import NetworkOf, StarLinks, UniformLinks, simulate_collectives
from tests.virtual.timeline import DeadlockError, Event, replay

WORKERS, QUORUM, ROUNDS = 4, 3, 12
STEP_S = 0.01


def links(seconds: float) -> StarLinks:
    """A star on which a round of one packet takes this time, and a collective none."""
    of_it = {(1024, WORKERS, 0): 0.0, (1024, WORKERS, QUORUM): seconds, (1024, 3, 2): seconds}
    return StarLinks(NetworkOf(10**8, 200), of_it)


def round_of(number: int, contributors: list[int], ahead: int = 32) -> Event:
    return ["round", number, contributors, 8, ahead]


def test_a_round_begins_with_its_last_member_and_late_workers_get_its_end() -> None:
    first: list[Event] = [["compute", 1.0], round_of(0, [0, 1]), ["mark", 0]]
    second: list[Event] = [["compute", 3.0], round_of(0, [0, 1]), ["mark", 1]]
    during: list[Event] = [["compute", 3.2], round_of(0, [0, 1]), ["mark", 2]]
    after: list[Event] = [["compute", 9.0], round_of(0, [0, 1]), ["mark", 2]]
    assert replay([first, second, during], 3, links(0.5)) == {0: 3.5, 1: 3.5, 2: 3.5}
    assert replay([first, second, after], 3, links(0.5)) == {0: 3.5, 1: 3.5, 2: 9.0}


def test_a_worker_that_is_no_member_does_not_begin_a_round() -> None:
    early: list[Event] = [round_of(0, [0, 1]), ["mark", 2]]
    members: list[list[Event]] = [[["compute", 2.0 + each], round_of(0, [0, 1])] for each in range(2)]
    assert replay([*members, early], 3, links(0.5)) == {2: 3.5}


def test_a_round_begins_with_the_arrays_of_members_that_have_gone_on() -> None:
    early: list[Event] = [["offer", 0, [0, 1], 8, 32], ["compute", 9.0], round_of(0, [0, 1]), ["mark", 0]]
    late: list[Event] = [
        ["compute", 2.0],
        ["offer", 0, [0, 1], 8, 32],
        ["compute", 4.0],
        round_of(0, [0, 1]),
        ["mark", 1],
    ]
    waits: list[Event] = [round_of(0, [0, 1]), ["mark", 2]]
    assert replay([early, late, waits], 3, links(0.5)) == {0: 9.0, 1: 6.0, 2: 2.5}


def test_no_round_begins_while_a_worker_is_too_many_results_behind() -> None:
    members: list[list[Event]] = [
        [step for number in range(3) for step in (["compute", 1.0], round_of(number, [0, 1], 2))]
        for _ in range(2)
    ]
    members[0].append(["mark", 0])
    slow: list[Event] = [["compute", 10.0], round_of(1, [0, 1], 2)]
    # Round 2 begins when the slow worker takes the results of rounds 0 and 1.
    assert replay([*members, slow], 3, links(0.5)) == {0: 10.5}


def test_a_round_without_one_of_its_members_is_named() -> None:
    with pytest.raises(DeadlockError, match=r"host 0: \['round', 0, \[0, 1\], 8, 32\]"):
        replay([[round_of(0, [0, 1])], [["compute", 1.0]]], 2, UniformLinks())


def test_a_round_takes_a_way_to_the_switch_and_back_longer_than_an_all_reduce(tmp_path: Path) -> None:
    network = NetworkOf(10**9, 1000)
    found = simulate_collectives([network], [(8192, 3, 0), (8192, 3, 2)], tmp_path)[network]
    # The round trip is that between two hosts.
    assert 0.5e-3 < found[8192, 3, 2] - found[8192, 3, 0] < 0.55e-3


def train(slowest: float = 1.0, at: Any = None, ahead: int = 32) -> tuple[list[dict[str, Any]], Any]:
    """Train a linear model with backup workers, the last of which is slower."""
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")
    import netsum
    from tests.host_agent.strategies import tasks
    from tests.virtual.group import run_workers

    def body(rank: int, group: Any, world: Any) -> dict[str, Any]:
        model = tasks.linear_model(rank + 1)
        inputs, targets = tasks.rows(rank)
        optimizer = torch.optim.SGD(model.parameters(), 0.02)
        options = {"communicator": group.communicator(QUORUM, seed=3), "rounds": ROUNDS, "ahead": ahead}
        s: Any = netsum.strategy("backup", model, optimizer, group=group, **options)
        computed = 0
        with s:
            for number in s.training():
                assert number == s.steps
                with s.step():
                    computed += 1
                    world.compute(STEP_S * (slowest if rank == WORKERS - 1 else 1))
                    tasks.mean_square(model, inputs, targets).backward()
                world.mark(100 * rank + s.steps)
        assert s.contributed + s.late == computed
        return {"steps": s.steps, "contributed": s.contributed, "late": s.late, "model": s.vector().tolist()}

    return run_workers(WORKERS, body, at)


@pytest.mark.torch
def test_members_are_the_same_at_every_worker_and_drawn_among_those_that_are_equally_fast() -> None:
    results, world = train()
    assert [result["model"] for result in results] == [results[0]["model"]] * WORKERS
    assert [result["steps"] for result in results] == [ROUNDS] * WORKERS
    assert sum(result["contributed"] for result in results) == QUORUM * ROUNDS
    assert all(0 < result["late"] < ROUNDS for result in results), "no worker is left out always"
    members = [
        {event[1]: event[2] for event in events if event[0] == "round"} for events in world.events[:WORKERS]
    ]
    assert members == [members[0]] * WORKERS
    assert all(len(each) == QUORUM for each in members[0].values())
    again, other = train()
    assert (again, other.events) == (results, world.events)


@pytest.mark.torch
def test_a_slow_worker_delays_no_other_and_takes_the_same_steps() -> None:
    results, world = train(slowest=4.5, at=links(0.002))
    marks = world.timeline.marks
    assert marks[ROUNDS] == pytest.approx(ROUNDS * (STEP_S + 0.002))
    assert [result["model"] for result in results] == [results[0]["model"]] * WORKERS
    slow = results[-1]
    assert (slow["steps"], slow["contributed"]) == (ROUNDS, 0)
    assert slow["late"] < ROUNDS / 2
    assert [result["contributed"] for result in results[:-1]] == [ROUNDS] * QUORUM


@pytest.mark.torch
def test_a_worker_that_is_ahead_results_behind_is_waited_for() -> None:
    _, world = train(slowest=50, at=links(0.002), ahead=4)
    # The fifth round waits for the slow worker to take the first four.
    assert world.timeline.marks[4] == pytest.approx(4 * (STEP_S + 0.002))
    assert world.timeline.marks[5] == pytest.approx(50 * STEP_S + 0.002)


@pytest.mark.torch
def test_its_events_give_its_times_on_other_links() -> None:
    _, world = train(slowest=4.5, at=links(0.002))
    assert replay(world.events, WORKERS, links(0.002)) == world.timeline.marks
    assert replay(world.events, WORKERS, links(0.03))[ROUNDS] == pytest.approx(ROUNDS * (STEP_S + 0.03))


@pytest.mark.torch
def test_the_mean_is_that_of_the_members() -> None:
    pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")
    import numpy as np

    from tests.virtual.group import run_workers

    def body(rank: int, group: Any, world: Any) -> list[Any]:
        rounds = group.communicator(2).rounds(2, (2,), np.float32)
        found = []
        while not rounds.done:
            world.compute([1.0, 2.0, 5.0][rank])
            assert rounds.behind == (2 if rank == 2 else 0)
            rounds.offer(np.full(2, 10.0**rank * (rounds.number + 1), np.float32))
            found += [(each.ranks, each.value.tolist()) for each in rounds.take()]
        return found

    results, _ = run_workers(3, body)
    assert results == [[((0, 1), [5.5, 5.5]), ((0, 1), [11.0, 11.0])]] * 3


@pytest.mark.torch
def test_misuse_is_an_error() -> None:
    pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")
    import numpy as np

    from host_agent.errors import MisuseError
    from tests.virtual.group import run_workers

    def body(rank: int, group: Any, world: Any) -> None:
        with pytest.raises(MisuseError, match="a quorum is 1 to 2, the job's workers, not 3"):
            group.communicator(3)
        rounds = group.communicator(2).rounds(1, (1,), np.float32)
        with pytest.raises(MisuseError, match="expected a quorum of 2, as at the other workers, not 1"):
            group.communicator(1)
        rounds.offer([1.0])
        rounds.take()
        with pytest.raises(MisuseError, match="all 1 rounds have ended"):
            rounds.offer([1.0])
        with pytest.raises(MisuseError, match="all 1 rounds have ended"):
            rounds.take()

    run_workers(2, body)
