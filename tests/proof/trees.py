"""S1 in a tree of switches of any depth and width, in one epoch and one slot: one contribution of every worker.

Workers are the leaves. Sums that go up and RESULTs that come down may be late, repeated or lost like any packet; a switch
may send its sum again whenever it is asked.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.proof.faults import FaultRun, search
from tests.proof.induction import Verdict, inductive
from tests.proof.invariant import Invariant
from tests.proof.logic import Finite, Signature, State, Symbolic, Term, conj, disj, implies, ite, neg, same
from tests.proof.one_switch import Action, Step

_CELL, _PART = ("Node", "Bool"), ("Node", "Round")
STATE: dict[str, Signature] = {
    "sent": (("Node", "Round"), "Bool"),  # to the parent
    "up_once": (("Node", "Round", *_PART), "Bool"),  # contributions in it, by leaf and round
    "up_twice": (("Node", "Round", *_PART), "Bool"),
    "down": (("Node", "Round"), "Bool"),  # a RESULT, from a switch to its children
    "down_once": (("Node", "Round", *_PART), "Bool"),
    "down_twice": (("Node", "Round", *_PART), "Bool"),
    "used": (_CELL, "Bool"),
    "tag": (_CELL, "Round"),
    "seen": ((*_CELL, "Node"), "Bool"),
    "final": (_CELL, "Bool"),
    "once": ((*_CELL, *_PART), "Bool"),
    "twice": ((*_CELL, *_PART), "Bool"),
    "misread": (("Node", "Round"), "Bool"),
}
FIXED: dict[str, Signature] = {
    "before": (("Round", "Round"), "Bool"),
    "parity": (("Round",), "Bool"),
    "leaf": (("Node",), "Bool"),
    "child": (("Node", "Node"), "Bool"),
    "below": (("Node", "Node"), "Bool"),  # a leaf below a node, or at it
    "toward": (("Node", "Node"), "Node"),  # the child that a leaf is below
}


@dataclass
class Model:
    """Constants of a run; the rules under test."""

    logic: Symbolic | Finite
    fixed: State
    root: Term
    compares_tags: bool = True
    checks_bit: bool = True

    def forall(self, sorts: tuple[str, ...], body: Callable[..., Term]) -> Term:
        """Return whether a body holds for all elements."""
        return self.logic.forall(sorts, body)


def _send(m: Model, st: State, leaf: Term, number: Term) -> Step:
    part = (leaf, number)
    return m.fixed.leaf(leaf), st.but(
        sent=lambda *c: disj(same(c, part), st.sent(*c)),
        up_once=lambda *c: disj(same(c, (*part, *part)), st.up_once(*c)),
    )


def _contribute(m: Model, st: State, child: Term, node: Term, number: Term) -> Step:
    f = m.fixed
    cell = (node, f.parity(number))
    tag = st.tag(*cell)
    is_same = conj(st.used(*cell), tag == number if m.compares_tags else True)
    newer = disj(neg(st.used(*cell)), conj(neg(is_same), f.before(tag, number)))
    final = conj(is_same, st.final(*cell))

    def seen(u: Term) -> Term:
        return conj(is_same, st.seen(*cell, u))

    added = conj(disj(is_same, newer), neg(conj(m.checks_bit, seen(child))))

    def once(*c: Term) -> Term:
        return disj(conj(is_same, st.once(*cell, *c)), conj(added, st.up_once(child, number, *c)))

    def twice(*c: Term) -> Term:
        doubled = conj(is_same, st.once(*cell, *c), st.up_once(child, number, *c))
        before = conj(is_same, st.twice(*cell, *c))
        return disj(before, conj(added, disj(st.up_twice(child, number, *c), doubled)))

    def full(u: Term) -> Term:
        return implies(f.child(u, node), disj(seen(u), conj(added, u == child)))

    complete = conj(disj(is_same, newer), m.forall(("Node",), full))
    up = conj(complete, neg(final), node != m.root)
    answers = conj(complete, disj(final, node == m.root))
    packet = (node, number)
    touched = disj(is_same, newer)

    def at(c: tuple[Term, ...]) -> Term:
        return conj(same(c[:2], cell), touched)

    def of(c: tuple[Term, ...], leaves: Term) -> Term:
        return conj(leaves, same(c[:2], packet))

    return conj(st.sent(child, number), f.child(child, node)), st.but(
        used=lambda *c: disj(at(c), st.used(*c)),
        tag=lambda *c: ite(conj(same(c, cell), newer), number, st.tag(*c)),
        seen=lambda *c: ite(at(c), disj(seen(c[2]), conj(added, c[2] == child)), st.seen(*c)),
        final=lambda *c: ite(at(c), final, st.final(*c)),
        once=lambda *c: ite(at(c), once(*c[2:]), st.once(*c)),
        twice=lambda *c: ite(at(c), twice(*c[2:]), st.twice(*c)),
        sent=lambda *c: disj(of(c, up), st.sent(*c)),
        up_once=lambda *c: disj(conj(of(c, up), once(*c[2:])), st.up_once(*c)),
        up_twice=lambda *c: disj(conj(of(c, up), twice(*c[2:])), st.up_twice(*c)),
        down=lambda *c: disj(of(c, answers), st.down(*c)),
        down_once=lambda *c: disj(conj(of(c, answers), once(*c[2:])), st.down_once(*c)),
        down_twice=lambda *c: disj(conj(of(c, answers), twice(*c[2:])), st.down_twice(*c)),
    )


def _take(m: Model, st: State, node: Term, parent: Term, number: Term) -> Step:
    """A switch takes its parent's RESULT and passes it down."""
    cell, packet = (node, m.fixed.parity(number)), (node, number)
    full = m.forall(("Node",), lambda u: implies(m.fixed.child(u, node), st.seen(*cell, u)))
    possible = conj(
        st.down(parent, number), m.fixed.child(node, parent), neg(m.fixed.leaf(node)),
        st.used(*cell), st.tag(*cell) == number if m.compares_tags else True, full, neg(st.final(*cell)),
    )  # fmt: skip
    return possible, st.but(
        final=lambda *c: disj(same(c, cell), st.final(*c)),
        once=lambda *c: ite(same(c[:2], cell), st.down_once(parent, number, *c[2:]), st.once(*c)),
        twice=lambda *c: ite(same(c[:2], cell), st.down_twice(parent, number, *c[2:]), st.twice(*c)),
        down=lambda *c: disj(same(c, packet), st.down(*c)),
        down_once=lambda *c: disj(
            conj(same(c[:2], packet), st.down_once(parent, number, *c[2:])), st.down_once(*c)
        ),
        down_twice=lambda *c: disj(
            conj(same(c[:2], packet), st.down_twice(parent, number, *c[2:])), st.down_twice(*c)
        ),
    )


