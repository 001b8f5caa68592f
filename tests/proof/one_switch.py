"""The protocol on one switch: state, hypotheses, actions. Faults are rules that differ.

The network is what was ever sent: a packet may be delivered at any time, any number of times, or never. So a loss, a
repetition, a delay and a retransmission need no action of their own. A chunk is a slot and a round; nothing relates the
rounds of two slots, which allows more than the workers do. `Epoch` is an epoch with its token, `Number` is the epoch's
number, which the switch stores.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.proof.logic import Finite, Signature, State, Symbolic, Term, conj, disj, implies, ite, neg, same


@dataclass(frozen=True)
class Rules:
    """The protocol's rules; a fault is one that is False."""

    tags: bool = True  # else SwitchML's algorithm: a bit for each worker and version, no tag
    compares_epochs: bool = True
    checks_bit: bool = True
    two_versions: bool = True
    waits_for_result: bool = True
    drops_older: bool = True  # else it drops newer ones
    drops_stale: bool = True  # else stale ones overwrite
    compares_collectives: bool = True
    compares_result_chunk: bool = True
    compares_result_collective: bool = True
    ends_before_it_begins: bool = True
    numbers_are_new: bool = True
    restarts_void_results: bool = True  # else what a switch that restarts has lost is promised too


STATE: dict[str, Signature] = {
    # The controller: epochs handed out, those whose entries are being deleted, those it remembers, and the entries.
    "issued": (("Epoch",), "Bool"),
    "ended": (("Epoch",), "Bool"),
    "remembered": (("Epoch",), "Bool"),
    "written": (("Epoch",), "Bool"),  # an entry has been
    "kept": (("Epoch",), "Bool"),  # no register has been zeroed since it was handed out
    "admitted": (("Epoch", "Worker"), "Bool"),
    # Workers: processes that are gone, contributions sent, RESULTs accepted, and of which lanes.
    "stopped": (("Epoch", "Worker"), "Bool"),
    "sent": (("Epoch", "Worker", "Slot", "Round"), "Bool"),
    "got": (("Epoch", "Worker", "Slot", "Round"), "Bool"),
    "took": (("Epoch", "Worker", "Slot", "Round", "Value"), "Bool"),
    "misread": (
        ("Epoch", "Worker", "Slot", "Round"),
        "Bool",
    ),  # for the proof: not exactly one contribution of each
    # The network: RESULTs sent, with collective and lanes.
    "result": (("Epoch", "Slot", "Round", "Collective", "Value"), "Bool"),
    "wrong": (("Epoch", "Slot", "Round"), "Bool"),  # for the proof: one was sent of other contributions
    # The switch, for each slot and version.
    "number": (("Slot", "Bool"), "Number"),
    "round": (("Slot", "Bool"), "Round"),
    "collective": (("Slot", "Bool"), "Collective"),
    "seen": (("Slot", "Bool", "Worker"), "Bool"),
    "lanes": (("Slot", "Bool"), "Value"),
    "count": (("Slot", "Bool"), "Int"),  # in SwitchML's algorithm
    # For the proof: whose tag it is, who wrote it, and which contributions are in the lanes, at least once and twice.
    "holder": (("Slot", "Bool"), "Epoch"),
    "writer": (("Slot", "Bool"), "Worker"),
    "once": (("Slot", "Bool", "Worker", "Epoch", "Round"), "Bool"),
    "twice": (("Slot", "Bool", "Worker", "Epoch", "Round"), "Bool"),
}

FIXED: dict[str, Signature] = {
    "owns": (("Epoch", "Slot"), "Bool"),
    "member": (("Epoch", "Worker"), "Bool"),
    "number_of": (("Epoch",), "Number"),
    "workers_of": (("Epoch",), "Int"),
    "means": (("Epoch", "Worker", "Slot", "Round"), "Collective"),  # op and fingerprint, as a worker has them
    "parity": (("Round",), "Bool"),
    "before": (("Round", "Round"), "Bool"),
}


