"""Invariants of the model, in groups: a guarantee rests on its own group and on those it names."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.proof.logic import State, Term, conj, disj, implies, neg
from tests.proof.one_switch import Model

Body = Callable[..., Term]


@dataclass(frozen=True)
class Invariant:
    """A sentence about all elements of some sorts."""

    name: str
    sorts: tuple[str, ...]
    body: Body  # of model, state and the elements


@dataclass(frozen=True)
class Guarantee:
    """A group of invariants, each of which every action keeps if those of the group and of `rests_on` held before."""

    name: str
    sentence: str
    invariants: tuple[Invariant, ...]
    rests_on: tuple[str, ...] = ()


def _in_use(m: Model, st: State, s: Term, v: Term) -> Term:
    return st.number(s, v) != m.zero


def _tag_is(m: Model, st: State, e: Term, s: Term, r: Term) -> Term:
    """Whether the slot of a chunk holds its tag."""
    cell = (s, m.version(r))
    return conj(_in_use(m, st, *cell), st.holder(*cell) == e, st.round(*cell) == r)


def _waits(st: State, *chunk: Term) -> Term:
    return conj(st.sent(*chunk), neg(st.got(*chunk)))


def _has_entries(st: State, e: Term) -> Term:
    return conj(st.written(e), neg(st.ended(e)))


EPOCHS = Guarantee(
    "epochs", "A number that the switch may still hold belongs to one epoch.",
    (
        Invariant(
            "a number belongs to one epoch", ("Epoch", "Epoch"),
            lambda m, st, e, f: implies(
                conj(st.remembered(e), st.remembered(f), m.fixed.number_of(e) == m.fixed.number_of(f)), e == f
            ),
        ),
        Invariant(
            "epoch 0 is never handed out", ("Epoch",),
            lambda m, st, e: implies(st.remembered(e), conj(m.fixed.number_of(e) != m.zero, st.issued(e))),
        ),
        Invariant(
            "entries are those of a remembered epoch's workers", ("Epoch", "Worker"),
            lambda m, st, e, w: implies(st.admitted(e, w), conj(st.remembered(e), m.fixed.member(e, w))),
        ),
        Invariant(
            "a slot's number is that of its tag's epoch", ("Slot", "Bool"),
            lambda m, st, s, v: implies(
                _in_use(m, st, s, v),
                conj(
                    st.number(s, v) == m.fixed.number_of(st.holder(s, v)),
                    st.remembered(st.holder(s, v)),
                    m.fixed.owns(st.holder(s, v), s),
                    m.version(st.round(s, v)) == v,
                ),
            ),
        ),
        Invariant(
            "contributions are those of members in their epoch's slots", ("Epoch", "Worker", "Slot", "Round"),
            lambda m, st, e, w, s, r: implies(
                st.sent(e, w, s, r), conj(st.issued(e), m.fixed.member(e, w), m.fixed.owns(e, s))
            ),
        ),
        Invariant(
            "a bit in `seen` is of a worker that contributed to the tag", ("Slot", "Bool", "Worker"),
            lambda m, st, s, v, w: implies(
                conj(_in_use(m, st, s, v), st.seen(s, v, w)), st.sent(st.holder(s, v), w, s, st.round(s, v))
            ),
        ),
    ),
)  # fmt: skip

S1 = Guarantee(
    "S1", "A RESULT that a worker takes for a chunk holds exactly one contribution of every worker to that chunk.",
    (
        Invariant(
            "the lanes hold the contributions that `seen` names", ("Slot", "Bool", "Worker", "Epoch", "Round"),
            lambda m, st, s, v, w, e, r: implies(
                _in_use(m, st, s, v),
                conj(
                    st.once(s, v, w, e, r) == conj(st.seen(s, v, w), e == st.holder(s, v), r == st.round(s, v)),
                    neg(st.twice(s, v, w, e, r)),
                ),
            ),
        ),
        Invariant(
            "no RESULT is sent of other contributions", ("Epoch", "Slot", "Round"),
            lambda m, st, e, s, r: neg(st.wrong(e, s, r)),
        ),
        Invariant(
            "a worker has the lanes that it needs", ("Epoch", "Worker", "Slot", "Round"),
            lambda m, st, *c: implies(conj(st.got(*c), neg(m.fixed.spares(*c))), st.filled(*c)),
        ),
        Invariant(
            "no worker takes other contributions for a chunk", ("Epoch", "Worker", "Slot", "Round"),
            lambda m, st, e, w, s, r: neg(st.misread(e, w, s, r)),
        ),
    ),
    ("epochs",),
)  # fmt: skip

S6 = Guarantee(
    "S6", "A worker takes a RESULT only if all workers mean the same collective.",
    (
        Invariant(
            "workers in `seen` mean the slot's collective", ("Slot", "Bool", "Worker"),
            lambda m, st, s, v, w: implies(
                conj(_in_use(m, st, s, v), st.seen(s, v, w), st.collective(s, v) != m.disputed),
                m.fixed.means(st.holder(s, v), w, s, st.round(s, v)) == st.collective(s, v),
            ),
        ),
        Invariant(
            "a RESULT's collective is that of all workers", ("Epoch", "Slot", "Round", "Collective", "Value", "Worker"),
            lambda m, st, e, s, r, c, x, w: implies(
                conj(st.result(e, s, r, c, x), m.fixed.member(e, w)),
                conj(st.sent(e, w, s, r), m.fixed.means(e, w, s, r) == c),
            ),
        ),
        Invariant(
            "a worker that has a RESULT agrees with all", ("Epoch", "Slot", "Round", "Worker", "Worker"),
            lambda m, st, e, s, r, w, u: implies(
                conj(st.got(e, w, s, r), m.fixed.member(e, u)),
                conj(st.sent(e, u, s, r), m.fixed.means(e, u, s, r) == m.fixed.means(e, w, s, r)),
            ),
        ),
    ),
    ("epochs",),
)  # fmt: skip

S4 = Guarantee(
    "S4", "While an epoch has entries, no packet of another epoch is admitted to its slots.",
    (
        Invariant(
            "epochs that share slots are not handed out side by side", ("Epoch", "Epoch", "Slot"),
            lambda m, st, e, f, s: implies(
                conj(
                    *(conj(st.issued(g), neg(st.ended(g)), m.fixed.owns(g, s)) for g in (e, f)),
                ),
                e == f,
            ),
        ),
        Invariant(
            "entries of another epoch for the same slots are gone", ("Epoch", "Epoch", "Slot", "Worker"),
            lambda m, st, e, f, s, w: implies(
                conj(_has_entries(st, e), st.admitted(f, w), m.fixed.owns(e, s), m.fixed.owns(f, s)), e == f
            ),
        ),
        Invariant(
            "entries for the same slots are of one epoch", ("Epoch", "Epoch", "Slot", "Worker", "Worker"),
            lambda m, st, e, f, s, w, u: implies(
                conj(st.admitted(e, w), st.admitted(f, u), m.fixed.owns(e, s), m.fixed.owns(f, s)), e == f
            ),
        ),
        Invariant(
            "written entries are those of a remembered epoch", ("Epoch", "Worker"),
            lambda m, st, e, w: conj(
                implies(_has_entries(st, e), conj(st.remembered(e), st.issued(e))),
                implies(st.admitted(e, w), conj(st.written(e), st.remembered(e))),
            ),
        ),
    ),
)  # fmt: skip

RETURN = Guarantee(
    "no return", "A slot that has moved on from a RESULT's tag does not come back to it.",
    (
        Invariant(
            "a RESULT is in its slot, or the slot has moved on", ("Epoch", "Slot", "Round", "Collective", "Value", "Worker"),
            lambda m, st, e, s, r, c, x, w: implies(
                conj(st.result(e, s, r, c, x), st.kept(e)),
                disj(
                    conj(
                        _tag_is(m, st, e, s, r),
                        st.seen(s, m.version(r), w) == m.fixed.member(e, w),
                        st.lanes(s, m.version(r)) == x,
                        st.collective(s, m.version(r)) == c,
                    ),
                    conj(
                        _in_use(m, st, s, m.version(r)),
                        st.holder(s, m.version(r)) == e,
                        m.fixed.before(r, st.round(s, m.version(r))),
                    ),
                    conj(st.ended(e), neg(st.admitted(e, w))),
                ),
            ),
        ),
        Invariant(
            "a RESULT's epoch has had entries", ("Epoch", "Slot", "Round", "Collective", "Value"),
            lambda m, st, e, s, r, c, x: implies(
                st.result(e, s, r, c, x), conj(st.issued(e), m.fixed.owns(e, s), disj(st.written(e), neg(st.kept(e))))
            ),
        ),
    ),
    ("epochs", "S6", "S4"),
)  # fmt: skip

S2 = Guarantee(
    "S2", "Workers that take a RESULT of a chunk take the same lanes, unless registers were zeroed in between.",
    (
        Invariant(
            "RESULTs of a chunk have the same lanes", ("Epoch", "Slot", "Round", "Collective", "Collective", "Value", "Value"),
            lambda m, st, e, s, r, c, d, x, y: implies(
                conj(st.kept(e), st.result(e, s, r, c, x), st.result(e, s, r, d, y)), conj(x == y, c == d)
            ),
        ),
        Invariant(
            "lanes taken are those of a RESULT", ("Epoch", "Worker", "Slot", "Round", "Value"),
            lambda m, st, e, w, s, r, x: implies(
                st.took(e, w, s, r, x), st.result(e, s, r, m.fixed.means(e, w, s, r), x)
            ),
        ),
    ),
    ("epochs", "S6", "S4", "no return"),
)  # fmt: skip

LEAD = Guarantee(
    "lead", "No worker is two rounds of a slot ahead of another one.",
    (
        Invariant(
            "a worker has the RESULTs of all its earlier rounds", ("Epoch", "Worker", "Slot", "Round", "Round"),
            lambda m, st, e, w, s, r, q: implies(
                conj(st.sent(e, w, s, r), m.fixed.before(q, r)), st.got(e, w, s, q)
            ),
        ),
        Invariant(
            "a RESULT that one worker has, all have contributed to", ("Epoch", "Worker", "Slot", "Round", "Worker"),
            lambda m, st, e, w, s, r, u: implies(
                conj(st.got(e, w, s, r), m.fixed.member(e, u)), st.sent(e, u, s, r)
            ),
        ),
        Invariant(
            "the writer of a slot's tag is in `seen`", ("Slot", "Bool"),
            lambda m, st, s, v: implies(_in_use(m, st, s, v), st.seen(s, v, st.writer(s, v))),
        ),
    ),
    ("epochs", "S6"),
)  # fmt: skip

R1 = Guarantee(
    "R1", "The switch takes no contribution to a chunk in flight for a stale one.",
    (
        Invariant(
            "no chunk in flight is stale", ("Epoch", "Worker", "Slot", "Round"),
            lambda m, st, e, w, s, r: implies(
                conj(_waits(st, e, w, s, r), st.remembered(e)), neg(m.is_stale(st, e, s, r))
            ),
        ),
    ),
    ("epochs", "S6", "lead"),
)  # fmt: skip

R2 = Guarantee(
    "R2", "A RESULT that a worker still needs is in its slot, unless registers were zeroed or the epoch has ended.",
    (
        Invariant(
            "a RESULT that is needed is in its slot",
            ("Epoch", "Worker", "Slot", "Round", "Collective", "Value", "Worker"),
            lambda m, st, e, w, s, r, c, x, u: implies(
                conj(
                    st.result(e, s, r, c, x), m.fixed.member(e, w), neg(st.got(e, w, s, r)), st.kept(e), _has_entries(st, e)
                ),
                conj(
                    _tag_is(m, st, e, s, r),
                    st.seen(s, m.version(r), u) == m.fixed.member(e, u),
                    st.lanes(s, m.version(r)) == x,
                    st.collective(s, m.version(r)) == c,
                ),
            ),
        ),
    ),
    ("epochs", "S6", "S4", "no return", "lead"),
)  # fmt: skip

NEXT = Guarantee(
    "R3", "A worker that others wait for can go on: it has begun the round before the one they wait for.",
    (
        Invariant(
            "who has not contributed is at most one round behind", ("Epoch", "Worker", "Worker", "Slot", "Round", "Round"),
            lambda m, st, e, w, u, s, r, q: implies(
                conj(st.sent(e, w, s, r), m.fixed.before(q, r), m.fixed.member(e, u)), st.sent(e, u, s, q)
            ),
        ),
    ),
    ("epochs", "S6", "lead"),
)  # fmt: skip

MOVES = Guarantee(
    "moves", "When a job moves, no worker waits for a RESULT of its old epoch.",
    (
        Invariant(
            "no worker of a moved epoch waits", ("Epoch", "Worker", "Slot", "Round"),
            lambda m, st, e, w, s, r: implies(st.moved(e), neg(_waits(st, e, w, s, r))),
        ),
    ),
    ("epochs",),
)  # fmt: skip

GUARANTEES: dict[str, Guarantee] = {
    g.name: g for g in (EPOCHS, S1, S6, S4, RETURN, S2, LEAD, R1, R2, NEXT, MOVES)
}


def invariants_of(guarantee: Guarantee) -> list[Invariant]:
    """Return the invariants that a guarantee's proof may use."""
    return [i for name in (*guarantee.rests_on, guarantee.name) for i in GUARANTEES[name].invariants]
