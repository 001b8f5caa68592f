"""The worker core's source against the model's actions `send` and `accept`."""

import ast
from collections.abc import Callable, Iterator
from typing import Any

import z3

from host_agent.protocol.arrivals import ACCEPTED, DISPUTED
from host_agent.protocol.records import (
    DUE_RETRANSMIT,
    FAILURE_MISMATCH,
    PASS_RING,
    PROBE_NUMBERS,
    PROBE_RING,
)
from host_agent.protocol.timeout import REPEATS_AT_ONCE
from host_agent.wire.constants import (
    EXPONENT_ALL_ZERO,
    FLAG_LANES,
    FLAG_MISMATCH,
    HEADER_BYTES,
    HEADER_FIELDS,
    KIND_RESULT,
    TREE_MAX_LEVELS,
)
from tests.proof.induction import Verdict, ask
from tests.proof.source_paths import BITS, Path_, Record, Sources, Table, item

Term = Any
KIND, FLAGS, JOB, QUORUM, OP, FINGERPRINT, TOKEN, WORKER, WORKERS = range(1, 10)
CHUNK, EXPONENT = 11, 12
OPAQUE = frozenset(
    [
        "window_is_full",
        "_is_well_formed",
        "_verdict_on_status",
        "_on_status",
        "_take_payload",
        "_note_progress",
        "pto_after_ns",
        "_write_contribution",
        "is_quorum",
        "is_header_only",
        "_carries_exponent",
        "take_probe_time",
        "probe_again_after_ns",
        "repeat_after_ns",
        "set_loss_time",
        "limit_window",
    ]
)
STEADY = frozenset(
    [
        "_is_well_formed",
        "window_is_full",
        "is_quorum",
        "is_header_only",
        "_carries_exponent",
        "block_has_lanes",
        "exponent_is_possible",
    ]
)
CORE, SLOTS, PASSES = Record("core", z3.BitVecVal(0, BITS)), Table("slots"), Table("passes")


def _field(table: str, name: str, index: Term, path: Path_ | None = None) -> Term:
    array = z3.Array(f"{table}.{name}", z3.BitVecSort(BITS), z3.BitVecSort(BITS))
    return z3.Select(path.fields.get((table, name), array) if path else array, index)


def _core(name: str, path: Path_ | None = None) -> Term:
    return _field("core", name, CORE.index, path)


def _slot(name: str, index: Term, path: Path_ | None = None) -> Term:
    return _field("slots", name, index, path)


def _last_in(slot: Term, path: Path_ | None = None) -> Term:
    """Return the newest chunk of a slot that has begun, or a negative number."""
    begun = _core("next_chunk", path) - 1
    return begun - ((begun - slot) & (_core("slot_count") - 1))


def _ring(slot: Term, path: Path_ | None = None) -> Term:
    """Whether a slot's record is of the newest chunk that has begun there."""
    last, chunk = _last_in(slot, path), _slot("chunk", slot, path)
    return z3.If(last >= 0, chunk == last, z3.And(chunk == -1, _slot("in_flight", slot, path) == 0))


def _assumed(slot: Term) -> list[Term]:
    """Return the hypotheses: a power of two of slots, chunk numbers that do not overflow, and the ring at a slot."""
    slots, chunk = _core("slot_count"), _core("next_chunk")
    return [
        slots > 0, slots <= 1 << 16, slots & (slots - 1) == 0, chunk >= 0, chunk < 1 << 62, slot >= 0, slot < slots,
        _ring(slot),
    ]  # fmt: skip


def _truth(name: str) -> Term:
    """Return the value of a function that is not followed."""
    return z3.Bool(name)


def _fails(paths: list[Path_], wrong: Callable[[Path_], Term]) -> Term:
    return z3.Or(*(z3.And(*path.condition, wrong(path)) for path in paths))


