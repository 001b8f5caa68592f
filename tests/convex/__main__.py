"""Check the claims on compressed differences: DIANA, VR-DIANA, ISEGA, and methods without a memory that stall.

    python -m tests.convex [--quick] [--loss PERCENT]

Four workers whose data differ descend on ridge and logistic regression, their payloads added by the slots of a simulated switch:
the real P4 program and worker core. A hundred workers are computed in memory. Distances are of the squared error relative to the
start; `half` is the number of steps to the square root of the accuracy, half of all where the rate is linear.
"""

import argparse
import sys
import time

from netsum.terminal import ProgressRows
from tests.convex.cases import Case, CaseResult, cases_of, run_case


def main() -> int:
    """Run all cases and print them; 1 if a claim does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.convex", description=__doc__)
    parser.add_argument("--loss", type=float, default=1.0, help="of packets in percent, on each link and way")
    parser.add_argument("--quick", action="store_true", help="leave out what takes more than a minute")
    chosen = parser.parse_args()
    cases = cases_of(quick=chosen.quick)
    outcomes = []
    for number, case in enumerate(cases, 1):
        began = time.monotonic()
        outcomes.append((case, run_case(case, loss=chosen.loss / 100)))
        print(f"{number} of {len(cases)}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    show(outcomes)
    return int(any(not outcome.holds for _, outcome in outcomes))


def show(outcomes: list[tuple[Case, CaseResult]]) -> None:
    """Print the table."""
    table = ProgressRows(
        *("problem", "method", "compressor", ">steps", ">half", ">bound", ">without", ">distance"),
        *(">payload", ">wire", ">lost", "claim"),
        key=3,
    )
    for case, outcome in outcomes:
        table.add(
            case.problem,
            case.method,
            " ".join([case.compressor, *(f"{name}={value}" for name, value in case.options.items())]),
            *(
                "" if each is None else f"{each:,}"
                for each in (outcome.steps, outcome.half, outcome.bound, outcome.descent_steps)
            ),
            f"{outcome.distance:.1e}",
            f"{outcome.payload_bytes:.0f}",
            "" if outcome.wire_bytes is None else f"{outcome.wire_bytes:.0f}",
            f"{outcome.lost:,}" if outcome.wire_bytes is not None else "",
            ("stalls" if case.stalls else "converges") if outcome.holds else "FAILS",
        )
    table.print()


if __name__ == "__main__":
    sys.exit(main())
