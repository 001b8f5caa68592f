"""The boundary of a move: the collective up to which every worker can go."""

from controller.moves import Move, MoveStep


def test_the_boundary_is_what_the_foremost_worker_has_begun() -> None:
    move = Move(slots=2)
    assert move.update([0, 1, 2], 0, begun=3, ended=3) is MoveStep.WAIT
    assert move.update([0, 1, 2], 1, begun=5, ended=4) is MoveStep.WAIT
    assert move.until is None
    assert move.update([0, 1, 2], 2, begun=4, ended=4) is MoveStep.HOLD
    assert move.missing([0, 1, 2]) == [0, 1, 2]
    assert move.until == 5
    assert move.update([0, 1, 2], 0, begun=5, ended=5) is MoveStep.WAIT
    assert move.last
    assert move.update([0, 1, 2], 2, begun=5, ended=5) is MoveStep.WAIT
    assert move.update([0, 1, 2], 1, begun=5, ended=5) is MoveStep.CARRY_OUT


def test_workers_with_nothing_under_way_move_at_once() -> None:
    move = Move(slots=2)
    assert move.update([0, 1], 0, begun=7, ended=7) is MoveStep.WAIT
    assert move.update([0, 1], 1, begun=7, ended=7) is MoveStep.CARRY_OUT
