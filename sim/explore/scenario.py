"""Scenarios as plain values: workers, slots, rounds, and the possible events of network and controller."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, get_args

from host_agent.errors import NetsumError
from sim.explore.engine.world import MAX_SWITCHES, TX_ROWS
from sim.explore.shape import ScenarioShape

Kind = Literal[
    "sum",
    "saturating",
    "sparse",
    "max",
    "min",
    "bor",
    "int32",
    "float32",
    "broadcast",
    "barrier",
    "quorum",
    "contributors",
    "reduce",
    "gather",
]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


class ScenarioError(NetsumError):
    """A scenario that cannot be built; the message names the expected value."""


@dataclass(frozen=True)
class BlockPass:
    """One pass over one block."""

    # sum, max, min, bor: 32-bit words as they are. saturating: a sum beyond int32. sparse: a sum to which every other
    # worker contributes a block that it knows to be zero. int32, float32: SUM with exponents, which takes two chunk
    # numbers. broadcast: worker 0's words; the others contribute a header alone. barrier: headers alone. quorum: a quorum chunk,
    # to which each worker contributes whenever it likes. contributors: the sum over those to the quorum chunk before.
    # reduce: a sum; all but worker 0 need a header-only RESULT. gather: worker 0's words, and it needs a
    # header-only RESULT; a chunk of an all-gather.
    kind: Kind = "sum"
    agreed: bool = True  # False if the last worker of the job takes it for another collective.


def passes_of(*kinds: Kind) -> tuple[BlockPass, ...]:
    """Return a pass of each kind, on which all workers agree."""
    return tuple(BlockPass(kind) for kind in kinds)


@dataclass(frozen=True)
class ExplorerScenario:
    """A system to explore."""

    name: str
    # workers, jobs: workers of a job, and jobs, on neighbouring slots.
    workers: int = 2
    jobs: int = 1
    slots: int = 1  # Slots of a job, a power of two.
    # Rounds of every worker, in order.
    rounds: tuple[BlockPass, ...] = field(default_factory=lambda: (BlockPass(), BlockPass(), BlockPass()))
    first_chunk: int = 0  # The chunk number of the first chunk.
    # 0: a packet that was sent once may arrive any number of times, at any time, or never. Else at most this many copies of
    # one packet are in flight; one is used up or kept when it is delivered, or lost.
    copies: int = 0
    batches: bool = True  # Whether a worker may take in several datagrams before it sends.
    # How many datagrams a worker sends in a call at most; fewer than all only in batches, as it sends the rest later.
    rows: int = TX_ROWS
    ahead: bool = True  # Whether a worker may begin a round before the one before is done.
    # Whether a worker may at any time have sent a chunk often enough to wait before it sends the chunk again.
    attrition: bool = True
    # kills, deadlines: how many workers may die, and how many may run into their deadline.
    kills: int = 0
    deadlines: int = 0
    epochs: int = 1  # 2: the controller may move the job to a second epoch, in which the workers start again.
    falls: bool = False  # Whether the second epoch has the lower number, as where numbers begin again.
    moves: bool = False  # Whether the job has other slots in its second epoch.
    # How often a switch may come up with empty registers and tables; then the job gets its second epoch.
    switch_restarts: int = 0
    # Whether packets of hosts that were not admitted, and malformed ones of a worker, are about from the beginning.
    unknown_sources: bool = False
    # Tree: the parent of switch 1, 2, …, in ascending order; switch 0 is the root. Empty: there is one switch.
    parents: tuple[int, ...] = ()
    leaves: tuple[int, ...] = ()  # Tree: the switch of each worker.
    grows: bool = True  # Whether switches can grow a packet without lanes into a RESULT that has them.
    quorum: int = 0  # Contributions that complete a quorum chunk; 0: there is none.

    def __post_init__(self) -> None:
        def expect(condition: bool, what: str) -> None:
            if not condition:
                raise ScenarioError(f"scenario {self.name!r}: expected {what}")

        expect(1 <= self.workers <= 8, f"1 to 8 workers, not {self.workers}")
        expect(1 <= self.jobs <= 4, f"1 to 4 jobs, not {self.jobs}")
        expect(self.slots in (1, 2, 4, 8), f"1, 2, 4 or 8 slots, not {self.slots}")
        expect(1 <= len(self.rounds) <= 16, f"1 to 16 rounds, not {len(self.rounds)}")
        expect(2 <= self.rows <= TX_ROWS, f"2 to {TX_ROWS} rows, not {self.rows}")
        expect(self.batches or self.rows == TX_ROWS, f"{TX_ROWS} rows where there are no batches")
        expect(0 <= self.copies <= 200, f"0 to 200 copies, not {self.copies}")
        expect(self.epochs in (1, 2), f"1 or 2 epochs, not {self.epochs}")
        expect(self.jobs == 1 or self.epochs == 1, "one epoch where there are several jobs")
        expect(self.switch_restarts <= self.epochs - 1, "2 epochs where the switch may restart")
        expect(
            self.epochs == 2 or not (self.falls or self.moves),
            "2 epochs where a job moves or their numbers fall",
        )
        if self.parents or self.leaves:
            self._check_tree(expect)
        for each in self.rounds:
            expect(each.kind in KINDS, f"rounds of the kinds {', '.join(KINDS)}, not {each.kind!r}")
        self._check_quorum(expect)

    def _check_tree(self, expect: Callable[[bool, str], None]) -> None:
        count = 1 + len(self.parents)
        expect(2 <= count <= MAX_SWITCHES, f"a tree of 2 to {MAX_SWITCHES} switches, not {count}")
        expect(list(self.parents) == sorted(self.parents), f"parents in ascending order, not {self.parents}")
        for child, parent in enumerate(self.parents, 1):
            expect(0 <= parent < child, f"a parent of switch {child} among those before it, not {parent}")
        expect(len(self.leaves) == self.workers, f"a switch for each worker, not {self.leaves}")
        for leaf in self.leaves:
            expect(0 <= leaf < count, f"workers on switches 0 to {count - 1}, not {leaf}")
        expect(self.jobs == 1, "one job on a tree")
        expect(self.kills == self.deadlines == 0, "workers of a tree that do not die")

    def _check_quorum(self, expect: Callable[[bool, str], None]) -> None:
        kinds = [each.kind for each in self.rounds]
        calls = [at for at, kind in enumerate(kinds) if kind == "quorum"]
        expect(
            [at - 1 for at, kind in enumerate(kinds) if kind == "contributors"] == calls,
            "the sum over its contributors behind each quorum chunk",
        )
        expect(bool(self.quorum) == bool(calls), "a quorum where there are quorum chunks")
        expect(0 <= self.quorum <= self.workers, f"a quorum of 1 to {self.workers}, not {self.quorum}")
        if self.quorum:
            expect(self.slots >= 2, "2 slots at least in a job with a quorum")
            alone = self.jobs == 1 and self.epochs == 1 and self.kills == self.deadlines == 0
            expect(
                alone and not self.parents,
                "a quorum of one job on one switch, in one epoch, whose workers live",
            )

    @property
    def shape(self) -> ScenarioShape:
        """The switches and who is below whom."""
        return ScenarioShape(self.leaves or (0,) * self.hosts, self.parents)

    @property
    def hosts(self) -> int:
        """Workers of all jobs."""
        return self.workers * self.jobs


def from_document(document: dict[str, Any]) -> ExplorerScenario:
    """Read what `dataclasses.asdict` wrote; `ScenarioError` if it is no such document."""
    names = {each.name for each in fields(ExplorerScenario)}
    if not isinstance(document, dict) or not document.keys() <= names or "name" not in document:
        raise ScenarioError(f"expected a scenario with the members {', '.join(sorted(names))}")
    try:
        rounds = tuple(BlockPass(**each) for each in document.get("rounds", ({},)))
        tree = {name: tuple(document.get(name, ())) for name in ("parents", "leaves")}
        return ExplorerScenario(**{**document, **tree, "rounds": rounds})
    except TypeError as error:
        raise ScenarioError(f"expected a scenario: {error}") from None