def _accept(m: Model, st: State, leaf: Term, parent: Term, number: Term) -> Step:
    def exact(w: Term, q: Term) -> Term:
        wanted = conj(m.fixed.leaf(w), q == number)
        return conj(st.down_once(parent, number, w, q) == wanted, neg(st.down_twice(parent, number, w, q)))

    right = m.forall(_PART, exact)
    possible = conj(
        st.down(parent, number), m.fixed.child(leaf, parent), m.fixed.leaf(leaf), st.sent(leaf, number)
    )
    return possible, st.but(
        misread=lambda *c: disj(conj(same(c, (leaf, number)), neg(right)), st.misread(*c))
    )


_SECTION, _SLOT = "What a switch does", "p4/v1model/slot.p4:Slot"
ACTIONS = (
    Action("send", ("Node", "Round"), _send, _SECTION, ("host_agent/protocol/departures.py:_send_next",)),
    Action(
        "contribute", ("Node", "Node", "Round"), _contribute, _SECTION, (_SLOT, "p4/shared/tree.p4:PassUp")
    ),
    Action("take", ("Node", "Node", "Round"), _take, _SECTION, (_SLOT, "p4/v1model/tree.p4:AnswerInTree")),
    Action(
        "accept",
        ("Node", "Node", "Round"),
        _accept,
        _SECTION,
        ("host_agent/protocol/arrivals.py:_verdict_on_result",),
    ),
)

