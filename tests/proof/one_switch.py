"""The protocol on one switch: state, hypotheses, actions. Faults are rules that differ.

The network is what was ever sent: a packet may be delivered at any time, any number of times, or never. So a loss, a
repetition, a delay and a retransmission need no action of their own. A chunk is a slot and a round; nothing relates the
rounds of two slots, which allows more than the workers do. `Epoch` is an epoch with its token, `Number` is the epoch's
number, which the switch stores.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.proof.logic import Finite, Signature, State, Symbolic, Term, conj, disj, implies, neg


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
    moves_at_boundary: bool = True
    takes_needed_lanes: bool = True  # else a RESULT's header completes any chunk


STATE: dict[str, Signature] = {
    # The controller: epochs handed out, those whose entries are being deleted, those it remembers, and the entries.
    "issued": (("Epoch",), "Bool"),
    "ended": (("Epoch",), "Bool"),
    "remembered": (("Epoch",), "Bool"),
    "written": (("Epoch",), "Bool"),  # an entry has been
    "kept": (("Epoch",), "Bool"),  # no register has been zeroed since it was handed out
    "admitted": (("Epoch", "Worker"), "Bool"),
    "moved": (("Epoch",), "Bool"),  # all workers have been told to go on in another epoch
    # Workers: processes that are gone, contributions sent, RESULTs accepted, and of which lanes.
    "stopped": (("Epoch", "Worker"), "Bool"),
    "sent": (("Epoch", "Worker", "Slot", "Round"), "Bool"),
    "got": (("Epoch", "Worker", "Slot", "Round"), "Bool"),
    "took": (("Epoch", "Worker", "Slot", "Round", "Value"), "Bool"),
    "filled": (("Epoch", "Worker", "Slot", "Round"), "Bool"),  # with lanes
    # For the proof: taken, but not exactly one contribution of each.
    "misread": (("Epoch", "Worker", "Slot", "Round"), "Bool"),
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
    "spares": (("Epoch", "Worker", "Slot", "Round"), "Bool"),  # the worker needs the RESULT's header alone
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


CHUNK = ("Epoch", "Worker", "Slot", "Round")
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
        m.forall(CHUNK, lambda *c: fixed.means(*c) != m.disputed),
    ]
    return m, State({name: logic.function(name, signature) for name, signature in STATE.items()}), hypotheses
