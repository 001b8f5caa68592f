"""Faults of the P4 program that only a tree of switches has: its change, and its scenarios."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sim.explore.scenario import BlockPass, ExplorerScenario
from tests.sim.explore.faults.fault import ONE, THREE, TWO, Fault
from tests.sim.explore.faults.program import Program, binary, constant, lines

__all__ = ["TREE_FAULTS"]

_LEAVES: Final = ExplorerScenario("two leaves", rounds=ONE, parents=(0, 0), leaves=(1, 2))
_LEAVES_TWICE: Final = ExplorerScenario(
    "two leaves, two sums", rounds=TWO, parents=(0, 0), leaves=(1, 2), batches=False
)
_LEAVES_THRICE: Final = ExplorerScenario(
    "two leaves, three sums", rounds=THREE, parents=(0, 0), leaves=(1, 2), batches=False
)
_EXPONENTS: Final = ExplorerScenario(
    "two leaves, exponents", rounds=(BlockPass("float32"),), parents=(0, 0), leaves=(1, 2), batches=False
)
_LEAF_OF_TWO: Final = ExplorerScenario(
    "a leaf of two", workers=3, rounds=ONE, parents=(0,), leaves=(0, 1, 1), batches=False
)

_PASSES_UP: Final = "slot_complete) and ((scalars.slot_marks &"
_FIRST_CHILD: Final = "worker_bit7 == 0x00000001"
_NOT_COMPLETE_OR_OTHER: Final = "or (scalars.slot_seen !="
_IS_FINAL: Final = "^((scalars.slot_marks & 0x02) !="
_IS_OLDER: Final = "slot_age >>"
_STATUS_DOWN: Final = "assign scalars.target_metadata_t._shared_outcome15 0x0d"
_LEVEL_DOWN: Final = "assign netsum.level ((scalars.answer_level + 0x01)"
_WITH_LANES = "assign scalars.slot_marks ((scalars.slot_mark | 0x02) | 0x01)"
_WITHOUT_LANES = "assign scalars.slot_marks (scalars.slot_mark | 0x02)"
_KIND: Final = {"type": "field", "value": ["netsum", "kind"]}
_OUTCOME: Final = {"type": "field", "value": ["scalars", "target_metadata_t._shared_outcome15"]}
_RESULT, _PROBED, _PASSED_UP_AGAIN = 2, 4, 11


def _on(piece: str, taken: bool) -> Callable[[Program], None]:
    return lambda program: program.always(program.branch(piece), taken)


def _without(action: str, primitive: str) -> Callable[[Program], None]:
    return lambda program: program.drop(program.action(action), primitive)


def _but_for(program: Program, piece: str, field: object, value: int) -> None:
    """Make a branch that is never taken where a field has a value."""
    branch = program.branch(piece)
    branch["expression"] = binary("and", branch["expression"], binary("!=", field, constant(value)))


def _final_too_early(program: Program) -> None:
    added = program.primitive(
        program.action("register_write NetsumIngress.slot.slot_seen"),
        "register_write NetsumIngress.slot.slot_marks",
    )
    added["parameters"][2] = binary("|", added["parameters"][2], constant(2))


def _exponent_not_kept(program: Program) -> None:
    kept = "assign scalars.slot_exponent netsum.exponent"
    # The first of two is that of a contribution.
    _, taken = (action for action in program.document["actions"] if kept in lines(action))
    program.drop(taken, kept)


def _never_final(program: Program) -> None:
    for action, mark in ((_WITH_LANES, 1), (_WITHOUT_LANES, 0)):
        program.primitive(program.action(action), action)["parameters"][1] = constant(mark)


def _older_result(program: Program) -> None:
    _but_for(program, _IS_OLDER, _KIND, _RESULT)
    program.always(program.branch(_NOT_COMPLETE_OR_OTHER), False)


def _level_not_counted(program: Program) -> None:
    level = program.primitive(program.action(_LEVEL_DOWN), _LEVEL_DOWN)
    level["parameters"][1] = {"type": "field", "value": ["scalars", "answer_level"]}


TREE_FAULTS: Final = (
    Fault(
        "leaf-is-root",
        "a leaf answers its children with its own sum, without its parent",
        (_LEAVES,),
        _on(_PASSES_UP, taken=False),
    ),
    Fault(
        "final-too-early",
        "a leaf marks a slot final when it is complete, without the parent's RESULT",
        (_LEAVES,),
        _final_too_early,
    ),
    Fault(
        "never-final",
        "the parent's RESULT does not make a slot final",
        (_LEAF_OF_TWO,),
        _never_final,
    ),
    Fault(
        "result-not-kept",
        "the parent's RESULT goes to the children, and the slot keeps its own sum",
        (_LEAVES,),
        _without(_WITH_LANES, "assign scalars.slot_step"),
    ),
    Fault(
        "exponent-from-above-not-kept",
        "a slot keeps its own exponent, not that of the parent's RESULT",
        (_EXPONENTS,),
        _exponent_not_kept,
    ),
    Fault(
        "older-result-taken",
        "a RESULT of the parent is taken for what the slot holds, whatever its tag",
        (_LEAVES_THRICE,),
        _older_result,
    ),
    Fault(
        "second-result-taken",
        "a second RESULT of the parent replaces the lanes of a final slot",
        (_LEAVES_TWICE,),
        _on(_IS_FINAL, taken=False),
        harmless="the root makes one RESULT of a chunk: the second has the same lanes as the first",
    ),
    Fault(
        "sent-once",
        "a slot whose sum was sent does not pass retransmissions up",
        (_LEAVES,),
        _on(_FIRST_CHILD, taken=False),
    ),
    Fault(
        "all-children-passed-up",
        "a slot whose sum was sent passes up the retransmissions of all children",
        (_LEAF_OF_TWO,),
        _on(_FIRST_CHILD, taken=True),
        harmless="the parent drops or answers each as a duplicate: it costs packets alone",
    ),
    Fault(
        "own-lanes-passed-up",
        "a retransmission goes up with its own lanes, not those of the slot",
        (_LEAF_OF_TWO,),
        lambda program: _but_for(program, "^(scalars.slot_step == 0x00", _OUTCOME, _PASSED_UP_AGAIN),
    ),
    Fault(
        "probe-not-passed-up",
        "a leaf answers the PROBE about a sum that it has sent",
        (_LEAVES_TWICE, _LEAF_OF_TWO),
        lambda program: _but_for(program, _PASSES_UP, _OUTCOME, _PROBED),
        harmless="the STATUS says that the slot is full, so child 0 sends again, and that goes up",
    ),
    Fault(
        "status-not-passed-down",
        "a STATUS of the parent goes to no child",
        (_LEAVES,),
        _without(_STATUS_DOWN, "is_answer"),
    ),
    Fault(
        "level-not-counted",
        "a STATUS of the parent comes down as if it were of the leaf",
        (_LEAVES,),
        _level_not_counted,
    ),
)
