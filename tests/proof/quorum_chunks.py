"""Quorum chunks on one switch: why a worker waits for the RESULT behind a quorum chunk, and whom a quorum chunk's RESULT names.

Here chunks are numbers, as a quorum chunk and the chunk behind it are in two slots. A quorum chunk is complete with any k
contributions; a worker may have no part in one. The model is of one epoch: that no packet of another epoch is admitted beside
it is S4 of `one_switch.py`. Before its entries are written, and when they are gone, a slot may be taken.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.proof.faults import FaultRun, search
from tests.proof.induction import Few, Verdict, inductive
from tests.proof.invariant import Invariant
from tests.proof.logic import Finite, Signature, State, Symbolic, Term, conj, disj, implies, ite, neg, same
from tests.proof.one_switch import Action, Step

STATE: dict[str, Signature] = {
    "written": ((), "Bool"),  # the epoch's entries
    "gone": ((), "Bool"),  # they are deleted
    "zeroed": ((), "Bool"),  # the switch has restarted
    "began": (("Worker", "Chunk"), "Bool"),
    "sent": (("Worker", "Chunk"), "Bool"),
    "got": (("Worker", "Chunk"), "Bool"),
    "result": (("Chunk",), "Bool"),
    "named": (("Chunk", "Worker"), "Bool"),  # in a RESULT
    "unnamed": (("Chunk", "Worker"), "Bool"),  # left out of one
    "wrong": (
        ("Chunk",),
        "Bool",
    ),  # a RESULT holds other contributions than those it names, or another number
    "used": (("Cell",), "Bool"),
    "tag": (("Cell",), "Chunk"),
    "writer": (("Cell",), "Worker"),  # for the proof
    "seen": (("Cell", "Worker"), "Bool"),
    "count": (("Cell",), "Int"),  # of bits in `seen`
    "complete": (("Cell",), "Bool"),
    "once": (
        ("Cell", "Worker", "Chunk"),
        "Bool",
    ),  # for the proof: contributions in the lanes and the exponent
    "twice": (("Cell", "Worker", "Chunk"), "Bool"),
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
    """Constants of a run, and the rules; a fault is one that is False."""

    logic: Symbolic | Finite
    fixed: State
    first: Term
    k: Term
    waits_behind: bool = True
    parts_quorum_chunks: bool = True  # the chunk behind a quorum chunk is an ordinary one
    stays_closed: bool = True  # to contributions that come after k
    checks_bit: bool = True
    is_alone: bool = True  # no other epoch is admitted to its slots beside it

    def forall(self, sorts: tuple[str, ...], body: Callable[..., Term]) -> Term:
        """Return whether a body holds for all elements."""
        return self.logic.forall(sorts, body)


def _write(m: Model, st: State) -> Step:
    return neg(st.gone()), st.but(written=lambda: True)


def _remove(m: Model, st: State) -> Step:
    return st.written(), st.but(gone=lambda: True)


def _other(m: Model, st: State, cell: Term) -> Step:
    """A packet of another epoch takes a slot."""
    return disj(not m.is_alone, neg(st.written()), st.gone()), st.but(
        used=lambda c: conj(c != cell, st.used(c))
    )


def _zero(m: Model, st: State) -> Step:
    return True, st.but(used=lambda c: False, zeroed=lambda: True)


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


def _contribute(m: Model, st: State, worker: Term, chunk: Term) -> Step:
    cell = m.fixed.cell(chunk)
    tag, part = st.tag(cell), (worker, chunk)
    is_same = conj(st.used(cell), tag == chunk)
    newer = disj(neg(st.used(cell)), m.fixed.before(tag, chunk))
    complete = conj(is_same, st.complete(cell))
    has_bit = conj(m.checks_bit, is_same, st.seen(cell, worker))
    added = conj(disj(is_same, newer), neg(conj(m.stays_closed, complete)), neg(has_bit))

    def seen(w: Term) -> Term:
        return disj(conj(is_same, st.seen(cell, w)), conj(added, w == worker))

    def once(*c: Term) -> Term:
        return disj(conj(is_same, st.once(cell, *c)), conj(added, same(c, part)))

    def twice(*c: Term) -> Term:
        again = conj(added, same(c, part), st.once(cell, *c))
        return conj(is_same, disj(st.twice(cell, *c), again))

    count = ite(is_same, st.count(cell), 0) + ite(added, 1, 0)
    full = m.forall(("Worker",), seen)
    done = disj(complete, conj(added, ite(m.fixed.roll(chunk), count == m.k, full)))
    exact = m.forall(
        ("Worker", "Chunk"), lambda *c: conj(once(*c) == conj(seen(c[0]), c[1] == chunk), neg(twice(*c)))
    )
    right = conj(exact, ite(m.fixed.roll(chunk), count == m.k, full))

    def at(c: Term) -> Term:
        return conj(c == cell, disj(is_same, newer))

    possible = conj(st.sent(worker, chunk), st.written(), neg(st.gone()))
    return possible, st.but(
        used=lambda c: disj(conj(c == cell, newer), st.used(c)),
        tag=lambda c: ite(conj(c == cell, newer), chunk, st.tag(c)),
        writer=lambda c: ite(conj(c == cell, newer), worker, st.writer(c)),
        seen=lambda c, w: ite(at(c), seen(w), st.seen(c, w)),
        count=lambda c: ite(at(c), count, st.count(c)),
        complete=lambda c: ite(at(c), done, st.complete(c)),
        once=lambda *c: ite(at(c[0]), once(*c[1:]), st.once(*c)),
        twice=lambda *c: ite(at(c[0]), twice(*c[1:]), st.twice(*c)),
        result=lambda c: disj(conj(c == chunk, done), st.result(c)),
        named=lambda c, w: disj(conj(c == chunk, done, seen(w)), st.named(c, w)),
        unnamed=lambda c, w: disj(conj(c == chunk, done, neg(seen(w))), st.unnamed(c, w)),
        wrong=lambda c: disj(conj(c == chunk, done, neg(right)), st.wrong(c)),
    )


def _accept(m: Model, st: State, worker: Term, chunk: Term) -> Step:
    possible = conj(st.result(chunk), st.began(worker, chunk), neg(st.got(worker, chunk)))
    return possible, st.but(got=lambda *c: disj(same(c, (worker, chunk)), st.got(*c)))


_REUSE, _SLOT = "Reuse with a worker that lags", ("p4/v1model/slot.p4:Slot", "p4/shared/quorum.p4:JobQuorum")
_DEPARTURES = "host_agent/protocol/departures.py"
_CONTROLLER = "controller/job_controller.py"
_ARRIVALS = "host_agent/protocol/arrivals.py"
ACTIONS = (
    Action("write", (), _write, "Switch", (f"{_CONTROLLER}:_install",)),
    Action("remove", (), _remove, "Switch", (f"{_CONTROLLER}:_withdraw",)),
    Action("other", ("Cell",), _other, "Switch", _SLOT[:1]),
    Action("zero", (), _zero, "Switch", _SLOT[:1]),
    Action("begin", ("Worker", "Chunk", "Chunk"), _begin, _REUSE, (f"{_DEPARTURES}:_may_send_next",)),
    Action("offer", ("Worker", "Chunk"), _offer, "A round", (f"{_DEPARTURES}:offer",)),
    Action("contribute", ("Worker", "Chunk"), _contribute, "A slot that a quorum completes", _SLOT),
    Action("accept", ("Worker", "Chunk"), _accept, "A round", (f"{_ARRIVALS}:_verdict_on_result",)),
)


def _holds(m: Model, st: State, chunk: Term) -> Term:
    """Whether a chunk's RESULT is in its slot."""
    cell = m.fixed.cell(chunk)
    return conj(st.used(cell), st.tag(cell) == chunk, st.complete(cell))


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
            conj(st.result(c), neg(st.got(w, c)), neg(st.zeroed()), neg(st.gone())), _holds(m, st, c)
        ),
    ),
    Invariant("RESULTs leave while there are entries", ("Chunk",), lambda m, st, c: implies(st.result(c), st.written())),
    Invariant(
        "S1: the lanes hold the contributions that `seen` names, of a quorum chunk k", ("Cell", "Worker", "Chunk"),
        lambda m, st, k, w, c: implies(
            st.used(k),
            conj(
                st.once(k, w, c) == conj(st.seen(k, w), c == st.tag(k)), neg(st.twice(k, w, c)),
                implies(conj(st.complete(k), m.fixed.roll(st.tag(k))), st.count(k) == m.k),
            ),
        ),
    ),
    Invariant("S1: no RESULT holds other contributions", ("Chunk",), lambda m, st, c: neg(st.wrong(c))),
    Invariant(
        "a RESULT is in its slot, or the slot has moved on", ("Chunk", "Worker"),
        lambda m, st, c, w: implies(
            conj(st.result(c), neg(st.zeroed()), neg(st.gone())),
            disj(
                conj(
                    _holds(m, st, c), st.named(c, w) == st.seen(m.fixed.cell(c), w),
                    st.unnamed(c, w) == neg(st.seen(m.fixed.cell(c), w)),
                ),
                conj(st.used(m.fixed.cell(c)), m.fixed.before(c, st.tag(m.fixed.cell(c)))),
            ),
        ),
    ),
    Invariant(
        "S2: RESULTs of a chunk name the same workers", ("Chunk", "Worker"),
        lambda m, st, c, w: conj(
            implies(disj(st.named(c, w), st.unnamed(c, w)), st.result(c)),
            implies(neg(st.zeroed()), neg(conj(st.named(c, w), st.unnamed(c, w)))),
        ),
    ),
)  # fmt: skip


