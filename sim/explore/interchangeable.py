"""The workers of a scenario that may change places, and all their permutations; docs/explorer.md says why that is sound."""

from itertools import permutations, product
from math import factorial, prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sim.explore.scenario import BlockPass, ExplorerScenario
from sim.explore.work import SUMMED

_MOST: Final = 120
"""Permutations. Where there are more, some workers stay in their places."""


def permutations_of(scenario: ExplorerScenario) -> npt.NDArray[np.uint8]:
    """Return all permutations: uint8[n, hosts], which host comes to each place; the first leaves all in place."""
    groups = _groups(scenario)
    while prod(factorial(len(group)) for group in groups) > _MOST:
        max(groups, key=len).pop()
    rows = []
    for orders in product(*(permutations(group) for group in groups)):
        row = list(range(scenario.hosts))
        for group, order in zip(groups, orders, strict=True):
            for host, origin in zip(group, order, strict=True):
                row[host] = origin
        rows.append(row)
    return np.array(rows, np.uint8)


def _groups(scenario: ExplorerScenario) -> list[list[int]]:
    """Return the hosts that mean the same, each once."""
    groups: dict[tuple[object, ...], list[int]] = {}
    # In a tree, a switch's retransmissions to its parent depend on its child 0; entries of an epoch are written in the order of
    # workers.
    alike = not scenario.parents and scenario.epochs == 1 and not scenario.unknown_sources
    for host in range(scenario.hosts):
        job, worker = divmod(host, scenario.workers)
        roles = tuple(_role(round_, worker, scenario.workers) for round_ in scenario.rounds)
        groups.setdefault((job, roles, 0 if alike else host), []).append(host)
    return list(groups.values())


def _role(round_: BlockPass, worker: int, workers: int) -> object:
    """Return a worker's part in a round, without its values."""
    if round_.kind not in SUMMED:  # Another order of the values is another result.
        return worker
    contributes: Any = {
        "sparse": worker % 2,
        **dict.fromkeys(("broadcast", "reduce", "gather"), worker == 0),
    }.get(round_.kind)
    return contributes, round_.agreed or worker < workers - 1
