"""Try what papers claim of strategies on small tasks, and print the numbers.

    python -m tests.claims [--json] [NAME]…

Minutes each; needs PyTorch and scikit-learn. The workers run in this process, in virtual time, with fixed seeds: the numbers are
the same every time (`incremental` measures processor time). The exit status is 1 if a claim is not reproduced.
"""

import argparse
import sys
import time
from dataclasses import asdict
from importlib import import_module
from typing import Final

from netsum.bench.machine import use_examples
from netsum.terminal import ProgressRows, echo, print_json
from tests.claims.claim import Claim, ClaimResult

CLAIMS: Final = (
    "fedavg",
    "diloco",
    "slow_link",
    "dynamic",
    "codistillation",
    "asynchronous",
    "incremental",
    "ddnn",
)


def main() -> int:
    """Try claims and print the result of each; 1 if one does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.claims", description=__doc__)
    parser.add_argument("names", nargs="*", choices=CLAIMS, metavar="NAME", help="default: all claims")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON document")
    chosen = parser.parse_args()
    use_examples()
    outcomes: dict[str, ClaimResult] = {}
    for name in chosen.names or CLAIMS:
        claim = claim_of(name)
        began = time.monotonic()

        def progress(what: str, name: str = name, began: float = began) -> None:
            print(f"{name}: {what} ({time.monotonic() - began:.0f} s so far)", file=sys.stderr, flush=True)

        outcomes[name] = claim.run(progress)
        if not chosen.as_json:
            show(claim, outcomes[name])
    if chosen.as_json:
        print_json({name: {**asdict(outcome), "holds": outcome.holds} for name, outcome in outcomes.items()})
    failed = [name for name, outcome in outcomes.items() if not outcome.holds]
    if failed:
        print(f"not reproduced: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def claim_of(name: str) -> Claim:
    """Return a claim by name; importing it imports PyTorch."""
    claim: Claim = getattr(import_module(f"tests.claims.{name}"), name.upper())
    return claim


def show(claim: Claim, outcome: ClaimResult) -> None:
    """Print a claim's table and what of it holds."""
    echo(f"{claim.name}: {claim.sentence} ({claim.source})")
    echo(outcome.setting)
    table = ProgressRows(*outcome.headings, key=outcome.key)
    for row in outcome.rows:
        table.add(*row)
    table.print()
    for finding, holds in outcome.findings:
        echo(f"{'holds' if holds else 'DOES NOT HOLD'}: {finding}")
    echo("")


if __name__ == "__main__":
    sys.exit(main())