@dataclass
class Model:
    """Constants of a run."""

    logic: Symbolic | Finite
    rules: Rules
    fixed: State
    zero: Term  # number of no epoch
    disputed: Term  # the collective of no packet
    first: Term  # round

    def forall(self, sorts: tuple[str, ...], body: Callable[..., Term]) -> Term:
        """Return whether a body holds for all elements."""
        return self.logic.forall(sorts, body)

    def version(self, number: Term) -> Term:
        """Return the pool version of a round."""
        return self.fixed.parity(number) if self.rules.two_versions else False

    def follows(self, earlier: Term, later: Term) -> Term:
        """Return whether a round is the next one."""
        before = self.fixed.before
        between = self.forall(("Round",), lambda c: neg(conj(before(earlier, c), before(c, later))))
        return conj(before(earlier, later), between)

    def is_stale(self, state: State, epoch: Term, slot: Term, number: Term) -> Term:
        """Return whether the switch drops a contribution as older than its slot."""
        version = self.version(number)
        stored = state.round(slot, version)
        older = self.fixed.before(number, stored)
        if not self.rules.drops_older:
            older = self.fixed.before(stored, number)
        return conj(self.rules.drops_stale, self.is_same_epoch(state, epoch, slot, version), older)

    def is_same_epoch(self, state: State, epoch: Term, slot: Term, version: Term) -> Term:
        """Return whether a slot's tag has the number of an epoch."""
        if not self.rules.compares_epochs:
            return state.number(slot, version) != self.zero
        return state.number(slot, version) == self.fixed.number_of(epoch)


Step = tuple[Term, State]
"""Whether an action is possible, and the state after it."""


@dataclass(frozen=True)
class Action:
    """An action; `stands_for` are a heading of docs/protocol.md, and names in the code as file:name."""

    name: str
    sorts: tuple[str, ...]
    take: Callable[..., Step]
    section: str
    stands_for: tuple[str, ...]


def _issue(m: Model, state: State, epoch: Term) -> Step:
    fixed = m.fixed

    def clear(other: Term, slot: Term) -> Term:
        side_by_side = conj(
            state.issued(other), neg(state.ended(other)), fixed.owns(other, slot), fixed.owns(epoch, slot)
        )
        return neg(side_by_side)

    possible = conj(neg(state.issued(epoch)), fixed.number_of(epoch) != m.zero)
    if m.rules.ends_before_it_begins:
        possible = conj(possible, m.forall(("Epoch", "Slot"), clear))
    if m.rules.numbers_are_new:
        new = m.forall(
            ("Epoch",), lambda e: implies(state.remembered(e), fixed.number_of(e) != fixed.number_of(epoch))
        )
        possible = conj(possible, new)
    return possible, state.but(
        issued=lambda e: disj(e == epoch, state.issued(e)),
        remembered=lambda e: disj(e == epoch, state.remembered(e)),
        kept=lambda e: disj(e == epoch, state.kept(e)),
    )


def _write_entry(m: Model, state: State, epoch: Term, worker: Term) -> Step:
    def clear(other: Term, admitted: Term, slot: Term) -> Term:
        shared = conj(m.fixed.owns(other, slot), m.fixed.owns(epoch, slot))
        return implies(conj(state.admitted(other, admitted), shared), other == epoch)

    possible = conj(
        state.issued(epoch), state.remembered(epoch), neg(state.ended(epoch)), m.fixed.member(epoch, worker)
    )
    if m.rules.ends_before_it_begins:
        possible = conj(possible, m.forall(("Epoch", "Worker", "Slot"), clear))
    return possible, state.but(
        admitted=lambda e, w: disj(same((e, w), (epoch, worker)), state.admitted(e, w)),
        written=lambda e: disj(e == epoch, state.written(e)),
    )


