"""Faults that only a job with a quorum has: of the P4 program and of the worker core, and where each is looked for."""

from __future__ import annotations

from typing import Final

from sim.explore.scenario import BlockPass, ExplorerScenario
from tests.sim.explore.faults.fault import Fault
from tests.sim.explore.faults.program import Program

__all__ = ["QUORUM_FAULTS"]

_CALL: Final = (BlockPass("quorum"), BlockPass("contributors"))
_ONE_OF_TWO: Final = ExplorerScenario("one of two", slots=2, rounds=_CALL, quorum=1, batches=False)
_IN_BATCHES: Final = ExplorerScenario("one of two, in batches", slots=2, rounds=_CALL, quorum=1)


def _asker_named(program: Program) -> None:
    actions = [each for each in program.document["actions"] if each["name"].startswith("quorum")]
    (named,) = (
        primitive
        for action in actions
        for primitive in action["primitives"]
        if primitive["parameters"] and primitive["parameters"][0]["value"] == ["status", "seen"]
    )
    bit = next(
        field[0]
        for header in program.document["header_types"]
        for field in header["fields"]
        if field[0].endswith("_admission_worker_bit7")
    )
    named["parameters"][1] = {"type": "field", "value": ["scalars", bit]}


def _late_added(program: Program) -> None:
    program.always(program.branch("slot_added == quorum_0.workers"), False)


QUORUM_FAULTS: Final = (
    Fault(
        "asker-named",
        "the RESULT of a quorum chunk names the worker that it answers, not those that were added",
        (_ONE_OF_TWO,),
        _asker_named,
    ),
    Fault(
        "late-added",
        "a contribution that comes after the quorum is added",
        (_ONE_OF_TWO,),
        _late_added,
    ),
    Fault(
        "contributes-unasked",
        "a worker contributes to a quorum chunk before its array is there",
        (_ONE_OF_TWO,),
        module="departures",
        changes=(
            (
                "    if record.quorum != 0 and record.offered == 0:\n",
                "    if record.quorum > 1 and record.offered == 0:\n",
            ),
        ),
    ),
    Fault(
        "absence-taken-for-loss",
        "a worker whose array is not there takes it for lost, and contributes",
        (_ONE_OF_TWO,),
        module="arrivals",
        changes=(
            (
                "        missing &= record.offered != 0\n",
                "        missing &= record.quorum == 1 or record.offered != 0\n",
            ),
        ),
    ),
    Fault(
        "offer-timer-lost",
        "the timer of a quorum chunk's slot is not armed again when it expires as the worker's array comes",
        (_IN_BATCHES,),
        module="departures",
        changes=(
            (
                "        if slot.loss_time_ns != NEVER:  # its time may have come while the contribution was due\n"
                "            set_loss_time(core, slot, now_ns + repeat_after_ns(core, slot.unanswered))\n",
                "",
            ),
        ),
    ),
)
