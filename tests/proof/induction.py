"""The proof by induction: the first state has each invariant, and every action keeps it."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import z3

from tests.proof.invariant import GUARANTEES, Guarantee, Invariant, invariants_of
from tests.proof.logic import State, Symbolic, Term, conj, implies, neg
from tests.proof.one_switch import STATE, Action, Model, Rules, symbolic
from tests.proof.one_switch_actions import ACTIONS

STEPS = tuple(n * 1_000_000 for n in (5, 5, 5, 20, 20, 40, 200))
"""Limits of the solver's attempts, in its own steps, so that a busy machine changes no answer."""
LAST_STEPS = (40_000_000,) * 12
"""Limits of further attempts by Z3's default solver: versions differ in which of its two solvers finds a proof."""
STEPS_WITHOUT_HINTS = (2_000_000,) * 10
"""Limits of the first attempts at a lemma that has hints: half of those that end do so within a third of a second."""

Few = Mapping[str, int] | None
"""Numbers of elements by sort."""


@dataclass(frozen=True)
class Verdict:
    """The solver's answer to a lemma; `expected` is that of a lemma that holds. Seconds are of the processor."""

    lemma: str
    answer: str
    expected: str
    seconds: float
    example: tuple[str, ...] = ()
    """Values other than 0 of packet, slot and entries that show that the lemma does not hold."""

    @property
    def holds(self) -> bool:
        """Whether the lemma is shown; `unknown` shows nothing."""
        return self.answer == self.expected


def ask(
    lemma: str,
    terms: list[Any],
    expected: str = "unsat",
    seed: int = 0,
    logic: str = "",
    limits: tuple[int, ...] = STEPS,
    few: Few = None,
    hints: Sequence[Any] = (),
) -> Verdict:
    """Ask the solver whether terms can hold together. `logic`: what they are of, if they have no quantifiers.

    A search that goes astray is begun again with another seed: most end in milliseconds with one of the first.
    `few`: look for a few elements of each sort alone. "sat" is then as good as without, and found at once.
    `hints`: instances of what is known, which some lemmas need and which lead the solver astray in others: the first attempts
    do without them.
    Each lemma has a context of its own, as how long a search takes depends on what its context has seen before.
    """
    begun = time.process_time()
    answer = "unknown"
    context = z3.Context()
    terms = [*terms, *_no_more_than(few)]
    terms, all_hints = ([_in(context, t) for t in each] for each in (terms, hints))
    attempts_without = len(STEPS_WITHOUT_HINTS) if hints else 0
    limits = (*STEPS_WITHOUT_HINTS[:attempts_without], *limits)
    shows = expected == "unsat" and not few
    for attempt, limit in enumerate((*limits, *(LAST_STEPS if shows and not logic else ()))):
        simple = shows and attempt < len(limits)
        kind = z3.SimpleSolver if simple else z3.Solver
        solver = z3.SolverFor(logic, context) if logic else kind(ctx=context)
        solver.set("rlimit", limit)
        solver.set("random_seed", seed + 1_000 * attempt)
        given = terms if attempt < attempts_without else [*terms, *all_hints]
        # In another order, too: the seed alone changes little.
        solver.add(*(given if attempt % 2 == 0 else given[::-1]))
        answer = str(solver.check())
        if answer == "sat" and attempt < attempts_without:
            answer, attempts_without = "unknown", 0
        if answer != "unknown":
            break
    example = _values(solver.model()) if logic and answer == "sat" != expected else ()
    return Verdict(lemma, answer, expected, time.process_time() - begun, example)


def _in(context: z3.Context, term: Any) -> Any:
    return z3.BoolVal(term, context) if isinstance(term, bool) else term.translate(context)


def _no_more_than(few: Few) -> Iterator[Any]:
    """Iterate over sentences that a sort has no more elements than some constants name."""
    for sort, number in (few or {}).items():
        element, *known = (z3.Const(f"{sort}#{n}", z3.DeclareSort(sort)) for n in range(number + 1))
        yield z3.ForAll([element], z3.Or(*(element == each for each in known)))


