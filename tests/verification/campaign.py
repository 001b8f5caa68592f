"""Runs with one corruption each; no worker may return a wrong result.

python -m tests.verification.campaign COUNT [FIRST] [--site NAME] [--on-corruption retry]
"""

import argparse
import random
import time
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from host_agent.collectives.quorum import Reduced
from host_agent.collectives.rows import Rows
from host_agent.errors import VerificationError
from host_agent.verification.secret import Session, read_secret
from host_agent.verification.trust import Trust
from host_agent.verification.verified import OnCorruption, VerifiedRequest
from netsum_common.errors import NetsumError
from tests.integration.simulated.star import star_switch
from tests.verification.corruptions import KINDS, REQUESTS, Corruption
from tests.verification.hostile import HostileNetwork, HostileStar, Planned, Tamper
from tests.verification.hostile_rings import HostileRings
from tests.verification.sites import SITES, Late, Site, of_members

SECRET = b"a secret that all workers share "
WORKERS = 3
SEEDS = 5
REPORTED = 500


def run(
    name: str,
    seed: int,
    tamper: Tamper | None = None,
    *,
    requests: Any = REQUESTS,
    lanes: int = 64,
    slots: int = 4,
    network: HostileNetwork | HostileRings | None = None,
    **how: Any,
) -> list[Any]:
    """Run one request at all workers; returns each worker's outcome. `how`: as for `run_all`."""
    network = network or HostileStar(star_switch(lanes), WORKERS, slots)
    planned = [requests[name](rank, network.workers, seed) for rank in range(network.workers)]
    return run_all(planned, network, tamper, **how)


def run_all(
    planned: Sequence[Planned],
    network: HostileNetwork | HostileRings,
    tamper: Tamper | None = None,
    *,
    secret: bytes | None = None,
    on_corruption: OnCorruption = "raise",
    checked: bool = True,
) -> list[Any]:
    """Run each worker's request; returns each worker's outcome."""
    if isinstance(network, HostileRings):
        return network.run(planned, tamper, Trust(checked, secret, on_corruption))
    plans: list[list[Planned]] = []
    for request in planned:
        session = Session(read_secret(secret) if secret else None)
        plans.append([VerifiedRequest(request, session, on_corruption) if checked else request])
    return [outcomes[0] for outcomes in network.run(plans, tamper)]


_clean: dict[tuple[str, str, int], tuple[list[Any], int]] = {}


def clean(name: str, seed: int, requests: Any = REQUESTS, site: str = "embedded") -> tuple[list[Any], int]:
    """The right results by rank, and how many packets with lanes come down."""
    key = site, name, seed
    if key not in _clean:
        count = Corruption("bit", 1 << 60, random.Random(0))
        outcomes = run(name, seed, count, requests=requests, network=SITES[site].start())
        for outcome in outcomes:
            assert outcome.error is None, outcome.error
        _clean[key] = [outcome.result for outcome in outcomes], count.seen
    return _clean[key]


@cache
def _reduced(name: str, seed: int, ranks: tuple[int, ...], workers: int) -> Any:
    """The right result of a round with these members."""
    network = HostileStar(star_switch(64), workers)
    return run_all(of_members(name, seed, ranks, workers), network, checked=False)[0].result


def same(result: Any, right: Any) -> bool:
    if right is None:
        return result is None
    if isinstance(right, Rows):
        return same(result.numbers, right.numbers) and same(result.values, right.values)
    return bool(np.array_equal(result, right, equal_nan=result.dtype.kind == "f"))


def check(
    name: str,
    seed: int,
    outcomes: Sequence[Any],
    right: Sequence[Any],
    counts: Counter[str],
    errors: type[Exception] | None = NetsumError,
) -> list[int]:
    """Count outcomes; returns the ranks of the workers that returned a wrong result. `errors`: that may be."""
    wrong, members = [], set()
    for rank, (outcome, expected) in enumerate(zip(outcomes, right, strict=True)):
        if outcome.error is not None:
            assert errors is None or isinstance(outcome.error, errors), repr(outcome.error)
            refused = isinstance(outcome.error, VerificationError)
            counts["refused" if refused else type(outcome.error).__name__] += 1
            continue
        counts["right"] += 1
        result = outcome.result
        if isinstance(result, Reduced):
            members.add(result.ranks)
            expected, result = _reduced(name, seed, result.ranks, len(outcomes)), result.value
        if len(members) > 1 or not same(result, expected):
            wrong.append(rank)
    return wrong


def corrupt(
    number: int,
    counts: Counter[str],
    secret: bytes | None = None,
    *,
    name: str = "",
    kind: str = "",
    requests: Any = None,
    site: str = "embedded",
    on_corruption: OnCorruption = "raise",
) -> None:
    """Run one corruption, and count its outcomes.

    Raises AssertionError if a worker returned a wrong result, or refused a right one though no packet had other bits.
    """
    place: Site = SITES[site]
    requests = requests or place.requests
    chance = random.Random(number)
    name, kind = name or chance.choice(list(requests)), kind or chance.choice(list(KINDS))
    seed, loss = chance.randrange(SEEDS), chance.choice([0.0, 0.01])
    right, packets = clean(name, seed, requests, site)
    corruption = Corruption(kind, chance.randrange(max(packets, 1)), chance, loss)
    tamper: Tamper = corruption
    if site == "quorum":
        tamper = Late(tamper, chance.randrange(place.workers), chance.randrange(4))
    how: Any = {"secret": secret, "on_corruption": on_corruption}
    outcomes = run(name, seed, tamper, requests=requests, network=place.start(), **how)
    wrong = check(name, seed, outcomes, right, counts)
    assert not wrong, f"number {number} at {site}: workers {wrong} returned a wrong {name} after {kind}"
    if not corruption.damaged:
        counts["undamaged"] += 1
        refused = [rank for rank, one in enumerate(outcomes) if isinstance(one.error, VerificationError)]
        assert not refused, f"number {number} at {site}: workers {refused} refused an undamaged {name}"


def main() -> None:
    """Run as many as the command line says, in turn without and with a secret."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("--site", choices=SITES, default="embedded")
    parser.add_argument("--on-corruption", choices=("raise", "retry"), default="raise")
    chosen = parser.parse_args()
    began, counts = time.monotonic(), Counter[str]()
    for done in range(1, chosen.count + 1):
        number = chosen.first + done - 1
        secret = SECRET if number % 2 else None
        corrupt(number, counts, secret, site=chosen.site, on_corruption=chosen.on_corruption)
        if done % REPORTED == 0 or done == chosen.count:
            print(
                f"{chosen.site}: {done} corruptions from number {chosen.first} in {time.monotonic() - began:.0f} s, "
                f"{time.process_time():.0f} of the processor: {dict(counts)}; wrong results returned: 0, "
                "undamaged results refused: 0",
                flush=True,
            )


if __name__ == "__main__":
    main()
