"""Faults of the protocol: the rule that each one breaks, the guarantee that fails without it, and a run that shows it."""

import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from tests.proof.induction import Verdict, prove
from tests.proof.invariant import GUARANTEES, Invariant
from tests.proof.logic import Finite, Signature, State, Term
from tests.proof.one_switch import FIXED, STATE, Action, Model, Rules
from tests.proof.one_switch_actions import ACTIONS

MOST_STATES = 300_000
FEW = {"Worker": 2, "Slot": 1, "Round": 3, "Epoch": 2, "Value": 2, "Collective": 3, "Number": 3}
"""Elements that a lemma's counterexample is looked for with."""
_RUN = ("issue", "write_entry", "send", "contribute", "accept")
_NEW_EPOCH = (*_RUN, "end", "delete_entry")


@dataclass(frozen=True)
class Fault:
    """A broken rule, the theorem that fails, and where to look for the run: sizes and actions."""

    name: str
    rules: Rules
    guarantee: str
    theorem: str
    workers: int = 2
    rounds: int = 2
    epochs: int = 1
    values: int = 1
    actions: tuple[str, ...] = _RUN
    numbers: tuple[int, ...] = (1, 2)  # of the epochs
    disagree: bool = False
    still: tuple[str, ...] = field(default=())
    """Guarantees that hold all the same."""


S1_TAKEN = "no worker takes other contributions for a chunk"
R1_STALE = "no chunk in flight is stale"
R2_NEEDED = "a RESULT that is needed is in its slot"

FAULTS: tuple[Fault, ...] = (
    Fault("SwitchML's algorithm, which has no tags", Rules(tags=False), "S1", S1_TAKEN, rounds=3),
    Fault("a worker's bit in `seen` is not looked at", Rules(checks_bit=False), "S1", S1_TAKEN, rounds=1),
    Fault(
        "a worker does not compare the RESULT's chunk", Rules(compares_result_chunk=False), "S1", S1_TAKEN, rounds=3
    ),
    Fault(
        "the switch does not compare epochs", Rules(compares_epochs=False), "S1", S1_TAKEN, rounds=1, epochs=2,
        actions=_NEW_EPOCH,
    ),
    Fault(
        "an epoch's number is handed out again", Rules(numbers_are_new=False), "S1", S1_TAKEN, rounds=1, epochs=2,
        actions=_NEW_EPOCH, numbers=(1, 1),
    ),
    Fault("one version", Rules(two_versions=False), "R1", R1_STALE, still=("epochs", "S1", "S6")),
    Fault(
        "chunk c + S is sent before the RESULT of c", Rules(waits_for_result=False), "R1", R1_STALE, rounds=3,
        still=("epochs", "S1", "S6"),
    ),
    Fault(
        "older and newer are exchanged", Rules(drops_older=False), "R1", R1_STALE, rounds=3, still=("epochs", "S1", "S6")
    ),
    Fault(
        "stale contributions overwrite", Rules(drops_stale=False), "R2", R2_NEEDED, rounds=3,
        still=("epochs", "S1", "S6"),
    ),
    Fault(
        "epochs with the same slots side by side", Rules(ends_before_it_begins=False), "R2", R2_NEEDED, rounds=1,
        epochs=2, still=("epochs", "S1", "S6"),
    ),
    Fault(
        "epochs with the same slots side by side, for S4", Rules(ends_before_it_begins=False), "S4",
        "entries of another epoch for the same slots are gone", rounds=1, epochs=2,
    ),
    Fault(
        "a RESULT is promised after the registers were zeroed", Rules(restarts_void_results=False), "R2", R2_NEEDED,
        rounds=1, actions=(*_RUN, "zero_registers"), still=("epochs", "S1", "S6"),
    ),
    Fault(
        "the same lanes are promised after the registers were zeroed", Rules(restarts_void_results=False), "S2",
        "RESULTs of a chunk have the same lanes", rounds=1, values=2, actions=(*_RUN, "zero_registers"),
        still=("epochs", "S1", "S6"),
    ),
    Fault(
        "the switch does not compare collectives", Rules(compares_collectives=False), "S6",
        "a worker that has a RESULT agrees with all", rounds=1, disagree=True,
    ),
    Fault(
        "a header completes a chunk whose lanes are needed", Rules(takes_needed_lanes=False), "S1",
        "a worker has the lanes that it needs", rounds=1, actions=(*_RUN, "accept_header"),
    ),
    Fault(
        "a job moves before all have ended what one has begun", Rules(moves_at_boundary=False), "moves",
        "no worker of a moved epoch waits", rounds=1, actions=(*_RUN, "move"),
    ),
)  # fmt: skip


