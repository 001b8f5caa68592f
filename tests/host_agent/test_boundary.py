"""The boundary at which a communicator stops between two collectives."""

from host_agent.boundary import Boundary, Position
from host_agent.wire import Admission

NEXT = Admission(1, 2, 3, 0, 1, 4, 64)


def begun(boundary: Boundary, count: int) -> int:
    return sum(boundary.begin(0) for _ in range(count))


def test_it_goes_on_until_the_limit_and_says_so_once() -> None:
    boundary = Boundary()
    reached: list[Position] = []
    boundary.on_reached = reached.append
    assert begun(boundary, 2) == 2
    boundary.end()
    assert boundary.hold(None) == Position(2, 1)
    assert begun(boundary, 1) == 0
    assert boundary.hold(4) == Position(2, 1)
    assert begun(boundary, 5) == 2
    for _ in range(2):
        boundary.end()
    assert not boundary.move(NEXT), "a collective is under way"
    assert reached == []
    boundary.end()
    assert reached == [Position(4, 4)]


def test_the_next_collective_waits_until_the_epoch_is_entered() -> None:
    boundary = Boundary()
    assert not boundary.move(NEXT), "it was not held"
    boundary.hold(0)
    assert boundary.move(NEXT)
    assert begun(boundary, 1) == 0
    assert boundary.take_move() == NEXT
    assert boundary.take_move() is None
    assert begun(boundary, 1) == 1


def test_a_second_move_before_the_first_is_entered() -> None:
    boundary = Boundary()
    later = Admission(1, 5, 6, 0, 1, 4, 64)
    for admission in (NEXT, later):
        boundary.hold(None)
        assert boundary.move(admission)
    assert boundary.take_move() == later


def test_how_long_a_collective_has_waited() -> None:
    boundary = Boundary()
    boundary.hold(0, (3, 4))
    assert boundary.waited_ns(100) == 0, "none does"
    assert not boundary.begin(100)
    assert not boundary.begin(150)
    assert boundary.waited_ns(300) == 200
    assert boundary.missing == (3, 4)
    boundary.release()
    assert boundary.waited_ns(400) == 0
    assert boundary.begin(500)
