"""Theorems of trees: S1, and R1, R2, S2 with epochs; runs without a rule."""

from collections.abc import Callable, Iterator
from typing import Any

from tests.proof.faults import FaultRun, random_runs, search
from tests.proof.induction import Few, Verdict, inductive
from tests.proof.invariant import Invariant
from tests.proof.logic import Finite, State, Symbolic, Term, conj, disj, implies, ite, neg
from tests.proof.trees import ACTIONS, FIXED, STATE, Model


def _below(m: Model, worker: Term, node: Term) -> Term:
    return conj(m.fixed.leaf(worker), m.fixed.under(worker, node))


SUMS = (
    Invariant(
        "a sum that goes up has one contribution of each worker below", ("Node", "Round", "Node", "Round"),
        lambda m, st, u, r, w, q: conj(
            st.up_once(u, r, w, q) == conj(st.sent(u, r), _below(m, w, u), q == r), neg(st.up_twice(u, r, w, q))
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
                        conj(_below(m, w, n), st.seen(n, v, m.fixed.toward(n, w))),
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


def _holds(m: Model, st: State, n: Term, r: Term, u: Term) -> Term:
    """Whether a switch's slot holds a round, and a child, if it is one, is in `seen`."""
    cell = (n, m.fixed.parity(r))
    return conj(st.used(*cell), st.tag(*cell) == r, implies(m.fixed.child(u, n), st.seen(*cell, u)))


def _has_moved_on(m: Model, st: State, n: Term, r: Term) -> Term:
    cell = (n, m.fixed.parity(r))
    return conj(st.used(*cell), m.fixed.before(r, st.tag(*cell)))


def _is_kept(st: State, n: Term) -> Term:
    return conj(neg(st.zeroed()), neg(st.gone(n)))


ROUNDS = (
    Invariant(
        "a sum goes up when everything under it has been sent", ("Node", "Node", "Round"),
        lambda m, st, u, x, r: implies(conj(st.sent(u, r), m.fixed.under(x, u)), st.sent(x, r)),
    ),
    Invariant(
        "a RESULT goes down when everything has been sent", ("Node", "Node", "Round"),
        lambda m, st, n, x, r: implies(conj(st.down(n, r), x != m.root), st.sent(x, r)),
    ),
    Invariant(
        "what a worker has, all have contributed to", ("Node", "Node", "Round"),
        lambda m, st, w, x, r: implies(conj(st.got(w, r), m.fixed.leaf(x)), st.sent(x, r)),
    ),
    Invariant(
        "a worker has the RESULTs of all its earlier rounds", ("Node", "Round", "Round"),
        lambda m, st, w, r, q: implies(
            conj(m.fixed.leaf(w), st.sent(w, r), m.fixed.before(q, r)), st.got(w, q)
        ),
    ),
    Invariant(
        "children in `seen` have sent the tag, and the one that came first is among them", ("Node", "Bool", "Node"),
        lambda m, st, n, v, u: implies(
            st.used(n, v),
            conj(
                neg(m.fixed.leaf(n)), st.written(n), m.fixed.parity(st.tag(n, v)) == v,
                implies(st.seen(n, v, u), conj(st.sent(u, st.tag(n, v)), m.fixed.child(u, n))),
                implies(conj(st.final(n, v), m.fixed.child(u, n)), st.seen(n, v, u)),
                st.seen(n, v, st.writer(n, v)),
            ),
        ),
    ),
    Invariant(
        "R1: no contribution to a round in flight is stale on any level", ("Node", "Node", "Round"),
        lambda m, st, w, n, r: implies(
            conj(_below(m, w, n), neg(m.fixed.leaf(n)), st.sent(w, r), neg(st.got(w, r))), neg(_has_moved_on(m, st, n, r))
        ),
    ),
    Invariant(
        "a switch's sum, or the root's RESULT, is in its slot, or the slot has moved on", ("Node", "Round", "Node"),
        lambda m, st, n, r, u: implies(
            conj(neg(m.fixed.leaf(n)), disj(st.sent(n, r), conj(n == m.root, st.down(n, r)))),
            conj(st.written(n), implies(_is_kept(st, n), disj(_holds(m, st, n, r, u), _has_moved_on(m, st, n, r)))),
        ),
    ),
    Invariant(
        "a RESULT goes down behind the root's", ("Node", "Round"), lambda m, st, n, r: implies(st.down(n, r), st.down(m.root, r))
    ),
    Invariant(
        "R2: a RESULT that a worker needs is in its slot on all levels", ("Node", "Node", "Round", "Node"),
        lambda m, st, w, n, r, u: implies(
            conj(
                st.down(m.root, r), m.fixed.leaf(w), neg(st.got(w, r)), m.fixed.under(w, n), neg(m.fixed.leaf(n)),
                _is_kept(st, n),
            ),
            _holds(m, st, n, r, u),
        ),
    ),
    Invariant(
        "S2: a RESULT that goes down has the root's lanes", ("Node", "Round", "Value"),
        lambda m, st, n, r, x: implies(st.down_is(n, r, x), conj(st.down_is(m.root, r, x), st.down(n, r))),
    ),
    Invariant(
        "a final slot has the root's lanes", ("Node", "Bool"),
        lambda m, st, n, v: implies(
            conj(st.used(n, v), st.final(n, v)), conj(n != m.root, st.down_is(m.root, st.tag(n, v), st.lanes(n, v)))
        ),
    ),
    Invariant(
        "the root's lanes are in its slot, or the slot has moved on", ("Round", "Value", "Node"),
        lambda m, st, r, x, u: implies(
            conj(st.down_is(m.root, r, x), _is_kept(st, m.root)),
            disj(
                conj(_holds(m, st, m.root, r, u), st.lanes(m.root, m.fixed.parity(r)) == x),
                _has_moved_on(m, st, m.root, r),
            ),
        ),
    ),
    Invariant(
        "S2: RESULTs of a round have the same lanes", ("Round", "Value", "Value"),
        lambda m, st, r, x, y: implies(
            conj(st.down_is(m.root, r, x), st.down_is(m.root, r, y), neg(st.zeroed())), x == y
        ),
    ),
)  # fmt: skip


def symbolic(has_paths: bool = True, **rules: bool) -> tuple[Model, State, list[Any]]:
    """Return the model of any tree, a state of it, and what makes it a tree; `has_paths`: also which child a node is under."""
    logic = Symbolic()
    f = State({name: logic.function(name, signature) for name, signature in FIXED.items()})
    m = Model(logic, f, logic.constant("Node", "root"), logic.constant("Round", "first"), **rules)
    two, three = ("Node",) * 2, ("Node",) * 3
    known = [
        m.forall(("Round",), lambda a: neg(f.before(a, a))),
        m.forall(("Round", "Round"), lambda a, b: disj(f.before(a, b), a == b, f.before(b, a))),
        m.forall(("Round",) * 3, lambda a, b, c: implies(conj(f.before(a, b), f.before(b, c)), f.before(a, c))),
        m.forall(("Round",), lambda a: neg(f.before(a, m.first))),
        m.forall(("Node",), lambda u: conj(f.under(u, u), f.under(u, m.root), neg(f.child(m.root, u)))),
        m.forall(two, lambda x, u: implies(conj(f.leaf(u), f.under(x, u)), x == u)),
        m.forall(two, lambda u, n: implies(f.child(u, n), neg(f.leaf(n)))),
        neg(f.leaf(m.root)),
    ]  # fmt: skip
    if has_paths:
        known += [
            m.forall(three, lambda u, n, x: implies(
                conj(f.child(u, n), f.under(x, u)), conj(f.under(x, n), f.toward(n, x) == u)
            )),
            m.forall(two, lambda n, x: implies(
                conj(f.under(x, n), x != n), conj(f.child(f.toward(n, x), n), f.under(x, f.toward(n, x)))
            )),
        ]  # fmt: skip
    return m, State({name: logic.function(name, signature) for name, signature in STATE.items()}), known


def _instances(m: Model, st: State, chosen: list[Term], goals: list[Term]) -> list[Term]:
    """Return instances: a leaf under each node, paths from the action to the goal, rounds between two of one version."""
    assert isinstance(m.logic, Symbolic)
    acting, wanted = (_of(m, "Node", elements) for elements in (chosen, goals))
    rounds = _of(m, "Round", chosen + goals)
    return [
        *(_leaf(m, n) for n in (*acting, *wanted)),
        *(_path(m, n, x) for n in acting for x in wanted),
        *(_between(m, earlier, later) for earlier in rounds for later in rounds if earlier is not later),
    ]


def _hints(m: Model, st: State, chosen: list[Term], goals: list[Term]) -> list[Term]:
    """Return more instances: a leaf under a slot's writer, paths from goals and the root, a round before a slot's tag."""
    wanted, rounds = _of(m, "Node", goals), _of(m, "Round", chosen + goals)
    nodes = [*_of(m, "Node", chosen), *wanted, m.root]
    cells = [(r, (n, m.fixed.parity(r))) for r in rounds[:2] + rounds[-1:] for n in nodes]
    return [
        _leaf(m, m.root),
        *(sentence for r, cell in cells for sentence in (_leaf(m, st.writer(*cell)), _between(m, r, st.tag(*cell)))),
        *(_path(m, n, x) for n in (*wanted, m.root) for x in nodes),
    ]  # fmt: skip


def _of(m: Model, sort: str, elements: list[Term]) -> list[Term]:
    assert isinstance(m.logic, Symbolic)
    return [e for e in elements if e.sort() == m.logic.sort(sort)]


def _path(m: Model, n: Term, x: Term) -> Term:
    f = m.fixed
    return implies(conj(f.under(x, n), x != n), conj(f.child(f.toward(n, x), n), f.under(x, f.toward(n, x))))


def _leaf(m: Model, node: Term) -> Term:
    f = m.fixed
    return conj(f.leaf(f.some(node)), f.under(f.some(node), node))


def _between(m: Model, earlier: Term, later: Term) -> Term:
    assert isinstance(m.logic, Symbolic)
    f, middle = m.fixed, m.logic.constant("Round", "between")
    alike = conj(f.before(earlier, later), f.parity(earlier) == f.parity(later))
    return implies(alike, conj(f.before(earlier, middle), f.before(middle, later)))


def lemmas(seed: int = 0, few: Few = None, **rules: bool) -> Iterator[Verdict]:
    """Ask for each lemma; a rule that is False is left out of the model."""

    def shown(
        group: tuple[Invariant, ...], goals: tuple[Invariant, ...], has_paths: bool, **instances: Any
    ) -> Iterator[Verdict]:
        return inductive(
            "trees", lambda: symbolic(has_paths, **rules), ACTIONS, group,
            seed=seed, goals=goals, has_models=False, few=few, **instances,
        )  # fmt: skip

    yield from shown(SUMS, SUMS, True, instances=lambda *_: [])
    yield from shown(ROUNDS, ROUNDS, False, instances=_instances, hints=_hints)


FEW = {"Node": 3, "Round": 3, "Value": 1}
"""Elements that a lemma's counterexample is looked for with."""
FAULTS = {
    "compares_tags": "S1",
    "checks_bit": "S1",
    "waits_for_result": "R1",
    "waits_for_all": "S1",
    "is_alone": "R2",
}
"""By rule: the theorem that fails without it."""


def _small(deep: bool, rounds: int, **rules: bool) -> Model:
    """Return a worker below two switches, or two workers below one."""
    f: dict[str, Callable[..., Term]] = {
        "before": lambda a, b: a < b,
        "parity": lambda r: r % 2 == 1,
        "leaf": lambda n: n == 2 if deep else n > 0,
        "child": lambda u, n: u == n + 1 if deep else n == 0 and u > 0,
        "under": lambda x, n: x >= n if deep else n in (0, x),
        "toward": lambda n, x: min(n + 1, 2) if deep else x,
        "some": lambda n: 2 if deep else max(n, 1),
    }
    return Model(Finite({"Node": 3, "Round": rounds, "Value": 1}), State(f), 0, 0, **rules)


def run_without(rule: str) -> FaultRun:
    """Search for a run that has a theorem no longer."""
    rounds = 3 if rule in ("compares_tags", "waits_for_result") else 1
    m = _small(rule in ("compares_tags", "checks_bit"), rounds, **{rule: False})
    assert isinstance(m.logic, Finite)
    actions = tuple(
        a for a in ACTIONS if a.name not in ("zero", "remove") and (a.name != "other" or rule == "is_alone")
    )
    theorem = next(i for i in (*SUMS, *ROUNDS) if i.name.startswith(FAULTS[rule]))
    return search(m, m.logic, STATE, actions, theorem)


def actions_taken(runs: int = 8, length: int = 25) -> set[str]:
    """Take random runs, and check every invariant in every state; return the actions that were possible."""
    m = _small(deep=True, rounds=2)
    return random_runs(m, STATE, ACTIONS, [*SUMS, *ROUNDS], {"zero", "other", "remove"}, runs, length)[0]
