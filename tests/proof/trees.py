"""A tree of switches of any depth and width, in one slot: one contribution of every worker, and RESULTs that stay while needed.

Workers are the leaves. Sums that go up and RESULTs that come down may be late, repeated or lost like any packet; a switch
may send its sum again whenever it is asked. The model is of one epoch: that no packet of another one is admitted to a switch
beside it is S4 of `one_switch.py`. Before its entries are written there, and when they are gone, a slot may be taken.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tests.proof.logic import Finite, Signature, State, Symbolic, Term, conj, disj, implies, ite, neg, same
from tests.proof.one_switch import Action, Step

_CELL, _PART = ("Node", "Bool"), ("Node", "Round")
STATE: dict[str, Signature] = {
    "written": (("Node",), "Bool"),  # the epoch's entries on a switch
    "gone": (("Node",), "Bool"),  # they are deleted
    "zeroed": ((), "Bool"),  # a switch has restarted
    "sent": (("Node", "Round"), "Bool"),  # to the parent
    "got": (("Node", "Round"), "Bool"),  # by a worker
    "up_once": (("Node", "Round", *_PART), "Bool"),  # contributions in it, by leaf and round
    "up_twice": (("Node", "Round", *_PART), "Bool"),
    "down": (("Node", "Round"), "Bool"),  # a RESULT, from a switch to its children
    "down_is": (("Node", "Round", "Value"), "Bool"),  # with these lanes
    "down_once": (("Node", "Round", *_PART), "Bool"),
    "down_twice": (("Node", "Round", *_PART), "Bool"),
    "used": (_CELL, "Bool"),
    "tag": (_CELL, "Round"),
    "seen": ((*_CELL, "Node"), "Bool"),
    "writer": (_CELL, "Node"),  # for the proof
    "lanes": (_CELL, "Value"),
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
    "under": (("Node", "Node"), "Bool"),  # at a node, or below it
    "toward": (("Node", "Node"), "Node"),  # the child that a node is under
    "some": (("Node",), "Node"),  # a leaf under a node
}


@dataclass
class Model:
    """Constants of a run; the rules under test."""

    logic: Symbolic | Finite
    fixed: State
    root: Term
    first: Term
    compares_tags: bool = True
    checks_bit: bool = True
    waits_for_result: bool = True
    waits_for_all: bool = True  # a switch sends its sum up when all children have contributed
    is_alone: bool = True  # no other epoch is admitted to its slots beside it

    def forall(self, sorts: tuple[str, ...], body: Callable[..., Term]) -> Term:
        """Return whether a body holds for all elements."""
        return self.logic.forall(sorts, body)


def _write(m: Model, st: State, node: Term) -> Step:
    return neg(st.gone(node)), st.but(written=lambda n: disj(n == node, st.written(n)))


def _remove(m: Model, st: State, node: Term) -> Step:
    return st.written(node), st.but(gone=lambda n: disj(n == node, st.gone(n)))


def _other(m: Model, st: State, node: Term, version: Term) -> Step:
    """A packet of another epoch takes a slot."""
    possible = disj(not m.is_alone, neg(st.written(node)), st.gone(node))
    return possible, st.but(used=lambda *c: conj(neg(same(c, (node, version))), st.used(*c)))


def _zero(m: Model, st: State, node: Term) -> Step:
    return True, st.but(used=lambda n, v: conj(n != node, st.used(n, v)), zeroed=lambda: True)


def _send(m: Model, st: State, leaf: Term, number: Term, earlier: Term) -> Step:
    part = (leaf, number)
    between = m.forall(("Round",), lambda c: neg(conj(m.fixed.before(earlier, c), m.fixed.before(c, number))))
    follows = conj(m.fixed.before(earlier, number), between)
    freed = st.got(leaf, earlier) if m.waits_for_result else st.sent(leaf, earlier)
    may = disj(number == m.first, conj(follows, freed))
    return conj(m.fixed.leaf(leaf), may), st.but(
        sent=lambda *c: disj(same(c, part), st.sent(*c)),
        up_once=lambda *c: disj(same(c, (*part, *part)), st.up_once(*c)),
    )


def _contribute(m: Model, st: State, child: Term, node: Term, number: Term, sum_: Term) -> Step:
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
        return implies(f.child(u, node), disj(not m.waits_for_all, seen(u), conj(added, u == child)))

    complete = conj(disj(is_same, newer), m.forall(("Node",), full))
    up = conj(complete, neg(final), node != m.root)
    answers = conj(complete, disj(final, node == m.root))
    packet = (node, number)
    touched = disj(is_same, newer)

    def at(c: tuple[Term, ...]) -> Term:
        return conj(same(c[:2], cell), touched)

    def of(c: tuple[Term, ...], leaves: Term) -> Term:
        return conj(leaves, same(c[:2], packet))

    lanes = ite(added, sum_, st.lanes(*cell))
    return conj(st.sent(child, number), f.child(child, node), st.written(node), neg(st.gone(node))), st.but(
        used=lambda *c: disj(at(c), st.used(*c)),
        tag=lambda *c: ite(conj(same(c, cell), newer), number, st.tag(*c)),
        seen=lambda *c: ite(at(c), disj(seen(c[2]), conj(added, c[2] == child)), st.seen(*c)),
        writer=lambda *c: ite(conj(same(c, cell), newer), child, st.writer(*c)),
        lanes=lambda *c: ite(at(c), lanes, st.lanes(*c)),
        final=lambda *c: ite(at(c), final, st.final(*c)),
        once=lambda *c: ite(at(c), once(*c[2:]), st.once(*c)),
        twice=lambda *c: ite(at(c), twice(*c[2:]), st.twice(*c)),
        sent=lambda *c: disj(of(c, up), st.sent(*c)),
        up_once=lambda *c: disj(conj(of(c, up), once(*c[2:])), st.up_once(*c)),
        up_twice=lambda *c: disj(conj(of(c, up), twice(*c[2:])), st.up_twice(*c)),
        down=lambda *c: disj(of(c, answers), st.down(*c)),
        down_is=lambda *c: disj(conj(of(c, answers), c[2] == lanes), st.down_is(*c)),
        down_once=lambda *c: disj(conj(of(c, answers), once(*c[2:])), st.down_once(*c)),
        down_twice=lambda *c: disj(conj(of(c, answers), twice(*c[2:])), st.down_twice(*c)),
    )


def _take(m: Model, st: State, node: Term, parent: Term, number: Term, lanes: Term) -> Step:
    """A switch takes its parent's RESULT and passes it down."""
    cell, packet = (node, m.fixed.parity(number)), (node, number)
    full = m.forall(("Node",), lambda u: implies(m.fixed.child(u, node), st.seen(*cell, u)))
    possible = conj(
        st.down(parent, number), st.down_is(parent, number, lanes), m.fixed.child(node, parent), neg(m.fixed.leaf(node)),
        st.written(node), neg(st.gone(node)),
        st.used(*cell), st.tag(*cell) == number if m.compares_tags else True, full, neg(st.final(*cell)),
    )  # fmt: skip
    return possible, st.but(
        final=lambda *c: disj(same(c, cell), st.final(*c)),
        lanes=lambda *c: ite(same(c, cell), lanes, st.lanes(*c)),
        down_is=lambda *c: disj(same(c, (*packet, lanes)), st.down_is(*c)),
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
        got=lambda *c: disj(same(c, (leaf, number)), st.got(*c)),
        misread=lambda *c: disj(conj(same(c, (leaf, number)), neg(right)), st.misread(*c)),
    )


