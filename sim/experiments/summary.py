"""Medians over seeds, with intervals."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

CONFIDENCE: Final = 0.95
_RESAMPLES: Final = 2000


@dataclass(frozen=True)
class Median:
    """A median and its 95 % confidence interval, which is None with fewer than three values."""

    value: float
    low: float | None
    high: float | None
    count: int


@dataclass(frozen=True)
class Summary:
    """The medians of one combination of what varies, of one job."""

    varied: dict[str, Any]  # Values by key.
    job: str
    contender: str
    first: dict[str, Any]  # A row, for the columns that are equal in all rows.
    medians: dict[str, Median]
    failed: int
    limited_by: str


MEASURES: Final = {
    "duration_ns": ("time of an all-reduce", "ns"),
    "goodput_bps": ("goodput of each worker", "bit/s"),
    "share_of_bound": ("share of the bound", "%"),
    "iteration_ns": ("time of an iteration", "ns"),
    "waiting_share": ("share of an iteration spent waiting", "%"),
    "resent": ("packets sent again", ""),
    "lost": ("packets lost", ""),
    "packets_on_links": ("packets on links", ""),
}
"""Title and unit of each measure."""

_RATES: Final = ("goodput_bps", "share_of_bound")  # Measures that are an amount over `duration_ns`.


def median_of(values: Sequence[float]) -> Median:
    """Return the median and its interval, by the bootstrap (Efron, 1979) with dice of its own."""
    array = np.sort(np.asarray(values, np.float64))
    middle = float(np.median(array))
    if len(array) < 3:
        return Median(middle, None, None, len(array))
    dice = np.random.Generator(np.random.Philox(key=len(array)))
    medians = np.median(array[dice.integers(0, len(array), (_RESAMPLES, len(array)))], axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(medians, [tail, 1 - tail])
    return Median(middle, float(low), float(high), len(array))


def checked(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return sentences about the comparisons in the runs behind these rows."""
    runs = {
        (row["seed"], row["job"], *(str(row.get(name)) for name in row if "." in name)): row for row in rows
    }
    sums, contributors, late = (
        sum(row.get(name) or 0 for row in runs.values())
        for name in ("sums_checked", "members_checked", "late")
    )
    said = []
    if sums:
        said.append(f"{sums:,} sums were compared bit for bit with ones computed apart, and all were right.")
    if contributors:
        said.append(f"Contributors of rounds were compared {contributors:,} times: the same at every worker.")
        said.append(f"{late:,} arrays came late and were in no sum.")
    return said


def commonest(names: Iterable[str]) -> str:
    """Return the name that occurs most often, the first in the alphabet of several."""
    found = sorted(names)
    return max(found, key=found.count)


def trains(summaries: Iterable[Summary]) -> bool:
    """Whether jobs do something beside reducing: then iterations say more than all-reduces."""
    return any(
        each.first["bucket"] or each.medians["waiting_share"].value < 1
        for each in summaries
        if "waiting_share" in each.medians
    )


def _rate(rows: Sequence[dict[str, Any]], name: str, medians: dict[str, Median]) -> Median | None:
    """Return a rate at the median of the times, so that the two agree; None: it is no rate, or not of equal amounts."""
    if name not in _RATES:
        return None
    time = medians["duration_ns"]
    amounts = [row[name] * row["duration_ns"] for row in rows]
    if not np.allclose(amounts, amounts[0], rtol=1e-9):
        return None
    low, high = (None if end is None else amounts[0] / end for end in (time.high, time.low))
    return Median(amounts[0] / time.value, low, high, time.count)


def summarize(rows: Iterable[dict[str, Any]], varied: Sequence[str]) -> list[Summary]:
    """Return the medians of each combination of the values of `varied` and each job, in the order in which they come.

    A value is first the median over a point's iterations and buckets, then over seeds: only seeds are independent.
    """
    groups: dict[tuple[Any, ...], dict[int, list[dict[str, Any]]]] = {}
    for row in rows:
        key = (*(row.get(name) for name in varied), row["job"])
        groups.setdefault(key, {}).setdefault(row["seed"], []).append(row)
    made = []
    for key, seeds in groups.items():
        medians: dict[str, Median] = {}
        rows_of = [row for found in seeds.values() for row in found if row.get("duration_ns")]
        for name in MEASURES:
            values = [
                float(np.median(found))
                for rows_of_seed in seeds.values()
                if (found := [row[name] for row in rows_of_seed if row.get(name) is not None])
            ]
            if values:
                medians[name] = _rate(rows_of, name, medians) or median_of(values)
        first = next(iter(seeds.values()))[0]
        whys = [row["limited_by"] for rows_of_seed in seeds.values() for row in rows_of_seed]
        made.append(
            Summary(
                varied=dict(zip(varied, key, strict=False)),
                job=first["job"],
                contender=first["contender"],
                first=first,
                medians=medians,
                failed=sum(any(row["error"] for row in rows_of_seed) for rows_of_seed in seeds.values()),
                limited_by=commonest(whys),
            )
        )
    return made
