"""The steps of controller, workers and switch in the model of one switch."""

from tests.proof.logic import State, Term, conj, disj, implies, ite, neg, same
from tests.proof.one_switch import CHUNK, Action, Model, Step


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


def _move(m: Model, state: State, epoch: Term) -> Step:
    """The service finds that all workers hold at a boundary: what one has begun, all have ended."""

    def has_ended(worker: Term, other: Term, slot: Term, number: Term) -> Term:
        sent = conj(state.sent(epoch, worker, slot, number), m.fixed.member(epoch, other))
        return implies(sent, state.got(epoch, other, slot, number))

    at_boundary = disj(
        not m.rules.moves_at_boundary, m.forall(("Worker", "Worker", "Slot", "Round"), has_ended)
    )
    possible = conj(state.issued(epoch), neg(state.ended(epoch)), at_boundary)
    return possible, state.but(moved=lambda e: disj(e == epoch, state.moved(e)))


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
    alive = conj(state.issued(epoch), neg(state.moved(epoch)), neg(state.stopped(epoch, worker)))
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
        filled=lambda *c: disj(same(c, chunk), state.filled(*c)),
        took=lambda *c: disj(same(c, (*chunk, lanes)), state.took(*c)),
        misread=lambda *c: disj(
            conj(same(c, chunk), disj(said != number, state.wrong(epoch, slot, said))), state.misread(*c)
        ),
    )


def _accept_header(
    m: Model, state: State, epoch: Term, worker: Term, slot: Term, number: Term, lanes: Term
) -> Step:
    """A worker that needs no lanes takes a RESULT without them."""
    chunk = (epoch, worker, slot, number)
    possible = conj(
        state.result(epoch, slot, number, m.fixed.means(*chunk), lanes), state.sent(*chunk), neg(state.got(*chunk)),
        neg(state.stopped(epoch, worker)), disj(not m.rules.takes_needed_lanes, m.fixed.spares(*chunk)),
    )  # fmt: skip
    return possible, state.but(got=lambda *c: disj(same(c, chunk), state.got(*c)))


_CONTROLLER, _CORE, _MOVES = (
    "controller/job_controller.py",
    "host_agent/protocol",
    "A job's slots change while it runs",
)
_SLOT = ("p4/v1model/slot.p4:Slot",)
_VERDICT = f"{_CORE}/arrivals.py:_verdict_on_result"
_SENDS = (f"{_CORE}/departures.py:_may_send_next", f"{_CORE}/departures.py:_send_next")
ACTIONS: tuple[Action, ...] = tuple(
    Action(take.__name__[1:], sorts, take, section, stands_for)
    for take, sorts, section, stands_for in (
        (_issue, ("Epoch",), "Switch", ("controller/ledger.py:admit",)),
        (
            _write_entry,
            ("Epoch", "Worker"),
            "Switch",
            (f"{_CONTROLLER}:_install", "p4/shared/admission.p4:admit"),
        ),
        (_end, ("Epoch",), _MOVES, (f"{_CONTROLLER}:restart_job", f"{_CONTROLLER}:end_job")),
        (_delete_entry, ("Epoch", "Worker"), _MOVES, (f"{_CONTROLLER}:_withdraw",)),
        (_move, ("Epoch",), _MOVES, ("controller/service/moves.py:on_held",)),
        (_zero_registers, (), "Switch", _SLOT),
        (_forget, (), "Switch", ("controller/session.py:configure",)),
        (_stop, ("Epoch", "Worker"), "Switch", ("host_agent/errors.py:UsedAdmissionError",)),
        (_send, (*CHUNK, "Round"), "Why two pool versions suffice", _SENDS),
        (_contribute, (*CHUNK, "Value"), "Switch", _SLOT),
        (
            _accept,
            (*CHUNK, "Round", "Collective", "Value"),
            "Worker",
            (_VERDICT, f"{_CORE}/arrivals.py:_retire"),
        ),
        (
            _accept_header,
            (*CHUNK, "Value"),
            "Header-only RESULTs",
            (_VERDICT, "p4/v1model/header_only.p4:CutCopy"),
        ),
    )
)
