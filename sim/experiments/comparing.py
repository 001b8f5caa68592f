"""Two runs side by side."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.experiments.store import load_run, read_rows
from sim.experiments.summary import Median, Summary, summarize


@dataclass(frozen=True)
class Compared:
    """A combination of what varies, in two runs; None where one does not have it."""

    name: str
    job: str
    one: Median | None
    other: Median | None

    @property
    def ratio(self) -> float | None:
        """The other's time over the one's."""
        return self.other.value / self.one.value if self.one and self.other and self.one.value else None

    @property
    def ratio_text(self) -> str:
        """The ratio as text."""
        return f"{self.ratio:.3f}" if self.ratio is not None else ""

    @property
    def note(self) -> str:
        """Whether the intervals are disjoint."""
        if self.one is None or self.other is None:
            return "in B only" if self.one is None else "in A only"
        if self.one.low is None or self.other.low is None or self.one.high is None or self.other.high is None:
            return "equal" if self.one.value == self.other.value else ""
        apart = self.one.high < self.other.low or self.other.high < self.one.low
        return "differ" if apart else "within the intervals"

    @staticmethod
    def text(median: Median | None) -> str:
        """Return a time in microseconds with its interval."""
        if median is None:
            return ""
        interval = (
            ""
            if median.low is None or median.high is None
            else f" ({median.low / 1e3:,.1f}...{median.high / 1e3:,.1f})"
        )
        return f"{median.value / 1e3:,.1f}{interval}"

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "name": self.name,
            "job": self.job,
            "a_ns": self.one and self.one.value,
            "b_ns": self.other and self.other.value,
            "ratio": self.ratio,
            "note": self.note,
        }


def compare(one: Path, other: Path) -> list[Compared]:
    """Compare the times of two runs. Raises SettingError, ResultStoreError if one of the folders holds no results."""
    first, second = _summaries(one), _summaries(other)
    keys = list(first) + [key for key in second if key not in first]
    return [
        Compared(name, job, _time(first.get((name, job))), _time(second.get((name, job))))
        for name, job in keys
    ]


def _time(summary: Summary | None) -> Median | None:
    return None if summary is None else summary.medians.get("duration_ns")


def _summaries(folder: Path) -> dict[tuple[str, str], Summary]:
    varies = load_run(folder).varies
    rows, _ = read_rows(folder / "results.parquet")
    return {
        (", ".join(f"{name} = {value}" for name, value in each.varied.items()), each.job): each
        for each in summarize(rows, varies)
    }