def _sending(sources: Sources) -> Iterator[tuple[str, list[Term], str]]:
    slots, chunk = _core("slot_count"), _core("next_chunk")
    here = chunk & (slots - 1)
    behind = (chunk + 1) & (slots - 1)
    given = [*_assumed(here), _ring(behind), behind < slots, behind >= 0]
    may = sources.run("_may_send_next", [CORE, SLOTS, PASSES])

    def yes(path: Path_) -> Term:
        return path.value

    waits = z3.And(_slot("in_flight", here) != 0, _slot("chunk", here) == chunk - slots)
    yield "a chunk is sent only after the RESULT of the chunk S before it", [
        *given, _fails(may, lambda p: z3.And(yes(p), waits))
    ], "unsat"  # fmt: skip
    follows = z3.And(
        _slot("quorum", here) != 0,
        _slot("in_flight", behind) != 0,
        _slot("chunk", behind) == chunk + 1 - slots,
    )
    yield "behind a quorum chunk S before it, only after the RESULT of the next chunk too", [
        *given, _fails(may, lambda p: z3.And(yes(p), follows))
    ], "unsat"  # fmt: skip
    record = z3.URem(_core("sending_pass"), z3.BitVecVal(PASS_RING, BITS))
    far = _field("passes", "dependency", record)
    needed = chunk - far
    depends = z3.And(
        far > 0, far <= _core("sending_index"), _slot("in_flight", needed & (slots - 1)) != 0,
        _slot("chunk", needed & (slots - 1)) == needed,
    )  # fmt: skip
    yield "a chunk is sent only after the RESULT that its pass depends on", [
        *given, _fails(may, lambda p: z3.And(yes(p), depends))
    ], "unsat"  # fmt: skip
    yield "a chunk may be sent", [*given, _fails(may, yes)], "sat"
    held = z3.Or(
        _core("sending_pass") == _core("passes_begun"), _truth("window_is_full"), _slot("in_flight", here) != 0,
        follows, depends,
    )  # fmt: skip
    yield "a chunk is kept back by these three, by a full window and for want of passes alone", [
        *given, _fails(may, lambda p: yes(p) == held)
    ], "unsat"  # fmt: skip
    some = z3.BitVec("slot", BITS)
    sent = sources.run(
        "_send_next", [CORE, SLOTS, PASSES, *(sources.unknown(n) for n in ("now", "words", "bytes", "row"))]
    )
    begin = [*_assumed(some), _slot("in_flight", here) == 0]
    yield "a chunk begins at the slot of its number, in flight, and is the next one", [
        *begin,
        _fails(sent, lambda p: z3.Not(z3.And(
            _slot("chunk", here, p) == chunk, _slot("in_flight", here, p) == 1, _core("next_chunk", p) == chunk + 1,
        ))),
    ], "unsat"  # fmt: skip
    sending, index = _core("sending_pass"), _core("sending_index")
    record_of = z3.URem(sending, z3.BitVecVal(PASS_RING, BITS))
    last = index + 1 == _field("passes", "chunks", record_of)
    quorum, offered = (_field("passes", n, record_of) for n in ("quorum", "offered"))
    yield "its record names pass, index and quorum chunk, and the next chunk is the next one of its pass", [
        *begin,
        _fails(sent, lambda p: z3.Not(z3.And(
            _slot("pass_number", here, p) == sending, _slot("index", here, p) == index,
            _slot("quorum", here, p) == quorum, _core("in_flight", p) == _core("in_flight") + 1,
            _core("sending_pass", p) == z3.If(last, sending + 1, sending),
            _core("sending_index", p) == z3.If(last, z3.BitVecVal(0, BITS), index + 1),
        ))),
    ], "unsat"  # fmt: skip
    yield "it is sent unless it is of a quorum chunk that this worker has no part in yet", [
        *begin, _fails(sent, lambda p: (p.value == 1) == z3.And(quorum != 0, offered == 0))
    ], "unsat"  # fmt: skip
    yield "every slot's record stays that of its newest chunk", [
        *begin, _fails(sent, lambda p: z3.Not(_ring(some, p)))
    ], "unsat"  # fmt: skip
    yield "no other slot changes when a chunk begins", [
        *begin, some != here,
        _fails(sent, lambda p: z3.Or(*(_slot(n, some, p) != _slot(n, some) for n in ("chunk", "in_flight", "quorum")))),
    ], "unsat"  # fmt: skip