INVARIANTS = (
    Invariant(
        "a sum that goes up has one contribution of each worker below", ("Node", "Round", "Node", "Round"),
        lambda m, st, u, r, w, q: conj(
            st.up_once(u, r, w, q) == conj(st.sent(u, r), m.fixed.below(w, u), q == r), neg(st.up_twice(u, r, w, q))
        ),
    ),
    Invariant(
        "lanes hold the workers below the children in `seen`, or all if they are final", ("Node", "Bool", "Node", "Round"),
        lambda m, st, n, v, w, q: implies(
            st.used(n, v),
            conj(
                st.once(n, v, w, q)
                == conj(
                    q == st.tag(n, v),
                    ite(
                        st.final(n, v), m.fixed.leaf(w),
                        conj(m.fixed.below(w, n), st.seen(n, v, m.fixed.toward(n, w))),
                    ),
                ),
                neg(st.twice(n, v, w, q)),
            ),
        ),
    ),
    Invariant(
        "a slot in use is a switch's, with children in `seen`; a final one has them all", ("Node", "Bool", "Node"),
        lambda m, st, n, v, u: implies(
            st.used(n, v),
            conj(
                neg(m.fixed.leaf(n)),
                m.fixed.parity(st.tag(n, v)) == v,
                implies(st.seen(n, v, u), m.fixed.child(u, n)),
                implies(conj(st.final(n, v), m.fixed.child(u, n)), st.seen(n, v, u)),
            ),
        ),
    ),
    Invariant(
        "a RESULT has one contribution of every worker", ("Node", "Round", "Node", "Round"),
        lambda m, st, n, r, w, q: conj(
            st.down_once(n, r, w, q) == conj(st.down(n, r), m.fixed.leaf(w), q == r), neg(st.down_twice(n, r, w, q))
        ),
    ),
    Invariant(
        "S1: no worker takes other contributions", ("Node", "Round"), lambda m, st, w, r: neg(st.misread(w, r))
    ),
)  # fmt: skip


def symbolic(**rules: bool) -> tuple[Model, State, list[Any]]:
    """Return the model of any tree, a state of it, and what makes it a tree."""
    logic = Symbolic()
    f = State({name: logic.function(name, signature) for name, signature in FIXED.items()})
    m = Model(logic, f, logic.constant("Node", "root"), **rules)
    nodes = ("Node", "Node", "Node")
    known = [
        m.forall(("Round",), lambda a: neg(f.before(a, a))),
        m.forall(("Round", "Round"), lambda a, b: disj(f.before(a, b), a == b, f.before(b, a))),
        m.forall(("Round",) * 3, lambda a, b, c: implies(conj(f.before(a, b), f.before(b, c)), f.before(a, c))),
        m.forall(("Node", "Node"), lambda w, u: implies(f.below(w, u), f.leaf(w))),
        m.forall(("Node", "Node"), lambda w, u: implies(f.leaf(u), f.below(w, u) == (w == u))),
        m.forall(("Node", "Node"), lambda u, n: implies(f.child(u, n), neg(f.leaf(n)))),
        m.forall(nodes, lambda u, n, w: implies(conj(f.child(u, n), f.below(w, u)), f.below(w, n))),
        m.forall(nodes, lambda u, n, w: implies(conj(f.child(u, n), f.below(w, u)), f.toward(n, w) == u)),
        m.forall(("Node", "Node"), lambda n, w: implies(
            conj(f.below(w, n), neg(f.leaf(n))), conj(f.child(f.toward(n, w), n), f.below(w, f.toward(n, w)))
        )),
        m.forall(("Node",), lambda w: implies(f.leaf(w), f.below(w, m.root))),
    ]  # fmt: skip
    return m, State({name: logic.function(name, signature) for name, signature in STATE.items()}), known


def lemmas(seed: int = 0, only: str = "", **rules: bool) -> Iterator[Verdict]:
    """Ask for each lemma, or for those with some words in their names; a rule that is False is left out of the model."""
    return inductive("trees", lambda: symbolic(**rules), ACTIONS, INVARIANTS, lambda *_: [], seed, only)


def run_without_the_bit() -> FaultRun:
    """Search for a run of a worker below two switches in which a child's sum is added twice."""
    f: dict[str, Callable[..., Term]] = {
        "before": lambda a, b: a < b,
        "parity": lambda r: r % 2 == 1,
        "leaf": lambda n: n == 2,
        "child": lambda u, n: u == n + 1,
        "below": lambda w, n: w == 2,
        "toward": lambda n, w: min(n + 1, 2),
    }
    logic = Finite({"Node": 3, "Round": 1})
    return search(Model(logic, State(f), 0, checks_bit=False), logic, STATE, ACTIONS, INVARIANTS[-1])