def first_not_so(
    asked: list[tuple[str, list[Any]]], seed: int = 0, logic: str = "", known: Sequence[Any] = ()
) -> Verdict | None:
    """Return the first lemma whose terms can hold together, easy ones first; None if none is found. `unknown` is none.

    `known`: models that may show it, which are tried before the solver is asked.
    """
    begun = time.process_time()
    wrong = [(name, z3.And(*terms)) for name, terms in asked]
    any_wrong = z3.Or(*(term for _, term in wrong))
    for model in known:
        if z3.is_true(model.eval(any_wrong, model_completion=True)):
            named = next(name for name, term in wrong if z3.is_true(model.eval(term, model_completion=True)))
            return Verdict(named, "sat", "unsat", time.process_time() - begun, _values(model))
    for limits in (STEPS[:1], STEPS[2:]):
        unknown = []
        for name, terms in asked:
            verdict = ask(name, terms, seed=seed, logic=logic, limits=limits)
            if verdict.answer == "sat":
                return verdict
            if verdict.answer == "unknown":
                unknown.append((name, terms))
        asked = unknown
    return None


def model_of(terms: list[Any], logic: str, seed: int = 0) -> Any:
    """Return values with which terms hold together."""
    solver = z3.SolverFor(logic)
    solver.set("random_seed", seed)
    solver.add(*terms)
    assert solver.check() == z3.sat
    return solver.model()


def _values(model: Any) -> tuple[str, ...]:
    known = [(d.name(), model[d]) for d in model.decls() if d.arity() == 0]
    return tuple(sorted(f"{name} = {value}" for name, value in known if str(value) not in ("0", "False")))


def _first(m: Model, st: State) -> list[Any]:
    """Return what is known of the first state: nothing was ever handed out, sent or stored."""
    empty = [name for name, (_, values) in STATE.items() if values == "Bool"]
    terms = [m.forall(STATE[name][0], lambda *c, f=st.functions[name]: neg(f(*c))) for name in empty]
    cells: tuple[str, ...] = ("Slot", "Bool")
    terms.append(m.forall(cells, lambda s, v: st.number(s, v) == m.zero))
    return terms


def _between(m: Model, rounds: list[Term]) -> Iterator[Term]:
    """Between two rounds of one version lies another one: instances, as the solver does not end with the sentence about all."""
    assert isinstance(m.logic, Symbolic)
    for earlier in rounds:
        for later in rounds:
            if earlier is not later:
                middle = m.logic.constant("Round", "between")
                alike = m.version(earlier) == m.version(later) if m.rules.two_versions else False
                before = m.fixed.before
                if alike is not False:
                    yield implies(
                        conj(before(earlier, later), alike),
                        conj(before(earlier, middle), before(middle, later)),
                    )


def changes(before: State, after: State) -> set[str]:
    """Return the names of the functions that an action changes."""
    return {name for name, f in after.functions.items() if f is not before.functions[name]}


class Reads(State):
    """A state that notes which of its functions are read."""

    def __init__(self, state: State) -> None:
        super().__init__(state.functions)
        self.read: set[str] = set()

    def __getattr__(self, name: str) -> Callable[..., Term]:
        self.read.add(name)
        return self.functions[name]


def _elements(m: Model, sorts: tuple[str, ...], prefix: str) -> list[Term]:
    assert isinstance(m.logic, Symbolic)
    return [m.logic.constant(sort, prefix) for sort in sorts]


def _hypotheses(m: Model, st: State, guarantee: Guarantee) -> list[Any]:
    return [m.forall(i.sorts, lambda *c, i=i: i.body(m, st, *c)) for i in invariants_of(guarantee)]


def prove(
    guarantee: Guarantee, rules: Rules | None = None, seed: int = 0, few: Few = None
) -> Iterator[Verdict]:
    """Ask for each invariant of a guarantee whether the first state has it and each action keeps it."""
    for invariant in guarantee.invariants:
        yield _prove_first(guarantee, invariant, rules or Rules(), seed)
        for action in ACTIONS:
            verdict = _prove_step(guarantee, invariant, action, rules or Rules(), seed, few)
            if verdict:
                yield verdict


def _prove_first(guarantee: Guarantee, invariant: Invariant, rules: Rules, seed: int) -> Verdict:
    m, st, terms = symbolic(rules)
    goal = invariant.body(m, st, *_elements(m, invariant.sorts, "goal"))
    return ask(
        f"{guarantee.name}: {invariant.name} | first state", [*terms, *_first(m, st), neg(goal)], seed=seed
    )


