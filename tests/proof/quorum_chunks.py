"""Quorum chunks on one switch, in one epoch: why a worker waits for the RESULT behind a quorum chunk.

Here chunks are numbers, as a quorum chunk and the chunk behind it are in two slots. How many contributions complete a quorum
chunk is any number: the switch may complete it with any of them. A worker may have no part in one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.proof.faults import FaultRun, search
from tests.proof.induction import Verdict, inductive
from tests.proof.invariant import Invariant
from tests.proof.logic import Finite, Signature, State, Symbolic, Term, conj, disj, implies, ite, neg, same
from tests.proof.one_switch import Action, Step

STATE: dict[str, Signature] = {
    "began": (("Worker", "Chunk"), "Bool"),
    "sent": (("Worker", "Chunk"), "Bool"),
    "got": (("Worker", "Chunk"), "Bool"),
    "result": (("Chunk",), "Bool"),
    "used": (("Cell",), "Bool"),
    "tag": (("Cell",), "Chunk"),
    "writer": (("Cell",), "Worker"),  # for the proof
    "seen": (("Cell", "Worker"), "Bool"),
    "complete": (("Cell",), "Bool"),
}
FIXED: dict[str, Signature] = {
    "before": (("Chunk", "Chunk"), "Bool"),
    "next": (("Chunk", "Chunk"), "Bool"),  # c, c + 1
    "frees": (("Chunk", "Chunk"), "Bool"),  # c, c + S
    "cell": (("Chunk",), "Cell"),
    "roll": (("Chunk",), "Bool"),
}


@dataclass
class Model:
    """Constants of a run; `waits_behind`: the rule under test."""

    logic: Symbolic | Finite
    fixed: State
    first: Term
    waits_behind: bool = True

    def forall(self, sorts: tuple[str, ...], body: Callable[..., Term]) -> Term:
        """Return whether a body holds for all elements."""
        return self.logic.forall(sorts, body)


def _begin(m: Model, st: State, worker: Term, chunk: Term, last: Term) -> Step:
    f = m.fixed

    def freed(c: Term, behind: Term) -> Term:
        waits = conj(m.waits_behind, f.roll(c), f.next(c, behind))
        return implies(f.frees(c, chunk), conj(st.got(worker, c), implies(waits, st.got(worker, behind))))

    in_order = disj(chunk == m.first, conj(f.next(last, chunk), st.began(worker, last)))
    possible = conj(neg(st.began(worker, chunk)), in_order, m.forall(("Chunk", "Chunk"), freed))
    return possible, st.but(
        began=lambda *c: disj(same(c, (worker, chunk)), st.began(*c)),
        sent=lambda *c: disj(conj(same(c, (worker, chunk)), neg(f.roll(chunk))), st.sent(*c)),
    )


def _offer(m: Model, st: State, worker: Term, chunk: Term) -> Step:
    possible = conj(st.began(worker, chunk), m.fixed.roll(chunk), neg(st.sent(worker, chunk)))
    return possible, st.but(sent=lambda *c: disj(same(c, (worker, chunk)), st.sent(*c)))


def _contribute(m: Model, st: State, worker: Term, chunk: Term, enough: Term) -> Step:
    """`enough`: whether this contribution completes a quorum chunk."""
    cell = m.fixed.cell(chunk)
    tag = st.tag(cell)
    is_same = conj(st.used(cell), tag == chunk)
    newer = disj(neg(st.used(cell)), m.fixed.before(tag, chunk))

    def seen(w: Term) -> Term:
        return conj(is_same, st.seen(cell, w))

    complete = conj(is_same, st.complete(cell))
    added = conj(disj(is_same, newer), neg(complete), neg(seen(worker)))
    full = m.forall(("Worker",), lambda w: disj(seen(w), w == worker))
    completes = conj(added, ite(m.fixed.roll(chunk), enough, full))
    return st.sent(worker, chunk), st.but(
        used=lambda c: disj(conj(c == cell, newer), st.used(c)),
        tag=lambda c: ite(conj(c == cell, newer), chunk, st.tag(c)),
        writer=lambda c: ite(conj(c == cell, newer), worker, st.writer(c)),
        seen=lambda c, w: ite(conj(c == cell, added), disj(seen(w), w == worker), st.seen(c, w)),
        complete=lambda c: ite(
            conj(c == cell, disj(is_same, newer)), disj(complete, completes), st.complete(c)
        ),
        result=lambda c: disj(conj(c == chunk, disj(complete, completes)), st.result(c)),
    )


def _accept(m: Model, st: State, worker: Term, chunk: Term) -> Step:
    possible = conj(st.result(chunk), st.began(worker, chunk), neg(st.got(worker, chunk)))
    return possible, st.but(got=lambda *c: disj(same(c, (worker, chunk)), st.got(*c)))


_REUSE = "Reuse with a worker that lags"
_DEPARTURES = "host_agent/protocol/departures.py"
ACTIONS = (
    Action("begin", ("Worker", "Chunk", "Chunk"), _begin, _REUSE, (f"{_DEPARTURES}:_may_send_next",)),
    Action("offer", ("Worker", "Chunk"), _offer, "A round", (f"{_DEPARTURES}:offer",)),
    Action(
        "contribute",
        ("Worker", "Chunk", "Bool"),
        _contribute,
        "A slot that a quorum completes",
        ("p4/v1model/slot.p4:Slot",),
    ),
    Action(
        "accept",
        ("Worker", "Chunk"),
        _accept,
        "A round",
        ("host_agent/protocol/arrivals.py:_verdict_on_result",),
    ),
)

INVARIANTS = (
    Invariant(
        "R1: no chunk that has begun and has no RESULT is stale", ("Worker", "Chunk"),
        lambda m, st, w, c: implies(
            conj(st.began(w, c), neg(st.got(w, c)), st.used(m.fixed.cell(c))), neg(m.fixed.before(c, st.tag(m.fixed.cell(c))))
        ),
    ),
    Invariant(
        "chunks begin in order", ("Worker", "Chunk", "Chunk"),
        lambda m, st, w, b, c: implies(conj(st.began(w, c), m.fixed.before(b, c)), st.began(w, b)),
    ),
    Invariant(
        "a chunk is sent, and its RESULT taken, after it has begun", ("Worker", "Chunk"),
        lambda m, st, w, c: conj(
            implies(st.sent(w, c), st.began(w, c)), implies(st.got(w, c), conj(st.began(w, c), st.result(c)))
        ),
    ),
    Invariant(
        "what has begun has its slot, and the RESULT behind a quorum chunk", ("Worker", "Chunk", "Chunk", "Chunk"),
        lambda m, st, w, c, d, n: implies(
            conj(st.began(w, d), m.fixed.frees(c, d)),
            conj(st.got(w, c), implies(conj(m.fixed.roll(c), m.fixed.next(c, n)), st.got(w, n))),
        ),
    ),
    Invariant(
        "a RESULT that is not of a quorum chunk has all workers", ("Worker", "Chunk"),
        lambda m, st, w, c: implies(conj(st.result(c), neg(m.fixed.roll(c))), st.sent(w, c)),
    ),
    Invariant(
        "`seen` is of workers that contributed to the tag", ("Cell", "Worker"),
        lambda m, st, k, w: implies(
            st.used(k),
            conj(
                implies(st.seen(k, w), st.sent(w, st.tag(k))),
                st.seen(k, st.writer(k)),
                m.fixed.cell(st.tag(k)) == k,
                implies(conj(st.complete(k), neg(m.fixed.roll(st.tag(k)))), st.seen(k, w)),
                implies(st.complete(k), st.result(st.tag(k))),
            ),
        ),
    ),
    Invariant(
        "R2: a RESULT that a worker needs, or will need, is in its slot", ("Worker", "Chunk"),
        lambda m, st, w, c: implies(
            conj(st.result(c), neg(st.got(w, c))),
            conj(st.used(m.fixed.cell(c)), st.tag(m.fixed.cell(c)) == c, st.complete(m.fixed.cell(c))),
        ),
    ),
)  # fmt: skip


def symbolic(waits_behind: bool = True) -> tuple[Model, State, list[Any]]:
    """Return the model of any size, a state of it, and what is known of chunk numbers; S is at least 2."""
    logic = Symbolic()
    f = State({name: logic.function(name, signature) for name, signature in FIXED.items()})
    m = Model(logic, f, logic.constant("Chunk", "first"), waits_behind)
    known = [
        m.forall(("Chunk",), lambda a: neg(f.before(a, a))),
        m.forall(("Chunk", "Chunk"), lambda a, b: disj(f.before(a, b), a == b, f.before(b, a))),
        m.forall(("Chunk",) * 3, lambda a, b, c: implies(conj(f.before(a, b), f.before(b, c)), f.before(a, c))),
        m.forall(("Chunk",), lambda a: neg(f.before(a, m.first))),
        m.forall(("Chunk",) * 3, lambda a, b, c: implies(
            f.next(a, b), conj(f.before(a, b), neg(conj(f.before(a, c), f.before(c, b))))
        )),
        m.forall(("Chunk", "Chunk"), lambda a, b: implies(conj(f.next(a, b), f.roll(a)), neg(f.roll(b)))),
        m.forall(("Chunk",) * 3, lambda a, b, n: implies(
            f.frees(a, b), conj(f.before(a, b), implies(f.next(a, n), f.before(n, b)))
        )),
    ]  # fmt: skip
    return m, State({name: logic.function(name, signature) for name, signature in STATE.items()}), known


def _two_rounds_on(m: Model, earlier: Term, later: Term) -> Term:
    """An instance: of two chunks with one cell, the later is c + 2S or later; c + S and c + S + 1 lie between."""
    assert isinstance(m.logic, Symbolic)
    f = m.fixed
    middle, behind, second = (m.logic.constant("Chunk", name) for name in ("c+S", "c+S+1", "c+2S"))
    return implies(
        conj(f.before(earlier, later), f.cell(earlier) == f.cell(later)),
        conj(
            f.frees(earlier, middle), f.next(middle, behind), f.frees(middle, second),
            disj(second == later, f.before(second, later)), f.before(behind, later),
        ),
    )  # fmt: skip


def _instances(m: Model, st: State, chosen: list[Term], goals: list[Term]) -> list[Term]:
    """Return instances for the chunk of an action, that of its slot's tag, and those of the sentence to be kept."""
    assert isinstance(m.logic, Symbolic)
    chunk = m.logic.sort("Chunk")
    first = next(c for c in chosen if c.sort() == chunk)
    pairs = [(st.tag(m.fixed.cell(first)), first)]
    for c in (each for each in goals if each.sort() == chunk):
        pairs += [(c, first), (c, st.tag(m.fixed.cell(c)))]
    return [_two_rounds_on(m, *pair) for pair in pairs]


def lemmas(seed: int = 0, waits_behind: bool = True) -> Iterator[Verdict]:
    """Ask whether the first state has each invariant, whether each action keeps it, and whether each action is possible."""
    return inductive("quorum chunks", lambda: symbolic(waits_behind), ACTIONS, INVARIANTS, _instances, seed)


def run_without_the_rule() -> FaultRun:
    """Search for a run of two workers and two slots: c + S is a quorum chunk, and c + 2S overwrites the RESULT of c."""
    f: dict[str, Callable[..., Term]] = {
        "before": lambda a, b: a < b,
        "next": lambda a, b: b == a + 1,
        "frees": lambda a, b: b == a + 2,
        "cell": lambda c: c % 4,
        "roll": lambda c: c == 2,
    }
    logic = Finite({"Worker": 2, "Chunk": 5, "Cell": 4})
    m = Model(logic, State(f), 0, waits_behind=False)
    return search(m, logic, STATE, ACTIONS, INVARIANTS[-1])
