"""What is explored: workers, slots, rounds, and what the network and the controller may do. Plain values."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

from host_agent.errors import NetsumError

__all__ = ["Round", "Scenario", "ScenarioError", "from_document"]

Kind = Literal["sum", "max", "bor", "int32", "float32", "broadcast", "barrier"]
KINDS = ("sum", "max", "bor", "int32", "float32", "broadcast", "barrier")


class ScenarioError(NetsumError):
    """A scenario that cannot be built; the message says what was expected."""


@dataclass(frozen=True)
class Round:
    """One pass over one block.

    Attributes
    ----------
    kind
        sum, max, bor: 32-bit words as they are. int32, float32: SUM with exponents, which takes two chunk numbers.
        broadcast: worker 0's words; the others contribute a header alone. barrier: headers alone.
    agreed
        False if the last worker of the job takes it for another collective.
    """

    kind: Kind = "sum"
    agreed: bool = True


@dataclass(frozen=True)
class Scenario:
    """What is explored.

    Attributes
    ----------
    name
        For people.
    workers, jobs
        Workers of a job, and jobs, on neighbouring slots.
    slots
        Slots of a job, a power of two.
    rounds
        What every worker runs, in order.
    first_chunk
        The chunk number of the first chunk.
    copies
        0: a packet that was sent once may arrive any number of times, at any time, or never. Else at most so many copies of
        one packet are in flight; one is used up or kept when it is delivered, or lost.
    batches
        Whether a worker may take in several datagrams before it sends.
    ahead
        Whether a worker may begin a round before the one before is done.
    attrition
        Whether a worker may at any time have sent a chunk so often that it waits before it sends it again.
    kills
        How many workers may die.
    epochs
        2: the controller may move the job to a second epoch, in which the workers start again.
    switch_restarts
        How often the switch may come up with empty registers and tables; then the job gets its second epoch.
    unknown_sources
        Whether packets of hosts that were not admitted, and malformed ones of a worker, are about from the beginning.
    """

    name: str
    workers: int = 2
    jobs: int = 1
    slots: int = 1
    rounds: tuple[Round, ...] = field(default_factory=lambda: (Round(), Round(), Round()))
    first_chunk: int = 0
    copies: int = 0
    batches: bool = True
    ahead: bool = True
    attrition: bool = True
    kills: int = 0
    epochs: int = 1
    switch_restarts: int = 0
    unknown_sources: bool = False

    def __post_init__(self) -> None:
        def expect(condition: bool, what: str) -> None:
            if not condition:
                raise ScenarioError(f"scenario {self.name!r}: expected {what}")

        expect(1 <= self.workers <= 8, f"1 to 8 workers, not {self.workers}")
        expect(1 <= self.jobs <= 4, f"1 to 4 jobs, not {self.jobs}")
        expect(self.slots in (1, 2, 4, 8), f"1, 2, 4 or 8 slots, not {self.slots}")
        expect(1 <= len(self.rounds) <= 16, f"1 to 16 rounds, not {len(self.rounds)}")
        expect(0 <= self.copies <= 200, f"0 to 200 copies, not {self.copies}")
        expect(self.epochs in (1, 2), f"1 or 2 epochs, not {self.epochs}")
        expect(self.jobs == 1 or self.epochs == 1, "one epoch where there are several jobs")
        expect(self.switch_restarts <= self.epochs - 1, "2 epochs where the switch may restart")
        for each in self.rounds:
            expect(each.kind in KINDS, f"rounds of the kinds {', '.join(KINDS)}, not {each.kind!r}")

    @property
    def hosts(self) -> int:
        """Workers of all jobs."""
        return self.workers * self.jobs


def from_document(document: dict[str, Any]) -> Scenario:
    """Read what `dataclasses.asdict` wrote.

    Raises
    ------
    ScenarioError
        It is no such document.
    """
    names = {each.name for each in fields(Scenario)}
    if not isinstance(document, dict) or not document.keys() <= names or "name" not in document:
        raise ScenarioError(f"expected a scenario with the members {', '.join(sorted(names))}")
    try:
        rounds = tuple(Round(**each) for each in document.get("rounds", ({},)))
        return Scenario(**{**document, "rounds": rounds})
    except TypeError as error:
        raise ScenarioError(f"expected a scenario: {error}") from None
