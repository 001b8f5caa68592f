"""The catalogue: what each fault changes, where it is looked for, and why it is harmless if it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sim.explore.faults.program import Program, binary, constant
from sim.explore.scenario import Round, Scenario

__all__ = ["FAULTS", "Fault"]

_ONE: Final = (Round(),)
_TWO: Final = (Round(), Round())
_THREE: Final = (Round(), Round(), Round())
_SUMS: Final = Scenario("three sums", rounds=_THREE, batches=False)
_FIVE: Final = Scenario("five sums", rounds=_THREE + _TWO, batches=False)
_EXPONENTS: Final = Scenario("exponents", rounds=(Round("int32"),))
_EXPONENTS_TWICE: Final = Scenario("exponents twice", rounds=(Round("int32"), Round("int32")), batches=False)
_HEADERS: Final = Scenario(
    "header-only", rounds=(Round("broadcast"), Round("barrier"), Round("sum")), batches=False
)
_EPOCHS: Final = Scenario("a new epoch", rounds=_ONE, epochs=2)
_WRAP: Final = Scenario("chunk numbers wrap", rounds=_THREE, first_chunk=(1 << 32) - 1, batches=False)
_DISAGREEMENT: Final = Scenario("disagreement", rounds=(Round(agreed=False),))
_DEATH: Final = Scenario("a dead worker", rounds=_TWO, kills=1)
_TWO_SLOTS: Final = Scenario("two slots", slots=2, rounds=_TWO, batches=False)


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes
    ----------
    name, what
        For people.
    scenarios
        Where it is looked for, in order.
    program
        Changes the P4 program.
    source
        Or: a program of `sim/explore/programs` that takes its place.
    module, changes
        Or: changes the text of a module of the worker core: (as it stands, in its place).
    harmless
        Why no schedule of the scenarios violates a guarantee; empty if one must be found.
    """

    name: str
    what: str
    scenarios: tuple[Scenario, ...]
    program: Callable[[Program], None] | None = None
    source: str = ""
    module: str = ""
    changes: tuple[tuple[str, str], ...] = ()
    harmless: str = ""


def _on(*pieces: str, taken: bool) -> Callable[[Program], None]:
    return lambda program: program.always(program.branch(*pieces), taken)


def _without(action: str, primitive: str, *more: str) -> Callable[[Program], None]:
    return lambda program: program.drop(program.action(action, *more), primitive)


def _one_of(which: int, *pieces: str, taken: bool) -> Callable[[Program], None]:
    return lambda program: program.always(program.branches(*pieces)[which], taken)


def _go(piece: str, way: str, target: str) -> Callable[[Program], None]:
    """Redirect a way out of a branch to the table that sets an outcome or a step."""

    def change(program: Program) -> None:
        program.branch(piece)[way] = program.table_of(program.action(target))

    return change


def _one_version(program: Program) -> None:
    for action in program.document["actions"]:
        if action["name"].endswith(".admit"):
            for primitive in action["primitives"]:
                if "_admission_index" in str(primitive["parameters"][0]):
                    value = primitive["parameters"][1]["value"]
                    primitive["parameters"][1]["value"] = binary("&", value, constant(0xFFFE))


def _unsigned_age(program: Program) -> None:
    chunk = {"type": "field", "value": ["scalars", "slot_chunk_1"]}
    asked = {"type": "field", "value": ["netsum", "chunk"]}
    program.branch("slot_age >>")["expression"] = {"type": "expression", "value": binary("<", asked, chunk)}


def _first_packets_chunk(program: Program) -> None:
    status = program.action("assign status.slot_chunk")
    primitive = program.primitive(status, "assign status.slot_chunk")
    primitive["parameters"][1] = {"type": "field", "value": ["netsum", "chunk"]}


def _nobody_seen(program: Program) -> None:
    primitive = program.primitive(program.action("assign status.seen"), "assign status.seen")
    primitive["parameters"][1] = constant(0)