def _prove_step(
    guarantee: Guarantee, invariant: Invariant, action: Action, rules: Rules, seed: int, few: Few = None
) -> Verdict | None:
    m, st, terms = symbolic(rules)
    chosen = _elements(m, action.sorts, action.name)
    possible, after = action.take(m, st, *chosen)
    goals = _elements(m, invariant.sorts, "goal")
    reads = Reads(after)
    goal = invariant.body(m, reads, *goals)
    if not reads.read & changes(st, after) and invariant in GUARANTEES[guarantee.name].invariants:
        return None  # the invariant is of nothing that the action changes
    rounds = [t for t, sort in zip(chosen, action.sorts, strict=True) if sort == "Round"]
    wanted = [t for t, sort in zip(goals, invariant.sorts, strict=True) if sort == "Round"]
    slots = [
        t for t, sort in zip(chosen + goals, action.sorts + invariant.sorts, strict=True) if sort == "Slot"
    ]
    stored = [st.round(s, m.version(r)) for s in slots[-1:] for r in wanted[:1]]
    between = list(_between(m, rounds[:1] + wanted + stored)) if guarantee.name in ("R1", "R2") else []
    hypotheses = _hypotheses(m, st, guarantee)
    return ask(
        f"{guarantee.name}: {invariant.name} | {action.name}",
        [*terms, *hypotheses, possible, *between, neg(goal)], seed=seed, few=few,
    )  # fmt: skip


def possible(action: Action, seed: int = 0) -> Verdict:
    """Ask whether an action is possible at all, in a state that has all invariants."""
    m, st, terms = symbolic(Rules())
    can, _ = action.take(m, st, *_elements(m, action.sorts, action.name))
    hypotheses = [h for g in GUARANTEES.values() for h in _hypotheses(m, st, GUARANTEES[g.name])]
    return ask(f"{action.name} is possible", [*terms, *hypotheses, can], "sat", seed)


def inductive(
    name: str,
    symbolic_model: Callable[[], tuple[Any, State, list[Any]]],
    actions: tuple[Action, ...],
    invariants: tuple[Invariant, ...],
    instances: Callable[..., list[Any]],
    seed: int,
    *,
    goals: tuple[Invariant, ...] = (),
    has_models: bool = True,
    few: Few = None,
    hints: Callable[..., list[Any]] = lambda *_: [],
) -> Iterator[Verdict]:
    """Ask the same of a model with one group of invariants, in whose first state no relation holds.

    `goals`: those of them to be shown, if not all. `instances`, `hints`: of what is known, for the elements of a step.
    `few`: look for a counterexample of a few elements to the steps alone. `has_models`: whether the solver finds a model of
    the invariants, to show that each action is possible; if not, runs of a few elements show it.
    """

    def hypotheses(m: Any, st: State) -> list[Any]:
        return [m.forall(i.sorts, lambda *c, i=i: i.body(m, st, *c)) for i in invariants]

    def elements(m: Any, sorts: tuple[str, ...], prefix: str) -> list[Any]:
        return [m.logic.constant(sort, prefix) for sort in sorts]

    for action in actions:
        for invariant in goals or invariants:
            m, st, known = symbolic_model()
            chosen, wanted = elements(m, action.sorts, action.name), elements(m, invariant.sorts, "goal")
            can, after = action.take(m, st, *chosen)
            reads = Reads(after)
            goal = invariant.body(m, reads, *wanted)
            if reads.read & changes(st, after):
                terms = [*known, *hypotheses(m, st), can, *instances(m, st, chosen, wanted), neg(goal)]
                more = hints(m, st, chosen, wanted)
                yield ask(f"{name}: {invariant.name} | {action.name}", terms, seed=seed, few=few, hints=more)
        if few or not has_models:
            continue
        m, st, known = symbolic_model()
        can, _ = action.take(m, st, *elements(m, action.sorts, action.name))
        yield ask(f"{name}: {action.name} is possible", [*known, *hypotheses(m, st), can], "sat", seed)
    for invariant in () if few else goals or invariants:
        m, st, known = symbolic_model()
        none = [
            m.forall(tuple(str(f.domain(i)) for i in range(f.arity())), lambda *c, f=f: neg(f(*c)))
            for f in st.functions.values()
            if isinstance(f, z3.FuncDeclRef) and f.range() == z3.BoolSort()
        ]
        goal = invariant.body(m, st, *elements(m, invariant.sorts, "goal"))
        yield ask(f"{name}: {invariant.name} | first state", [*known, *none, neg(goal)], seed=seed)