_SECTION, _SLOT = "What a switch does", "p4/v1model/slot.p4:Slot"
_WHY = "Why S1–S6 hold at each level"  # noqa: RUF001 - a heading of the page
_CONTROLLER, _ARRIVALS = "controller/job_controller.py", "host_agent/protocol/arrivals.py"
ACTIONS = (
    Action("write", ("Node",), _write, _WHY, (f"{_CONTROLLER}:_install",)),
    Action("remove", ("Node",), _remove, _WHY, (f"{_CONTROLLER}:_withdraw",)),
    Action("other", _CELL, _other, _WHY, (_SLOT,)),
    Action("zero", ("Node",), _zero, _WHY, (_SLOT,)),
    Action("send", (*_PART, "Round"), _send, _SECTION, ("host_agent/protocol/departures.py:_send_next",)),
    Action(
        "contribute", ("Node", *_PART, "Value"), _contribute, _SECTION, (_SLOT, "p4/shared/tree.p4:PassUp")
    ),
    Action("take", ("Node", *_PART, "Value"), _take, _SECTION, (_SLOT, "p4/v1model/tree.p4:AnswerInTree")),
    Action("accept", ("Node", *_PART), _accept, _SECTION, (f"{_ARRIVALS}:_verdict_on_result",)),
)
