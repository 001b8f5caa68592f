"""Runs with one corruption each: ``python -m tests.verification.campaign 10000``; no worker may return a wrong result."""

import random
import sys
import time
from collections import Counter
from typing import Any

import numpy as np

from host_agent.errors import VerificationError
from host_agent.verification.secret import Session, read_secret
from host_agent.verification.verified import OnCorruption, VerifiedRequest
from tests.integration.simulated.star import StarSwitch, star_switch
from tests.verification.corruptions import KINDS, REQUESTS, Corruption
from tests.verification.hostile import HostileStar, Planned, Tamper

SECRET = b"a secret that all workers share "
WORKERS = 3
SEEDS = 5


def run(
    name: str,
    seed: int,
    tamper: Tamper | None = None,
    *,
    secret: bytes | None = None,
    on_corruption: OnCorruption = "raise",
    requests: Any = REQUESTS,
    lanes: int = 64,
    slots: int = 4,
    checked: bool = True,
    switch: StarSwitch | None = None,
) -> list[Any]:
    """Run one request at three workers; returns each worker's outcome."""
    star = HostileStar(switch or star_switch(lanes), WORKERS, slots)
    plans: list[list[Planned]] = []
    for rank in range(WORKERS):
        request = requests[name](rank, WORKERS, seed)
        session = Session(read_secret(secret) if secret else None)
        plans.append([VerifiedRequest(request, session, on_corruption) if checked else request])
    return [outcomes[0] for outcomes in star.run(plans, tamper)]


_clean: dict[tuple[str, int], tuple[list[Any], int]] = {}


def clean(name: str, seed: int, requests: Any = REQUESTS) -> tuple[list[Any], int]:
    """The right results by rank, and how many packets with lanes come down."""
    if (name, seed) not in _clean:
        _clean[name, seed] = _clean_run(name, seed, requests)
    return _clean[name, seed]


def _clean_run(name: str, seed: int, requests: Any) -> tuple[list[Any], int]:
    count = Corruption("bit", 1 << 60, random.Random(0))
    outcomes = run(name, seed, count, requests=requests)
    for outcome in outcomes:
        assert outcome.error is None, outcome.error
    return [outcome.result for outcome in outcomes], count.seen


def same(result: Any, right: Any) -> bool:
    if right is None:
        return result is None
    return bool(np.array_equal(result, right, equal_nan=result.dtype.kind == "f"))


def corrupt(
    number: int,
    counts: Counter[str],
    secret: bytes | None = None,
    *,
    name: str = "",
    kind: str = "",
    requests: Any = REQUESTS,
) -> None:
    """Run one corruption, and count what became of it; raises AssertionError if a worker returned a wrong result."""
    chance = random.Random(number)
    name, kind = name or chance.choice(list(REQUESTS)), kind or chance.choice(list(KINDS))
    seed, loss = chance.randrange(SEEDS), chance.choice([0.0, 0.01])
    right, packets = clean(name, seed, requests)
    corruption = Corruption(kind, chance.randrange(max(packets, 1)), chance, loss)
    outcomes = run(name, seed, corruption, secret=secret, requests=requests)
    for rank, (outcome, expected) in enumerate(zip(outcomes, right, strict=True)):
        if outcome.error is None:
            counts["right"] += 1
            assert same(outcome.result, expected), (
                f"number {number}: worker {rank} returned a wrong {name} after {kind}"
            )
        else:
            refused = isinstance(outcome.error, VerificationError)
            counts["refused" if refused else type(outcome.error).__name__] += 1


def main() -> None:
    """Run as many as the command line says, in turn without and with a secret."""
    began, counts = time.monotonic(), Counter[str]()
    for number in range(int(sys.argv[1])):
        corrupt(number, counts, SECRET if number % 2 else None)
    print(
        f"{sys.argv[1]} corruptions in {time.monotonic() - began:.0f} s: {dict(counts)}; wrong results returned: 0"
    )


if __name__ == "__main__":
    main()