_ADDED: Final = "register_write NetsumIngress.slot.slot_seen"
_IS_FULL: Final = "^(scalars.slot_seen == scalars.metadata_t._admission_full_mask"
_OTHER_COLLECTIVE: Final = "^(scalars.slot_collective !="
_NEWER: Final = "assign scalars.slot_marks 0x00"
_OUTCOME: Final = "_outcome15 0x"

_ONE_SUM: Final = Scenario("a sum", rounds=_ONE)
_VERSIONS: Final = Scenario("four sums", rounds=_TWO + _TWO, batches=False)

PROGRAM_FAULTS: Final = (
    Fault(
        "switchml",
        "SwitchML's published protocol, a P4 program of its own: version bit and count, no tags",
        (_VERSIONS,),
        source="switchml",
    ),
    Fault(
        "stale-accepted",
        "a packet older than the slot is taken for a new one",
        (_FIVE,),
        _on("slot_age >>", taken=False),
    ),
    Fault(
        "stale-answered",
        "a slot that has moved on answers an old packet with what it holds",
        (_SUMS, _FIVE),
        _go("slot_age >>", "true_next", _OUTCOME + "0a"),
        harmless="a slot moves on only when every worker has the old RESULT; another one is a duplicate",
    ),
    Fault(
        "seen-skipped",
        "a worker's bit is not tested: duplicates are added",
        (_ONE_SUM,),
        _on("slot_seen &", taken=True),
    ),
    Fault(
        "seen-not-kept",
        "a worker's bit is not kept",
        (_ONE_SUM,),
        _without(_ADDED, "register_write NetsumIngress.slot.slot_seen"),
    ),
    Fault(
        "seen-not-cleared",
        "the bits of the older chunk count for the newer one",
        (_SUMS,),
        _without(_NEWER, "assign scalars.slot_seen"),
    ),
    Fault(
        "chunk-not-kept",
        "a slot does not keep its chunk",
        (_SUMS,),
        _without(_ADDED, "register_write NetsumIngress.slot.slot_chunk"),
    ),
    Fault(
        "lanes-not-cleared",
        "lanes of a newer chunk are added to those of the older one",
        (_SUMS,),
        _without(_NEWER, "assign scalars.slot_marks"),
    ),
    Fault(
        "exponent-not-cleared",
        "the exponent of the older chunk counts for the newer one",
        (_EXPONENTS, _EXPONENTS_TWICE),
        _without(_NEWER, "assign scalars.slot_exponent"),
    ),
    Fault(
        "epoch-not-compared",
        "a slot of an older epoch is taken for this one's",
        (_EPOCHS,),
        _on("slot_epoch", taken=False),
    ),
    Fault(
        "epoch-not-kept",
        "a slot does not keep its epoch",
        (_ONE_SUM,),
        _without(_ADDED, "register_write NetsumIngress.slot.slot_epoch"),
    ),
    Fault(
        "complete-too-early",
        "the first contribution completes a slot",
        (_ONE_SUM,),
        _on("slot_complete) and ( not", taken=True),
    ),
    Fault(
        "answered-too-early",
        "a retransmission is answered although others are missing",
        (_ONE_SUM,),
        _on(_IS_FULL, taken=True),
    ),
    Fault(
        "never-answered",
        "the retransmission of a complete slot is not answered",
        (_ONE_SUM,),
        _on(_IS_FULL, taken=False),
    ),
    Fault(
        "first-lanes-added",
        "the first lanes are added to what the slot holds",
        (_SUMS,),
        _on("^(scalars.slot_marks == 0x00", taken=False),
    ),
    Fault(
        "collective-not-compared",
        "different collectives are added",
        (_DISAGREEMENT,),
        _one_of(1, _OTHER_COLLECTIVE, taken=False),
    ),
    Fault(
        "dispute-not-kept",
        "a mismatch is told once and forgotten",
        (_DISAGREEMENT,),
        _without("register_write NetsumIngress.slot.slot_collective", "register_write", _OUTCOME + "06"),
        harmless="a worker that is told contributes eight times more, and each of these is told as a mismatch again",
    ),
    Fault(
        "probe-mismatch-not-told",
        "a PROBE is not told that workers disagree",
        (_DISAGREEMENT,),
        _one_of(0, _OTHER_COLLECTIVE, taken=False),
        harmless="the STATUS says that the contribution is missing, and sending it again brings the MISMATCH",
    ),
    Fault(
        "probe-adds",
        "a PROBE counts as a contribution",
        (_ONE_SUM,),
        _one_of(0, "^(netsum.kind == 0x03", taken=False),
    ),
    Fault(
        "status-of-the-asker",
        "a STATUS repeats the asker's chunk in place of the slot's",
        (_SUMS,),
        _first_packets_chunk,
    ),
    Fault(
        "status-sees-nobody", "a STATUS says that nobody has contributed", (_ONE_SUM, _DEATH), _nobody_seen
    ),
    Fault("one-version", "both pool versions of a slot are one", (_SUMS,), _one_version),
    Fault("unsigned-age", "chunk numbers are compared without regard to their wrap", (_WRAP,), _unsigned_age),
    Fault(
        "exponent-first",
        "the exponent of a slot is that of its first contribution",
        (_EXPONENTS,),
        _on("^(netsum.exponent >", taken=False),
    ),
    Fault(
        "results-to-one",
        "a RESULT goes to the worker that completed the slot alone",
        (_ONE_SUM,),
        _on("0x08) or", "0x06)", taken=False),
        harmless="the others ask and are answered: only time is lost",
    ),
)