def _end(m: Model, state: State, epoch: Term) -> Step:
    return conj(state.issued(epoch), neg(state.ended(epoch))), state.but(
        ended=lambda e: disj(e == epoch, state.ended(e))
    )


def _delete_entry(m: Model, state: State, epoch: Term, worker: Term) -> Step:
    return conj(state.ended(epoch), state.admitted(epoch, worker)), state.but(
        admitted=lambda e, w: conj(neg(same((e, w), (epoch, worker))), state.admitted(e, w))
    )


def _zeroed(m: Model, state: State) -> State:
    return state.but(
        kept=lambda e: conj(neg(m.rules.restarts_void_results), state.kept(e)),
        number=lambda s, v: m.zero,
        seen=lambda s, v, w: False,
        once=lambda s, v, w, e, r: False,
        twice=lambda s, v, w, e, r: False,
    )


def _zero_registers(m: Model, state: State) -> Step:
    """The switch restarts. Entries of live epochs may be there again before the controller hands out new ones."""
    return True, _zeroed(m, state)


def _forget(m: Model, state: State) -> Step:
    """A controller without memory sets the pipeline: no entry, no register remains. Numbers may be handed out again."""
    return True, _zeroed(m, state).but(
        remembered=lambda e: False,
        admitted=lambda e, w: False,
        ended=lambda e: disj(state.ended(e), state.issued(e)),
    )


def _stop(m: Model, state: State, epoch: Term, worker: Term) -> Step:
    """A worker's process ends. Its admission serves no other one."""
    return neg(state.stopped(epoch, worker)), state.but(
        stopped=lambda e, w: disj(same((e, w), (epoch, worker)), state.stopped(e, w))
    )


def _send(m: Model, state: State, epoch: Term, worker: Term, slot: Term, number: Term, earlier: Term) -> Step:
    freed = state.got if m.rules.waits_for_result else state.sent
    chunk = (epoch, worker, slot, number)
    may = disj(number == m.first, conj(m.follows(earlier, number), freed(epoch, worker, slot, earlier)))
    alive = conj(state.issued(epoch), neg(state.stopped(epoch, worker)))
    possible = conj(
        alive, m.fixed.member(epoch, worker), m.fixed.owns(epoch, slot), neg(state.sent(*chunk)), may
    )
    return possible, state.but(sent=lambda *c: disj(same(c, chunk), state.sent(*c)))


def _contribute(
    m: Model, state: State, epoch: Term, worker: Term, slot: Term, number: Term, sum_: Term
) -> Step:
    """The switch takes a CONTRIBUTE; `sum_` is whatever the lanes then hold."""
    possible = conj(
        state.sent(epoch, worker, slot, number), state.admitted(epoch, worker), m.fixed.owns(epoch, slot)
    )
    if not m.rules.tags:
        return possible, _contribute_untagged(m, state, epoch, worker, slot, number, sum_)
    version = m.version(number)
    cell = (slot, version)
    is_same = conj(m.is_same_epoch(state, epoch, slot, version), state.round(*cell) == number)
    stale = conj(neg(is_same), m.is_stale(state, epoch, slot, number))
    newer = neg(disj(is_same, stale))
    asked = m.fixed.means(epoch, worker, slot, number)
    collective = ite(newer, asked, state.collective(*cell))
    mismatch = conj(m.rules.compares_collectives, neg(stale), collective != asked)

    def seen(w: Term) -> Term:
        return conj(neg(newer), state.seen(*cell, w))

    repeated = conj(m.rules.checks_bit, seen(worker))
    taken = conj(neg(stale), neg(mismatch))
    added = conj(taken, neg(repeated))
    full_before = m.forall(("Worker",), lambda w: seen(w) == m.fixed.member(epoch, w))
    full = m.forall(("Worker",), lambda w: disj(seen(w), w == worker) == m.fixed.member(epoch, w))
    answered = disj(conj(added, full), conj(taken, repeated, full_before))
    after = state.but(
        number=lambda *c: ite(conj(same(c, cell), newer), m.fixed.number_of(epoch), state.number(*c)),
        round=lambda *c: ite(conj(same(c, cell), newer), number, state.round(*c)),
        holder=lambda *c: ite(conj(same(c, cell), newer), epoch, state.holder(*c)),
        writer=lambda *c: ite(conj(same(c, cell), newer), worker, state.writer(*c)),
        collective=lambda *c: ite(
            conj(same(c, cell), neg(stale)), ite(mismatch, m.disputed, collective), state.collective(*c)
        ),
        seen=lambda s, v, w: ite(
            conj(same((s, v), cell), added), disj(seen(w), w == worker), state.seen(s, v, w)
        ),
    )
    after = _add(
        state, after, cell, conj(added, neg(newer)), conj(added, newer), (worker, epoch, number), sum_
    )
    return possible, _answer(m, after, cell, answered, (epoch, slot, number), collective)