def symbolic(**rules: bool) -> tuple[Model, State, list[Any]]:
    """Return the model of any size, a state of it, and what is known of chunk numbers; S is at least 2."""
    logic = Symbolic()
    f = State({name: logic.function(name, signature) for name, signature in FIXED.items()})
    m = Model(logic, f, logic.constant("Chunk", "first"), logic.constant("Int", "k"), **rules)
    known = [
        m.forall(("Chunk",), lambda a: neg(f.before(a, a))),
        m.forall(("Chunk", "Chunk"), lambda a, b: disj(f.before(a, b), a == b, f.before(b, a))),
        m.forall(("Chunk",) * 3, lambda a, b, c: implies(conj(f.before(a, b), f.before(b, c)), f.before(a, c))),
        m.forall(("Chunk",), lambda a: neg(f.before(a, m.first))),
        m.forall(("Chunk",) * 3, lambda a, b, c: implies(
            f.next(a, b), conj(f.before(a, b), neg(conj(f.before(a, c), f.before(c, b))))
        )),
        m.forall(("Chunk",) * 3, lambda a, b, n: implies(
            f.frees(a, b), conj(f.before(a, b), implies(f.next(a, n), f.before(n, b)))
        )),
    ]  # fmt: skip
    if m.parts_quorum_chunks:
        apart = m.forall(("Chunk",) * 2, lambda a, b: implies(conj(f.next(a, b), f.roll(a)), neg(f.roll(b))))
        known.append(apart)
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
    pairs = []
    for first in [c for c in chosen if c.sort() == chunk][:1]:
        pairs = [(st.tag(m.fixed.cell(first)), first)]
        for c in (each for each in goals if each.sort() == chunk):
            pairs += [(c, first), (c, st.tag(m.fixed.cell(c)))]
    return [_two_rounds_on(m, *pair) for pair in pairs]


