"""Sharing the slots of switches among jobs: the number of slots for each job, as plain numbers. No I/O.

Slots are shared max-min fairly: all jobs grow together, each in proportion to its weight, until a switch has no room for all
that would grow on it, or a job has all it can use. A job's slots are a power of two, so it grows by doubling, and equal jobs
double together or not at all: the remainder is less than it takes to double all of them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Policy = Literal["fixed", "fair", "weighted", "demand"]
"""The rule by which jobs share slots: not at all, equally, by weight, or by demand (rate times round trip)."""


@dataclass(frozen=True)
class Claim:
    """A job's claim to slots of the switches that add for it."""

    name: str  # The job's name.
    switches: Collection[str]  # The switches that add for the job; it has the same number of slots on each.
    most: int  # Slots that the job can use, a power of two.
    weight: float = 1.0  # Above 0; equal jobs have equal weights.
    fixed: int | None = None  # The slots that the job has and keeps; None if its slots may change.


def share_out(claims: Sequence[Claim], capacities: Mapping[str, int], least: int = 1) -> dict[str, int]:
    """Return how many slots each job gets.

    `claims`: the jobs' claims, in order of precedence if not all can be met. `least`: the fewest slots that a job gets, a power
    of two; a job that can use fewer gets all it can use. Returns a power of two for each job, or 0 if earlier jobs leave too
    few slots.
    """
    free = dict(capacities)
    counts = {claim.name: 0 for claim in claims}

    def grant(claim: Claim, more: int) -> None:
        counts[claim.name] += more
        for switch in claim.switches:
            free[switch] -= more

    for claim in claims:
        if claim.fixed is not None:
            grant(claim, claim.fixed)
    growing = []
    for claim in claims:
        first = min(least, claim.most)
        if claim.fixed is None and all(free[switch] >= first for switch in claim.switches):
            grant(claim, first)
            growing.append(claim)
    while growing := [claim for claim in growing if counts[claim.name] < claim.most]:
        lowest = min(counts[claim.name] / claim.weight for claim in growing)
        doubling = [claim for claim in growing if counts[claim.name] / claim.weight == lowest]
        needed: dict[str, int] = {}
        for claim in doubling:
            for switch in claim.switches:
                needed[switch] = needed.get(switch, 0) + counts[claim.name]
        full = {switch for switch, count in needed.items() if count > free[switch]}
        stopped = {claim.name for claim in doubling if full.intersection(claim.switches)}
        if stopped:
            growing = [claim for claim in growing if claim.name not in stopped]
            continue
        for claim in doubling:
            grant(claim, counts[claim.name])
    return counts


def jain(shares: Iterable[float]) -> float:
    """Return Jain's fairness index: 1 if all shares are equal, 1/n if one of n has everything; 1 if there are no shares.

    Jain, Chiu, Hawe: A Quantitative Measure of Fairness and Discrimination for Resource Allocation in Shared Computer
    Systems, DEC-TR-301, 1984.
    """
    values = list(shares)
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0
