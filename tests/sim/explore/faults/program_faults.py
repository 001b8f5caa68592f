"""Faults of the P4 program: its change, its scenarios, and the reason if it is harmless."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from sim.explore.scenario import BlockPass, ExplorerScenario
from tests.sim.explore.faults.fault import (
    DEATH,
    DISAGREEMENT,
    EPOCHS,
    FIVE,
    HEADER_ONLY,
    LOWER_EPOCH,
    ONE_SUM,
    SUMS,
    UNEQUAL,
    UNEQUAL_TWICE,
    VERSIONS,
    WRAP,
    Fault,
)
from tests.sim.explore.faults.program import Program, binary, constant, lines

__all__ = ["PROGRAM_FAULTS"]


def _on(*pieces: str, taken: bool) -> Callable[[Program], None]:
    return lambda program: program.always(program.branch(*pieces), taken)


def _without(action: str, primitive: str, *more: str) -> Callable[[Program], None]:
    return lambda program: program.drop(program.action(action, *more), primitive)


def _one_of(which: int, *pieces: str, taken: bool) -> Callable[[Program], None]:
    return lambda program: program.always(program.branches(*pieces)[which], taken)


def _go(piece: str, way: str, *target: str) -> Callable[[Program], None]:
    """Redirect a way out of a branch to the table that sets an outcome or a step."""

    def change(program: Program) -> None:
        program.branch(piece)[way] = program.table_of(program.action(*target))

    return change


def _one_version(program: Program) -> None:
    for action in program.document["actions"]:
        if action["name"].endswith(".admit"):
            for primitive in action["primitives"]:
                if "_admission_index" in str(primitive["parameters"][0]):
                    value = primitive["parameters"][1]["value"]
                    primitive["parameters"][1]["value"] = binary("&", value, constant(0xFFFE))


def _in_lanes(action: str, *changes: tuple[str, str]) -> Callable[[Program], None]:
    """Replace pieces of the operations on all lanes, as JSON."""

    def change(program: Program) -> None:
        found = next(each for each in program.document["actions"] if each["name"].endswith(action))
        text = json.dumps(found["primitives"])
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        found["primitives"] = json.loads(text)

    return change


def _length_kept(program: Program) -> None:
    cut = [a for a in program.document["actions"] if a["name"].startswith("header_only")]
    program.drop(next(a for a in cut if "ipv4.total_bytes" in "".join(lines(a))), "ipv4.total_bytes")


def _unsigned_age(program: Program) -> None:
    chunk = {"type": "field", "value": ["scalars", "slot_chunk_1"]}
    asked = {"type": "field", "value": ["netsum", "chunk"]}
    program.branch("slot_age >>")["expression"] = {"type": "expression", "value": binary("<", asked, chunk)}


def _first_packets_chunk(program: Program) -> None:
    status = program.action("assign status.slot_chunk")
    primitive = program.primitive(status, "assign status.slot_chunk")
    primitive["parameters"][1] = {"type": "field", "value": ["netsum", "chunk"]}


def _no_worker_seen(program: Program) -> None:
    primitive = program.primitive(program.action("assign status.seen"), "assign status.seen")
    primitive["parameters"][1] = constant(0)


_ADDED: Final = "register_write NetsumIngress.slot.slot_seen"
_IS_FULL: Final = "^(scalars.slot_seen == scalars.target_metadata_t._shared_admission_full_mask"
_OTHER_COLLECTIVE: Final = "^(scalars.slot_collective !="
_NEWER: Final = "assign scalars.slot_marks 0x00"
_OUTCOME: Final = "_outcome15 0x"

PROGRAM_FAULTS: Final = (
    Fault(
        "switchml",
        "SwitchML's published protocol, a P4 program of its own: version bit and count, no tags",
        (VERSIONS,),
        source="switchml",
    ),
    Fault(
        "stale-accepted",
        "a packet older than the slot is taken for a new one",
        (FIVE,),
        _on("slot_age >>", taken=False),
    ),
    Fault(
        "stale-answered",
        "a slot that has moved on answers an old packet with what it holds",
        (SUMS, FIVE),
        _go("slot_age >>", "true_next", _OUTCOME + "0a", "slot_complete"),
        harmless="a slot moves on only when every worker has the old RESULT; another one is a duplicate",
    ),
    Fault(
        "seen-skipped",
        "a worker's bit is not tested: duplicates are added",
        (ONE_SUM,),
        _one_of(1, "slot_seen &", taken=True),  # the other one is for slots of a quorum
    ),
    Fault(
        "seen-not-kept",
        "a worker's bit is not kept",
        (ONE_SUM,),
        _without(_ADDED, "register_write NetsumIngress.slot.slot_seen"),
    ),
    Fault(
        "seen-not-cleared",
        "the bits of the older chunk count for the newer one",
        (SUMS,),
        _without(_NEWER, "assign scalars.slot_seen"),
    ),
    Fault(
        "chunk-not-kept",
        "a slot does not keep its chunk",
        (SUMS,),
        _without(_ADDED, "register_write NetsumIngress.slot.slot_chunk"),
    ),
    Fault(
        "lanes-not-cleared",
        "lanes of a newer chunk are added to those of the older one",
        (SUMS,),
        _without(_NEWER, "assign scalars.slot_marks"),
    ),
    Fault(
        "exponent-not-cleared",
        "the exponent of the older chunk counts for the newer one",
        (UNEQUAL_TWICE,),
        _without(_NEWER, "assign scalars.slot_exponent"),
    ),
    Fault(
        "epoch-not-compared",
        "a slot of an older epoch is taken for this one's",
        (EPOCHS,),
        _on("slot_epoch", taken=False),
    ),
    Fault(
        "epoch-smaller",
        "a slot of an epoch with a higher number is taken for this one's",
        (LOWER_EPOCH,),
        lambda program: program.branch("slot_epoch")["expression"]["value"].update(op="<"),
    ),
    Fault(
        "length-kept",
        "a header-only RESULT keeps the IPv4 length of one with lanes",
        (HEADER_ONLY,),
        _length_kept,
    ),
    Fault(
        "epoch-not-kept",
        "a slot does not keep its epoch",
        (ONE_SUM,),
        _without(_ADDED, "register_write NetsumIngress.slot.slot_epoch"),
    ),
    Fault(
        "complete-too-early",
        "the first contribution completes a slot",
        (ONE_SUM,),
        _on("slot_complete) and ( not", taken=True),
    ),
    Fault(
        "answered-too-early",
        "a retransmission is answered although others are missing",
        (ONE_SUM,),
        _on(_IS_FULL, taken=True),
    ),
    Fault(
        "never-answered",
        "the retransmission of a complete slot is not answered",
        (ONE_SUM,),
        _on(_IS_FULL, taken=False),
    ),
    Fault(
        "first-lanes-added",
        "the first lanes are added to what the slot holds",
        (SUMS,),
        _on("^((scalars.slot_marks & 0x01) == 0x00)$", taken=False),
    ),
    Fault(
        "collective-not-compared",
        "different collectives are added",
        (DISAGREEMENT,),
        _one_of(1, _OTHER_COLLECTIVE, taken=False),
    ),
    Fault(
        "dispute-not-kept",
        "a mismatch is sent once and forgotten",
        (DISAGREEMENT,),
        _without("slot_collective 0xffffffff", "slot_collective 0xffffffff"),
        harmless="a worker with a mismatch contributes eight times more, and each of these is answered with a mismatch",
    ),
    Fault(
        "probe-mismatch-unanswered",
        "a PROBE is not answered with a mismatch",
        (DISAGREEMENT,),
        _one_of(0, _OTHER_COLLECTIVE, taken=False),
        harmless="the STATUS says that the contribution is missing, and sending it again brings the MISMATCH",
    ),
    Fault(
        "probe-adds",
        "a PROBE counts as a contribution",
        (ONE_SUM,),
        _one_of(0, "^(netsum.kind == 0x03", taken=False),
    ),
    Fault(
        "status-of-the-asker",
        "a STATUS repeats the asker's chunk in place of the slot's",
        (SUMS,),
        _first_packets_chunk,
        harmless="what is older in a slot is complete, and a worker sends again to a full slot as to one without its part",
    ),
    Fault(
        "status-sees-none", "a STATUS says that no worker has contributed", (ONE_SUM, DEATH), _no_worker_seen
    ),
    Fault("one-version", "both pool versions of a slot are one", (SUMS,), _one_version),
    Fault("unsigned-age", "chunk numbers are compared without regard to their wrap", (WRAP,), _unsigned_age),
    Fault(
        "exponent-first",
        "the exponent of a slot is that of its first contribution",
        (UNEQUAL,),
        _on("^(netsum.exponent >", taken=False),
    ),
    Fault(
        "results-to-one",
        "a RESULT goes to the worker that completed the slot alone",
        (ONE_SUM,),
        _on("0x08) or", "0x06)", taken=False),
        harmless="the others ask and are answered: only time is lost",
    ),
    Fault(
        "all-results-header-only",
        "every worker gets a header-only RESULT",
        (HEADER_ONLY,),
        _on("slot_marks & 0x01) == 0x00) or", taken=True),
    ),
    Fault(
        "header-only-not-cleared",
        "who needs no lanes of the older chunk gets none of the newer one",
        (HEADER_ONLY,),
        _without(_NEWER, "_header_only"),
        harmless="the worker asks, and the answer to its retransmission has the lanes",
    ),
    Fault(
        "sums-wrap",
        "sums do not stay at the limits of int32",
        (ExplorerScenario("large values", rounds=(BlockPass("saturating"),)),),
        _in_lanes("lanes.add_all", ('"sat_cast"', '"two_comp_mod"')),
    ),
    Fault(
        "maximum-unsigned",
        "the maximum is that of numbers without sign",
        (ExplorerScenario("maxima", rounds=(BlockPass("max"),)),),
        _in_lanes("lanes.max_all", ('"two_comp_mod"', '"&"'), ('"0x20"', '"0xffffffff"')),
    ),
)
