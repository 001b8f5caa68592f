"""``netsum strategies claims``: tries what papers claim of strategies, and prints the numbers."""

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from typing import Final

from netsum.bench.claims.claim import Claim, ClaimResult
from netsum.bench.machine import use_examples
from netsum.bench.results import require
from netsum.command_errors import CommandError
from netsum.terminal import Rows, echo, print_json

CLAIMS: Final = (
    "fedavg",
    "diloco",
    "dynamic",
    "codistillation",
    "asynchronous",
    "incremental",
    "ddnn",
)


def run(names: Sequence[str], *, as_json: bool) -> None:
    """Try claims and print the result of each.

    Raises ArgumentError if a name is unknown. Raises CommandError if a claim does not hold.
    """
    for name in names:
        require("claim", name, CLAIMS)
    use_examples()
    outcomes: dict[str, ClaimResult] = {}
    for name in names or CLAIMS:
        claim = claim_of(name)
        began = time.monotonic()

        def progress(what: str, name: str = name, began: float = began) -> None:
            print(f"{name}: {what} ({time.monotonic() - began:.0f} s so far)", file=sys.stderr, flush=True)

        outcomes[name] = claim.run(progress)
        if not as_json:
            show(claim, outcomes[name])
    if as_json:
        print_json({name: {**asdict(outcome), "holds": outcome.holds} for name, outcome in outcomes.items()})
    failed = [name for name, outcome in outcomes.items() if not outcome.holds]
    if failed:
        raise CommandError(f"not reproduced: {', '.join(failed)}")


def claim_of(name: str) -> Claim:
    """Return a claim by name; importing it imports PyTorch."""
    claim: Claim = getattr(import_module(f"netsum.bench.claims.{name}"), name.upper())
    return claim


def show(claim: Claim, outcome: ClaimResult) -> None:
    """Print a claim's table and what of it holds."""
    echo(f"{claim.name}: {claim.sentence} ({claim.source})")
    echo(outcome.setting)
    table = Rows(*outcome.headings, key=outcome.key)
    for row in outcome.rows:
        table.add(*row)
    table.print()
    for finding, holds in outcome.findings:
        echo(f"{'holds' if holds else 'DOES NOT HOLD'}: {finding}")
    echo("")