def _receiving(sources: Sources) -> Iterator[tuple[str, list[Term], str]]:
    header = [z3.BitVec(f"header.{i}", BITS) for i in range(len(HEADER_FIELDS))]
    chunk = header[CHUNK]
    slots = _core("slot_count")
    here, some = chunk & (slots - 1), z3.BitVec("slot", BITS)
    given = [*_assumed(some), chunk >= 0, chunk < 1 << 32]
    length = z3.BitVec("length", BITS)
    arrive = sources.run(
        "on_datagram", [CORE, SLOTS, PASSES, sources.unknown("datagram"), length, sources.unknown("now")]
    )
    record = z3.URem(_slot("pass_number", here), z3.BitVecVal(PASS_RING, BITS))
    ours = z3.And(
        length >= HEADER_BYTES, _truth("_is_well_formed"), header[JOB] == _core("job_id"),
        header[TOKEN] == _core("token"), header[WORKER] == _core("worker_id"),
        header[WORKERS] == _core("num_workers"),
    )  # fmt: skip
    fits = z3.And(
        header[KIND] == KIND_RESULT, _slot("in_flight", here) != 0, _slot("chunk", here) & 0xFFFFFFFF == chunk,
        header[OP] == _field("passes", "op", record), header[FINGERPRINT] == _field("passes", "fingerprint", record),
        header[QUORUM] == _field("passes", "quorum", record),
        _core("failure") == 0,
    )  # fmt: skip

    def ends(path: Path_) -> Term:
        return z3.And(_slot("in_flight", some) != 0, _slot("in_flight", some, path) == 0)

    yield "a chunk ends only by a RESULT of its job, token and worker", [
        *given, _fails(arrive, lambda p: z3.And(ends(p), z3.Not(ours)))
    ], "unsat"  # fmt: skip
    yield "a datagram that is not well-formed, or not for this worker, changes no chunk and fails nothing", [
        *given, z3.Not(ours),
        _fails(arrive, lambda p: z3.Or(
            _slot("in_flight", some, p) != _slot("in_flight", some), _core("failure", p) != _core("failure")
        )),
    ], "unsat"  # fmt: skip
    yield "a core fails only of a MISMATCH of its job", [
        *given,
        _fails(arrive, lambda p: z3.And(
            _core("failure", p) != _core("failure"),
            z3.Or(_core("failure", p) != FAILURE_MISMATCH, header[KIND] == KIND_RESULT),
        )),
    ], "unsat"  # fmt: skip
    yield "a RESULT that ends a chunk counts for its pass, and among those in flight", [
        *given,
        _fails(arrive, lambda p: z3.And(ends(p), z3.Or(
            _field("passes", "results", record, p) != _field("passes", "results", record) + 1,
            _core("in_flight", p) != _core("in_flight") - 1,
        ))),
    ], "unsat"  # fmt: skip
    yield "a chunk ends only by a RESULT of its number, op and fingerprint, while it is in flight", [
        *given, _fails(arrive, lambda p: z3.And(ends(p), z3.Not(z3.And(fits, some == here))))
    ], "unsat"  # fmt: skip
    yield "a chunk may end", [*given, ours, _fails(arrive, ends)], "sat"
    yield "no chunk begins, and no number changes, when a datagram arrives", [
        *given,
        _fails(arrive, lambda p: z3.Or(
            z3.And(_slot("in_flight", some) == 0, _slot("in_flight", some, p) != 0),
            _slot("chunk", some, p) != _slot("chunk", some), _core("next_chunk", p) != _core("next_chunk"),
        )),
    ], "unsat"  # fmt: skip
    slot = Record("slots", here)
    verdicts = sources.run(
        "_verdict_on_result", [CORE, PASSES, slot, sources.unknown("words"), tuple(header)]
    )
    yield "the verdict on a RESULT may be that it is accepted", [
        *given, fits, _fails(verdicts, lambda p: p.value == ACCEPTED)
    ], "sat"  # fmt: skip
    came = header[FLAGS] & FLAG_LANES != 0
    has_lanes = z3.And(
        _slot("index", here) - _field("passes", "lead", record) >= 0, _truth("block_has_lanes")
    )
    exponent = z3.If(
        _truth("_carries_exponent"),
        _truth("exponent_is_possible"),
        header[EXPONENT] == _slot("exponent", here),
    )
    right = z3.And(
        fits, exponent, z3.Implies(header[QUORUM] != 0, _truth("is_quorum")),
        z3.Or(has_lanes == came, z3.And(has_lanes, z3.Not(came), _truth("is_header_only"))),
    )  # fmt: skip
    yield "a RESULT is accepted if, and only if, lanes, exponent and workers are those of its chunk too", [
        *given, some == here, header[KIND] == KIND_RESULT, _core("failure") == 0,
        _fails(verdicts, lambda p: (p.value == ACCEPTED) != right),
    ], "unsat"  # fmt: skip
    heard = sources.run("_verdict_on_status", [CORE, PASSES, slot, sources.unknown("words"), tuple(header)])
    waiting = z3.And(_slot("in_flight", here) != 0, _slot("chunk", here) & 0xFFFFFFFF == chunk)
    ahead = z3.ULT((chunk - _core("next_chunk")) & 0xFFFFFFFF, 2 * slots)
    yield "a MISMATCH is heard about a chunk in flight, or one that this worker comes to within two rounds of its slots", [
        *given, header[FLAGS] == FLAG_MISMATCH,
        _fails(heard, lambda p: (p.value == DISPUTED) != z3.Or(waiting, ahead)),
    ], "unsat"  # fmt: skip
    agrees = z3.And(
        header[QUORUM] == _field("passes", "quorum", record),
        header[OP] == _field("passes", "op", record),
        header[FINGERPRINT] == _field("passes", "fingerprint", record),
    )
    yield "a STATUS is taken in only if it is about a chunk in flight, and of its op and fingerprint", [
        *given, _fails(heard, lambda p: z3.And(p.value == ACCEPTED, z3.Not(z3.And(waiting, agrees))))
    ], "unsat"  # fmt: skip
    lower = z3.And(_slot("in_flight", here) == 0, _slot("chunk", here) & 0xFFFFFFFF == chunk)
    yield "a second RESULT of a chunk is not accepted", [
        *given, lower, _fails(verdicts, lambda p: p.value == ACCEPTED)
    ], "unsat"  # fmt: skip


