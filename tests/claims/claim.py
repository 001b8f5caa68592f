"""A claim and its result."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Echo = Callable[[str], None]  # Prints progress, in a few words.


@dataclass(frozen=True)
class ClaimResult:
    """Result of trying a claim. `findings`: each part of the claim with its numbers, and whether it holds."""

    headings: Sequence[str]  # As `netsum.terminal.Rows` takes them.
    rows: Sequence[tuple[str, ...]]
    findings: Sequence[tuple[str, bool]]
    setting: str = ""  # The trained model and task.
    key: int = 1  # Columns that name a row.

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
    run: Callable[[Echo], ClaimResult] = field(repr=False)