def _contribute_untagged(
    m: Model, state: State, epoch: Term, worker: Term, slot: Term, number: Term, sum_: Term
) -> State:
    """SwitchML (NSDI 2021), algorithm 3, lines 4 to 22."""
    version = m.version(number)
    cell, other = (slot, version), (slot, neg(version))
    new = neg(state.seen(*cell, worker))
    workers = m.fixed.workers_of(epoch)
    count = ite(state.count(*cell) + 1 == workers, 0, state.count(*cell) + 1)
    count = ite(new, count, state.count(*cell))
    writes = conj(new, disj(count == 1, workers == 1))
    after = state.but(
        seen=lambda s, v, w: ite(
            conj(new, w == worker),
            disj(same((s, v), cell), conj(neg(same((s, v), other)), state.seen(s, v, w))),
            state.seen(s, v, w),
        ),
        count=lambda *c: ite(same(c, cell), count, state.count(*c)),
    )
    after = _add(state, after, cell, conj(new, neg(writes)), writes, (worker, epoch, number), sum_)
    return _answer(
        m, after, cell, count == 0, (epoch, slot, number), m.fixed.means(epoch, worker, slot, number)
    )


def _add(
    state: State,
    after: State,
    cell: tuple[Term, ...],
    adds: Term,
    writes: Term,
    part: tuple[Term, ...],
    sum_: Term,
) -> State:
    """Let the lanes hold a contribution more, or nothing else."""

    def at(c: tuple[Term, ...]) -> Term:
        return conj(same(c[:2], cell), disj(adds, writes))

    return after.but(
        once=lambda *c: ite(at(c), disj(same(c[2:], part), conj(adds, state.once(*c))), state.once(*c)),
        twice=lambda *c: ite(
            at(c), conj(adds, disj(state.twice(*c), conj(same(c[2:], part), state.once(*c)))), state.twice(*c)
        ),
        lanes=lambda *c: ite(at(c), sum_, state.lanes(*c)),
    )


def _answer(
    m: Model, after: State, cell: tuple[Term, ...], answered: Term, chunk: tuple[Term, ...], collective: Term
) -> State:
    """Let a RESULT leave with what the slot holds."""
    epoch, _, number = chunk

    def exact(w: Term, e: Term, r: Term) -> Term:
        wanted = conj(m.fixed.member(epoch, w), e == epoch, r == number)
        return conj(after.once(*cell, w, e, r) == wanted, neg(after.twice(*cell, w, e, r)))

    all_exact = m.forall(("Worker", "Epoch", "Round"), exact)
    packet = (*chunk, collective, after.lanes(*cell))
    return after.but(
        result=lambda *c: disj(conj(answered, same(c, packet)), after.result(*c)),
        wrong=lambda *c: disj(conj(answered, same(c, chunk), neg(all_exact)), after.wrong(*c)),
    )