def _ending(sources: Sources) -> Iterator[tuple[str, list[Term], str]]:
    record, slot = Record("passes", z3.BitVec("record", BITS)), Record("slots", z3.BitVec("slot", BITS))
    arguments = [CORE, SLOTS, PASSES, record, slot]
    oldest, after = _core("oldest_chunk"), _core("next_chunk")
    at = oldest & (_core("slot_count") - 1)
    flying = z3.And(_slot("in_flight", at) != 0, _slot("chunk", at) == oldest)
    done, begun = _core("passes_done"), _core("passes_begun")
    first = z3.URem(done, z3.BitVecVal(PASS_RING, BITS))
    lacking = _field("passes", "results", first) < _field("passes", "chunks", first)
    for number, name, goes_on, stays, was, said in (
        (
            0,
            "oldest_chunk",
            oldest < after,
            flying,
            oldest,
            "the oldest chunk moves on past chunks that are not in flight",
        ),
        (
            1,
            "passes_done",
            done < begun,
            lacking,
            done,
            "a pass is done when it has all its RESULTs, and those before it",
        ),
    ):
        test, paths = sources.turn("_retire", number, arguments)
        yield f"{said}, one turn of its loop after the other", [
            z3.Or(
                test != goes_on,
                _fails(paths, lambda p, n=name, w=was, s=stays: _core(n, p) != z3.If(s, w, w + 1)),  # type: ignore[misc]
                _fails(paths, lambda p, s=stays: z3.BoolVal(p.done) != s),  # type: ignore[misc]
            )
        ], "unsat"  # fmt: skip