@dataclass(frozen=True)
class FaultRun:
    """Steps from the first state to one without the theorem; `states`: how many were looked at."""

    steps: tuple[str, ...]
    states: int


def model_of(fault: Fault) -> Model:
    """Return the finite model of a fault."""
    sizes = {
        "Worker": fault.workers, "Slot": 1, "Round": fault.rounds, "Epoch": fault.epochs, "Value": fault.values,
        "Collective": 3, "Number": 3, "Int": 1,
    }  # fmt: skip
    fixed: dict[str, Callable[..., Term]] = {
        "owns": lambda e, s: True,
        "member": lambda e, w: True,
        "number_of": lambda e: fault.numbers[e],
        "workers_of": lambda e: fault.workers,
        "spares": lambda e, w, s, r: False,
        "means": lambda e, w, s, r: 2 if fault.disagree and w == 1 else 1,
        "parity": lambda r: r % 2 == 1,
        "before": lambda a, b: a < b,
    }
    assert fixed.keys() == FIXED.keys()
    return Model(Finite(sizes), fault.rules, State(fixed), 0, 0, 0)


Tables = dict[str, dict[tuple[Any, ...], Any]]


def _first(logic: Finite, signatures: dict[str, Signature]) -> Tables:
    return {
        name: dict.fromkeys(logic.tuples(sorts), False if values == "Bool" else 0)
        for name, (sorts, values) in signatures.items()
    }


@dataclass(frozen=True, eq=False)
class _Reader:
    """A table, read as a function."""

    table: dict[tuple[Any, ...], Any]

    def __call__(self, *elements: Any) -> Any:
        return self.table[elements]


def _as_state(tables: Tables) -> State:
    return State({name: _Reader(table) for name, table in tables.items()})


def _key(tables: Tables) -> tuple[Any, ...]:
    return tuple(tuple(table.values()) for table in tables.values())


def steps_from(
    m: Any, logic: Finite, tables: Tables, actions: tuple[Action, ...]
) -> Iterator[tuple[Action, tuple[Any, ...], State]]:
    """Iterate over the possible steps from a state, and the functions after them."""
    state = _as_state(tables)
    for action in actions:
        for chosen in logic.tuples(action.sorts):
            possible, after = action.take(m, state, *chosen)
            if possible:
                yield action, chosen, after


def _tabulated(tables: Tables, after: State) -> Tables:
    """Return the tables after a step: the values of functions of a state's tables."""
    return {
        name: table if isinstance(f, _Reader) else {c: f(*c) for c in table}
        for (name, table), f in zip(tables.items(), after.functions.values(), strict=True)
    }


def in_words(action: Action, chosen: tuple[Any, ...]) -> str:
    """Return a step in words."""
    words = ", ".join(
        f"{sort.lower()} {value}" for sort, value in zip(action.sorts, chosen, strict=True) if sort != "Slot"
    )
    return f"{action.name}({words})"


def lemmas_that_fail(fault: Fault, seed: int = 0) -> Verdict:
    """Ask for the lemmas of a guarantee, and of those it rests on, until a counterexample of a few elements is found."""
    guarantee = GUARANTEES[fault.guarantee]
    asked = (
        prove(GUARANTEES[name], fault.rules, seed, FEW) for name in (fault.guarantee, *guarantee.rests_on)
    )
    return first_that_fails(fault.name, chain.from_iterable(asked))