def lemmas(seed: int = 0, few: Few = None, **rules: bool) -> Iterator[Verdict]:
    """Ask whether the first state has each invariant, whether each action keeps it, and whether each action is possible."""
    return inductive(
        "quorum chunks", lambda: symbolic(**rules), ACTIONS, INVARIANTS, _instances, seed, few=few
    )


FEW = {"Worker": 2, "Chunk": 6, "Cell": 4}
"""Elements that a lemma's counterexample is looked for with."""


FAULTS: dict[str, tuple[str, tuple[int, ...]]] = {
    "waits_behind": ("R2", (2,)), "parts_quorum_chunks": ("R2", (2, 3)), "stays_closed": ("S2", (0,)), "checks_bit": ("S1", (1,)),
    "is_alone": ("R2", (1,)),
}  # fmt: skip
"""By rule: the theorem that fails without it, and which chunks are quorum chunks in a run that shows it."""


def run_without(rule: str) -> FaultRun:
    """Search for a run of two workers and two slots, k = 1, that has a theorem no longer."""
    theorem, rolls = FAULTS[rule]
    f: dict[str, Callable[..., Term]] = {
        "before": lambda a, b: a < b,
        "next": lambda a, b: b == a + 1,
        "frees": lambda a, b: b == a + 2,
        "cell": lambda c: c % 4,
        "roll": lambda c: c in rolls,
    }
    logic = Finite({"Worker": 2, "Chunk": 5 if rolls[0] == 2 else 2, "Cell": 4})
    m = Model(logic, State(f), 0, 1, **{rule: False})
    actions = tuple(
        a for a in ACTIONS if a.name not in ("zero", "remove") and (a.name != "other" or not m.is_alone)
    )
    return search(m, logic, STATE, actions, next(i for i in INVARIANTS if i.name.startswith(theorem)))