CORE_FAULTS: Final = (
    Fault(
        "token-not-compared",
        "a RESULT of another epoch is accepted",
        (_EPOCHS,),
        None,
        "",
        "arrivals",
        ((" and token == core.token", ""),),
    ),
    Fault(
        "worker-not-compared",
        "a RESULT for another worker is accepted",
        (_ONE_SUM,),
        None,
        "",
        "arrivals",
        ((" and worker_id == core.worker_id", ""),),
        "the switch addresses each copy to its worker, and all copies carry the same",
    ),
    Fault(
        "chunk-not-compared",
        "a RESULT of an older chunk of the slot is accepted",
        (_SUMS,),
        None,
        "",
        "arrivals",
        (
            (
                "if slot.chunk < 0 or slot.chunk & CHUNK_MASK != chunk:\n        core.stale",
                "if slot.chunk < 0:\n        core.stale",
            ),
        ),
    ),
    Fault(
        "index-not-compared",
        "the pool index of a RESULT is not looked at",
        (_SUMS,),
        None,
        "",
        "arrivals",
        (("    known &= pool_index == pool_index_of(core, chunk)\n", ""),),
        "the chunk number says the same, and is compared",
    ),
    Fault(
        "result-twice",
        "a RESULT that comes again counts again",
        (_TWO_SLOTS, _SUMS),
        None,
        "",
        "arrivals",
        (
            (
                "    if slot.in_flight == 0:\n        core.duplicates += 1\n        return\n    record",
                "    record",
            ),
        ),
    ),
    Fault(
        "collective-not-compared-by-worker",
        "a RESULT of another collective is accepted",
        (_DISAGREEMENT,),
        None,
        "",
        "arrivals",
        (
            (
                "    if op != record.op or fingerprint != record.fingerprint:\n"
                "        core.foreign += 1\n        return\n    index",
                "    index",
            ),
        ),
        "the switch never adds two collectives, so there is no such RESULT",
    ),
    Fault(
        "mismatch-not-heard",
        "a worker does not listen to MISMATCH",
        (_DISAGREEMENT,),
        None,
        "",
        "arrivals",
        (("elif core.failure == FAILURE_NONE:", "elif core.failure != FAILURE_NONE:"),),
    ),
    Fault(
        "missing-not-heard",
        "a worker does not send again what a STATUS says is missing",
        (_ONE_SUM,),
        None,
        "",
        "arrivals",
        (("missing = not held or seen >> core.path_worker[level] & 1 == 0", "missing = False"),),
    ),
    Fault(
        "full-not-heard",
        "a worker does not fetch the RESULT of a slot that is full",
        (_ONE_SUM,),
        None,
        "",
        "arrivals",
        (("full = held and seen == everyone", "full = False"),),
    ),
    Fault(
        "status-order",
        "a STATUS counts although its PROBE left before the last transmission",
        (_ONE_SUM, _TWO_SLOTS),
        None,
        "",
        "arrivals",
        (("        if slot.last_sequence > core.probe_sequence[probe]:\n            return\n", ""),),
        "a needless retransmission costs a packet and changes nothing",
    ),
    Fault(
        "exponent-not-learned",
        "the exponent of a RESULT is not kept",
        (_EXPONENTS,),
        None,
        "",
        "arrivals",
        (
            (
                "        learn_exponent(record.payload, index, exponent)\n",
                "        learn_exponent(record.payload, index, slot.exponent)\n",
            ),
        ),
    ),
    Fault(
        "lost-for-ever",
        "what was sent too often is never sent again",
        (_ONE_SUM,),
        None,
        "",
        "departures",
        (
            ("DUE_AGAIN if slot.lost else DUE_PROBE", "DUE_PROBE"),
            (
                "if slot.due != DUE_PROBE:\n        if slot.due",
                "if slot.due != DUE_PROBE and slot.lost == 0:\n        if slot.due",
            ),
        ),
    ),
    Fault(
        "window-of-one-too-many",
        "a chunk is sent although the slot's last one has no RESULT yet",
        (_SUMS, _TWO_SLOTS),
        None,
        "",
        "departures",
        (("    if slots[slot_of(core, chunk)].in_flight != 0:\n        return False\n", ""),),
    ),
    Fault(
        "dependency-ignored",
        "lanes are sent before all workers' exponent is known",
        (_EXPONENTS, Scenario("exponents on two slots", slots=2, rounds=(Round("int32"),), batches=False)),
        None,
        "",
        "departures",
        (
            (
                "        if needed.in_flight != 0 and needed.chunk == chunk - dependency:\n            return False\n",
                "",
            ),
        ),
    ),
    Fault(
        "wrong-chunk-asked",
        "a PROBE asks for the chunk after",
        (_ONE_SUM,),
        None,
        "",
        "departures",
        (
            (
                "        pool_index_of(core, slot.chunk),\n        slot.chunk,",
                "        pool_index_of(core, slot.chunk),\n        slot.chunk + (1 if kind == KIND_PROBE else 0),",
            ),
        ),
    ),
    Fault(
        "quiet-for-ever",
        "the timer for a time without RESULTs is never armed",
        (_ONE_SUM,),
        None,
        "",
        "departures",
        (
            (
                "    if core.in_flight == 0:\n        core.quiet_ns = now_ns + quiet_after_ns(core, np.int64(0))\n",
                "    if core.in_flight == 0:\n        core.quiet_ns = NEVER\n",
            ),
        ),
    ),
    Fault(
        "asked-once",
        "a chunk is asked after once",
        (_ONE_SUM,),
        None,
        "",
        "departures",
        (("    core.check_ns = min(core.check_ns, slot.check_ns)\n    core.probe = ", "    core.probe = "),),
    ),
    Fault(
        "no-room",
        "a header-only contribution is never sent with lanes",
        (_HEADERS,),
        None,
        "",
        "departures",
        (
            (
                "if contributes == CONTRIBUTES_NOTHING and slot.room == 0:",
                "if contributes == CONTRIBUTES_NOTHING:",
            ),
        ),
        "with 64 lanes a packet may grow by all its lanes; with 256, workers send zeros from the beginning",
    ),
)

FAULTS: Final = {fault.name: fault for fault in (*PROGRAM_FAULTS, *CORE_FAULTS)}
"""By name."""
