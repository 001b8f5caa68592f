"""What a claim is, and what came of trying it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Echo = Callable[[str], None]
"""Prints progress, in a few words."""


@dataclass(frozen=True)
class Outcome:
    """What came of trying a claim.

    Attributes
    ----------
    headings : tuple of str
        As `netsum.terminal.Rows` takes them.
    findings : sequence of (str, bool)
        Each part of the claim with its numbers, and whether it holds.
    setting : str
        What was trained, in a sentence.
    key : int
        Columns that name a row.
    """

    headings: Sequence[str]
    rows: Sequence[tuple[str, ...]]
    findings: Sequence[tuple[str, bool]]
    setting: str = ""
    key: int = 1

    @property
    def holds(self) -> bool:
        """Whether all parts do."""
        return all(each for _, each in self.findings)


@dataclass(frozen=True)
class Claim:
    """A claim."""

    name: str
    sentence: str
    source: str
    run: Callable[[Echo], Outcome] = field(repr=False)