def _accept(
    m: Model,
    state: State,
    epoch: Term,
    worker: Term,
    slot: Term,
    number: Term,
    said: Term,
    collective: Term,
    lanes: Term,
) -> Step:
    """A worker takes a RESULT, whose round is `said`, for a chunk in flight."""
    chunk = (epoch, worker, slot, number)
    possible = conj(
        state.result(epoch, slot, said, collective, lanes),
        state.sent(*chunk),
        neg(state.got(*chunk)),
        neg(state.stopped(epoch, worker)),
        said == number if m.rules.compares_result_chunk else m.version(said) == m.version(number),
        collective == m.fixed.means(*chunk) if m.rules.compares_result_collective else True,
    )
    return possible, state.but(
        got=lambda *c: disj(same(c, chunk), state.got(*c)),
        took=lambda *c: disj(same(c, (*chunk, lanes)), state.took(*c)),
        misread=lambda *c: disj(
            conj(same(c, chunk), disj(said != number, state.wrong(epoch, slot, said))), state.misread(*c)
        ),
    )


_CHUNK = ("Epoch", "Worker", "Slot", "Round")
ACTIONS: tuple[Action, ...] = (
    Action(
        "issue",
        ("Epoch",),
        _issue,
        "Switch",
        ("controller/ledger.py:admit",),
    ),
    Action(
        "write_entry",
        ("Epoch", "Worker"),
        _write_entry,
        "Switch",
        ("controller/job_controller.py:_install", "p4/shared/admission.p4:admit"),
    ),
    Action(
        "end",
        ("Epoch",),
        _end,
        "A job's slots change while it runs",
        ("controller/job_controller.py:restart_job", "controller/job_controller.py:end_job"),
    ),
    Action(
        "delete_entry",
        ("Epoch", "Worker"),
        _delete_entry,
        "A job's slots change while it runs",
        ("controller/job_controller.py:_withdraw",),
    ),
    Action("zero_registers", (), _zero_registers, "Switch", ("p4/v1model/slot.p4:Slot",)),
    Action("forget", (), _forget, "Switch", ("controller/session.py:configure",)),
    Action("stop", ("Epoch", "Worker"), _stop, "Switch", ("host_agent/errors.py:UsedAdmissionError",)),
    Action(
        "send",
        (*_CHUNK, "Round"),
        _send,
        "Why two pool versions suffice",
        ("host_agent/protocol/departures.py:_may_send_next", "host_agent/protocol/departures.py:_send_next"),
    ),
    Action("contribute", (*_CHUNK, "Value"), _contribute, "Switch", ("p4/v1model/slot.p4:Slot",)),
    Action(
        "accept",
        (*_CHUNK, "Round", "Collective", "Value"),
        _accept,
        "Worker",
        ("host_agent/protocol/arrivals.py:_verdict_on_result", "host_agent/protocol/arrivals.py:_retire"),
    ),
)


def symbolic(rules: Rules) -> tuple[Model, State, list[Any]]:
    """Return the model of any size, a state of it, and the hypotheses on what does not change."""
    logic = Symbolic()
    fixed = State({name: logic.function(name, signature) for name, signature in FIXED.items()})
    m = Model(
        logic, rules, fixed,
        logic.constant("Number", "zero"), logic.constant("Collective", "disputed"), logic.constant("Round", "first"),
    )  # fmt: skip
    before = fixed.before
    hypotheses = [
        m.forall(("Round",), lambda a: neg(before(a, a))),
        m.forall(("Round", "Round"), lambda a, b: disj(before(a, b), a == b, before(b, a))),
        m.forall(("Round",) * 3, lambda a, b, c: implies(conj(before(a, b), before(b, c)), before(a, c))),
        m.forall(("Round",), lambda a: neg(before(a, m.first))),
        # No packet asks for this collective: COLLECTIVE_DISPUTED of p4/shared/types.p4.
        m.forall(_CHUNK, lambda *c: fixed.means(*c) != m.disputed),
    ]
    return m, State({name: logic.function(name, signature) for name, signature in STATE.items()}), hypotheses
