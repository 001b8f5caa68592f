"""Faults of the worker core: its change, its scenarios, and the reason if it is harmless."""

from __future__ import annotations

from typing import Final

from sim.explore.scenario import BlockPass, ExplorerScenario
from tests.sim.explore.faults.fault import (
    DISAGREEMENT,
    EPOCHS,
    HEADER_ONLY,
    NO_GROWTH,
    ONE,
    ONE_SUM,
    QUORUMS,
    SUMS,
    TWO_SLOTS,
    UNEQUAL,
    Fault,
)

__all__ = ["CORE_FAULTS"]

_BEGINNING: Final = """    slot.due = DUE_NO
    slot.loss_time_ns = NEVER
    slot.lost = 0
    slot.padding = 0
"""
"""The fields that a chunk that begins sets to nothing."""

CORE_FAULTS: Final = (
    Fault(
        "token-not-compared",
        "a RESULT of another epoch is accepted",
        (EPOCHS,),
        None,
        "",
        "arrivals",
        ((" and token == core.token", ""),),
    ),
    Fault(
        "worker-not-compared",
        "a RESULT for another worker is accepted",
        (ONE_SUM,),
        None,
        "",
        "arrivals",
        ((" and worker_id == core.worker_id", ""),),
        "the switch addresses each copy to its worker, and all copies carry the same",
    ),
    Fault(
        "chunk-not-compared",
        "a RESULT of an older chunk of the slot is accepted",
        (SUMS,),
        None,
        "",
        "arrivals",
        (
            (
                "if slot.chunk < 0 or slot.chunk & CHUNK_MASK != chunk:\n        return np.int64(STALE)",
                "if slot.chunk < 0:\n        return np.int64(STALE)",
            ),
        ),
    ),
    Fault(
        "index-not-compared",
        "the pool index of a RESULT is not checked",
        (SUMS,),
        None,
        "",
        "arrivals",
        (("    known &= pool_index == pool_index_of(core, chunk)\n", ""),),
        "the chunk number says the same, and is compared",
    ),
    Fault(
        "result-twice",
        "a RESULT that comes again counts again",
        (TWO_SLOTS, SUMS),
        None,
        "",
        "arrivals",
        (
            (
                "    if slot.in_flight == 0:\n        return np.int64(DUPLICATE)\n    record",
                "    record",
            ),
        ),
    ),
    Fault(
        "collective-not-compared-by-worker",
        "a RESULT of another collective is accepted",
        (DISAGREEMENT,),
        None,
        "",
        "arrivals",
        (
            (
                "    if op != record.op or fingerprint != record.fingerprint:\n"
                "        return np.int64(FOREIGN)\n    possible",
                "    possible",
            ),
        ),
        "the switch never adds two collectives, so there is no such RESULT",
    ),
    Fault(
        "failed-core-writes",
        "a worker that has failed takes RESULTs",
        (ExplorerScenario("a deadline", rounds=ONE, deadlines=1),),
        None,
        "",
        "arrivals",
        (
            (
                "        core.stale += 1  # the arrays of the collective that failed are the caller's again\n        return\n",
                "        core.stale += 1\n",
            ),
        ),
    ),
    Fault(
        "mismatch-not-heard",
        "a worker does not listen to MISMATCH",
        (DISAGREEMENT,),
        None,
        "",
        "arrivals",
        (("DISPUTED if waiting or ahead < 2 * core.slot_count else STALE", "STALE"),),
    ),
    Fault(
        "missing-not-heard",
        "a worker does not send again what a STATUS says is missing",
        (ONE_SUM,),
        None,
        "",
        "arrivals",
        (("missing = not held or seen >> core.path_worker[level] & 1 == 0", "missing = False"),),
    ),
    Fault(
        "full-not-heard",
        "a worker does not fetch the RESULT of a slot that is full",
        (ONE_SUM,),
        None,
        "",
        "arrivals",
        (("full = held and seen == core.path_mask[level]", "full = False"),),
    ),
    Fault(
        "status-order",
        "a STATUS counts although its PROBE left before the last transmission",
        (ONE_SUM, TWO_SLOTS),
        None,
        "",
        "arrivals",
        (
            (
                "    if slot.last_sequence > core.probe_sequence[probe]:\n        return np.int64(SENT_SINCE)\n",
                "",
            ),
        ),
        "a needless retransmission costs a packet and changes nothing",
    ),
    Fault(
        "exponent-not-learned",
        "the exponent of a RESULT is not kept",
        (UNEQUAL,),
        None,
        "",
        "arrivals",
        (
            (
                "        learn_exponent(record.payload, slot.index, exponent)\n",
                "        learn_exponent(record.payload, slot.index, slot.exponent)\n",
            ),
        ),
    ),
    Fault(
        "lost-for-ever",
        "what was sent too often is never sent again",
        (ONE_SUM,),
        None,
        "",
        "departures",
        (
            (
                "if slot.due != DUE_PROBE:\n        if slot.due",
                "if slot.due != DUE_PROBE and slot.lost == 0:\n        if slot.due",
            ),
        ),
    ),
    Fault(
        "window-of-one-too-many",
        "a chunk is sent although the slot's last one has no RESULT yet",
        (SUMS, TWO_SLOTS),
        None,
        "",
        "departures",
        (("    if slots[slot_of(core, chunk)].in_flight != 0:\n        return False\n", ""),),
    ),
    Fault(
        "dependency-ignored",
        "lanes are sent before all workers' exponent is known",
        (ExplorerScenario("exponents on two slots", slots=2, rounds=(BlockPass("float32"),), batches=False),),
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
        (ONE_SUM,),
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
        (ONE_SUM,),
        None,
        "",
        "departures",
        (
            (
                "    if core.in_flight == 0:\n        core.pto_ns = now_ns + pto_after_ns(core, np.int64(0))\n",
                "    if core.in_flight == 0:\n        core.pto_ns = NEVER\n",
            ),
        ),
    ),
    Fault(
        "asked-once",
        "a chunk is probed once",
        (ONE_SUM,),
        None,
        "",
        "departures",
        (
            (
                "    set_loss_time(core, slot, now_ns + repeat_after_ns(core, slot.unanswered))\n    slot.unanswered",
                "    slot.loss_time_ns = now_ns + repeat_after_ns(core, slot.unanswered)\n    slot.unanswered",
            ),
        ),
    ),
    Fault(
        "all-need-the-header-only",
        "a worker that needs the lanes of a RESULT asks for its header",
        (HEADER_ONLY,),
        None,
        "",
        "departures",
        (("if has_lanes and is_header_only(record, block):", "if has_lanes:"),),
    ),
    Fault(
        "unneeded-lanes-written",
        "lanes that a worker does not need are written to its array",
        (HEADER_ONLY,),
        None,
        "",
        "arrivals",
        (("    elif not is_header_only(record, block):  # Lanes", "    else:  # Lanes"),),
    ),
    Fault(
        "no-padding",
        "a header-only contribution is never sent with lanes",
        (NO_GROWTH,),
        None,
        "",
        "departures",
        (
            (
                "if contributes == CONTRIBUTES_NOTHING and slot.padding == 0 and core.padding == 0:",
                "if contributes == CONTRIBUTES_NOTHING:",
            ),
        ),
    ),
    *(
        Fault(
            f"{field}-of-an-older-chunk",
            f"a chunk begins with `{field}` as an older chunk left it in its slot",
            (scenario,),
            None,
            "",
            "departures",
            ((_BEGINNING, _BEGINNING.replace(f"    slot.{field} = {value}\n", "")),),
        )
        for field, value, scenario in (
            ("due", "DUE_NO", SUMS),
            ("loss_time_ns", "NEVER", SUMS),
            ("lost", "0", QUORUMS),
            ("padding", "0", NO_GROWTH),
        )
    ),
)