def _asking(sources: Sources) -> Iterator[tuple[str, list[Term], str]]:
    slot, record = Record("slots", z3.BitVec("slot", BITS)), Record("passes", z3.BitVec("record", BITS))
    level, number = z3.BitVec("level", BITS), z3.BitVec("number", BITS)
    given = [
        _field("slots", "due", slot.index) != DUE_RETRANSMIT,
        number >= 0,
        number < 1 << 16,
        level >= 0,
        level < TREE_MAX_LEVELS,
    ]
    paths = sources.run(
        "_on_status", [CORE, record, slot, sources.unknown("words"), level, number, sources.unknown("now")]
    )

    def again(path: Path_) -> Term:
        return _field("slots", "due", slot.index, path) == DUE_RETRANSMIT

    held_back, padding = _core("padding"), _field("slots", "padding", slot.index)

    def held(path: Path_) -> Term:
        return path.names["slot_chunk"] == _field("slots", "chunk", slot.index) & 0xFFFFFFFF

    def full(path: Path_) -> Term:
        roll = _field("passes", "quorum", record.index) != 0
        return z3.And(
            held(path), z3.If(roll, _truth("is_quorum"), path.names["seen"] == item("path_mask", level))
        )

    def lost(path: Path_) -> Term:
        own = (path.names["seen"] >> item("path_worker", level)) & 1 != 0
        absent = z3.And(
            _field("passes", "quorum", record.index) != 0,
            _field("passes", "offered", record.index) == 0,
        )
        return z3.Or(full(path), z3.And(z3.Not(z3.And(held(path), own)), z3.Not(absent)))

    probe = z3.URem(number, z3.BitVecVal(PROBE_RING, BITS))
    awaited = z3.And(number != 0, item("probe_number", probe) == number)
    before = _field("slots", "last_sequence", slot.index) <= item("probe_sequence", probe)
    yield "a STATUS has a chunk sent again only if contribution or RESULT is missing, and the worker has a part in it", [
        *given, _fails(paths, lambda p: z3.And(again(p), z3.Not(lost(p))))
    ], "unsat"  # fmt: skip
    reached = level <= _core("reach")
    yield "so does an answer only if its PROBE was sent behind the chunk's last transmission, which got to the switch", [
        *given, awaited, _fails(paths, lambda p: z3.And(again(p), z3.Not(z3.And(before, reached))))
    ], "unsat"  # fmt: skip
    behind = z3.And(before, reached, _field("slots", "retransmissions", slot.index) < REPEATS_AT_ONCE)
    yield "an answer behind it has a chunk sent again that is missing", [
        *given, awaited, behind, _fails(paths, lambda p: z3.And(lost(p), z3.Not(again(p))))
    ], "unsat"  # fmt: skip
    upper = z3.If(level + 1 < _core("levels") - 1, level + 1, _core("levels") - 1) <= _core("reach")
    yield "a STATUS that answers no PROBE has a chunk sent again if, and only if, a RESULT lacks lanes that can get there", [
        *given, z3.Not(awaited), _fails(paths, lambda p: again(p) != z3.And(full(p), upper, padding == 0))
    ], "unsat"  # fmt: skip
    asked = z3.And(number != EXPONENT_ALL_ZERO, number <= PROBE_NUMBERS)
    yield "lanes go along where a sum or a RESULT lacked them, and from then on if that was not asked for", [
        *given,
        _fails(paths, lambda p: z3.Or(
            _field("slots", "padding", slot.index, p)
            != z3.If(z3.And(again(p), z3.Or(full(p), level > 0)), z3.BitVecVal(1, BITS), padding),
            _core("padding", p)
            != z3.If(z3.And(z3.Not(awaited), full(p), z3.Not(asked)), z3.BitVecVal(1, BITS), held_back),
        )),
    ], "unsat"  # fmt: skip
    yield "a STATUS may have a chunk sent again", [*given, _fails(paths, again)], "sat"


def _guarded(sources: Sources) -> bool:
    """Whether `_send_next` is called in a loop of `_may_send_next` alone."""
    calls = 0
    for function in sources.functions.values():
        for loop in [n for n in ast.walk(function) if isinstance(n, ast.While)]:
            tests = "_may_send_next(core, slots, passes)" in ast.unparse(loop.test)
            calls += sum("_send_next(" in ast.unparse(n) for n in loop.body if tests)
    named = sum(
        isinstance(n, ast.Call) and ast.unparse(n.func) == "_send_next"
        for function in sources.functions.values() for n in ast.walk(function)
    )  # fmt: skip
    return named == calls == 1


GROUPS: tuple[tuple[Callable[[Sources], Iterator[tuple[str, list[Term], str]]], tuple[str, ...]], ...] = (
    (_sending, ("_may_send_next", "_send_next")),
    (_ending, ("_retire",)),
    (_receiving, ("on_datagram", "_verdict_on_result", "_verdict_on_status")),
    (_asking, ("_on_status",)),
)
"""Lemmas, and the functions that they are about."""


def lemmas(seed: int = 0, sources: Sources | None = None, about: str = "") -> Iterator[Verdict]:
    """Ask for each lemma about the worker core; `about`: for those alone that follow a function."""
    sources = sources or Sources.of_core(OPAQUE, STEADY)
    for group, functions in GROUPS:
        if not about or about in sources.followed(functions):
            for name, terms, expected in group(sources):
                yield ask(f"worker: {name}", terms, expected, seed, logic="QF_AUFBV")
    yield Verdict(
        "worker: chunks begin in a loop of `_may_send_next` alone",
        "yes" if _guarded(sources) else "no",
        "yes",
        0.0,
    )