def first_that_fails(name: str, verdicts: Iterable[Verdict]) -> Verdict:
    """Return that a lemma fails, by a counterexample of the solver, or that none does."""
    begun = time.process_time()
    failed = next((v.lemma for v in verdicts if v.answer == "sat" != v.expected), None)
    words = f"not so: {failed}" if failed else "nothing fails"
    answer = "noticed" if failed else "missed"
    return Verdict(f"{name}: {words}", answer, "noticed", time.process_time() - begun)


def holds_in(m: Any, invariant: Invariant, state: State) -> bool:
    """Return whether a state of a finite model has an invariant."""
    return bool(m.forall(invariant.sorts, lambda *c: invariant.body(m, state, *c)))


def shortest_run(fault: Fault) -> FaultRun:
    """Search all runs of a fault's model, shortest first, for a state without the theorem."""
    m = model_of(fault)
    assert isinstance(m.logic, Finite)
    actions = tuple(a for a in ACTIONS if a.name in fault.actions)
    theorem = next(i for i in GUARANTEES[fault.guarantee].invariants if i.name == fault.theorem)
    return search(m, m.logic, STATE, actions, theorem)


def search(
    m: Any, logic: Finite, signatures: dict[str, Signature], actions: tuple[Action, ...], theorem: Invariant
) -> FaultRun:
    """Search all runs of a model of a few elements, shortest first, for a state without a theorem."""
    tables = _first(logic, signatures)
    origin: dict[tuple[Any, ...], tuple[tuple[Any, ...] | None, str]] = {_key(tables): (None, "")}
    queue = deque([tables])
    while queue and len(origin) <= MOST_STATES:
        tables = queue.popleft()
        before = _key(tables)
        for action, chosen, after in steps_from(m, logic, tables, actions):
            reached = _tabulated(tables, after)
            key = _key(reached)
            if key in origin:
                continue
            origin[key] = (before, in_words(action, chosen))
            if not holds_in(m, theorem, _as_state(reached)):
                return FaultRun(tuple(_steps(origin, key)), len(origin))
            queue.append(reached)
    raise RuntimeError(f"no run to a state without {theorem.name!r} among {len(origin):,} states")


def runs_and_reached(seed: int = 0, runs: int = 8, length: int = 40) -> tuple[set[str], int]:
    """Take random runs of one switch without faults: the names of the actions taken, and how many states were checked."""
    m = model_of(Fault("none", Rules(), "", "", rounds=3, epochs=2))
    m.fixed = m.fixed.but(spares=lambda e, w, s, r: w == 1)
    invariants = [i for guarantee in GUARANTEES.values() for i in guarantee.invariants]
    rare = {"zero_registers", "forget", "stop", "end", "move"}
    return random_runs(m, STATE, ACTIONS, invariants, rare, runs, length, seed)


def random_runs(
    m: Any,
    signatures: dict[str, Signature],
    actions: tuple[Action, ...],
    invariants: list[Invariant],
    rare: set[str],
    runs: int,
    length: int,
    seed: int = 0,
) -> tuple[set[str], int]:
    """Take random runs, and check invariants in every state: the names of the actions taken, and how many states there were."""
    rng = random.Random(seed)
    taken: set[str] = set()
    states: set[tuple[Any, ...]] = set()
    for _ in range(runs):
        tables = _first(m.logic, signatures)
        for _ in range(length):
            steps = list(steps_from(m, m.logic, tables, actions))
            names = sorted({action.name for action, _, _ in steps})
            name = rng.choices(names, [0.1 if name in rare else 1.0 for name in names])[0]
            action, _, after = rng.choice([step for step in steps if step[0].name == name])
            taken.add(action.name)
            tables = _tabulated(tables, after)
            if _key(tables) not in states:
                states.add(_key(tables))
                state = _as_state(tables)
                missing = [i.name for i in invariants if not holds_in(m, i, state)]
                assert not missing, missing
    return taken, len(states)


def _steps(
    origin: dict[tuple[Any, ...], tuple[tuple[Any, ...] | None, str]], key: tuple[Any, ...]
) -> list[str]:
    steps: list[str] = []
    while True:
        before, words = origin[key]
        if before is None:
            return steps[::-1]
        steps.append(words)
        key = before
