"""``netsum bench torch``: netsum and Gloo inside PyTorch on plain loopback, where no link limits either.

The same processes have a group of each and use them in turn. Here netsum can only lose: its switch is software that takes a core
of the same machine, and every value crosses the kernel twice as UDP datagrams, while Gloo moves 64 KiB at a time through TCP.
The table says by how much.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.engine import machine_and_date  # noqa: E402
from bench.options import counts  # noqa: E402
from bench.torch_comparison import (  # noqa: E402
    EXAMPLES,
    Comparison,
    compare,
    plan_of,
    print_allreduces,
    print_examples,
)
from bench.torch_rank import Plan  # noqa: E402
from netsum.allreduce.session import local_sites, loopback_controller  # noqa: E402

__all__ = ["main", "measure"]


def measure(plan: Plan, workers: int, lanes: int) -> Comparison:
    """Measure both backends with so many processes of this machine."""
    with (
        tempfile.TemporaryDirectory() as name,
        loopback_controller(workers, lanes, 0, Path(name)) as controller,
    ):
        return compare(
            plan,
            local_sites(workers),
            master="127.0.0.1",
            interfaces=["lo"] * workers,
            controller=controller,
            folder=Path(name),
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the times, their ratio, the machine and the date."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--workers", type=counts, default="2,4", help="numbers of processes")
    parser.add_argument("--sizes", default="4KiB,64KiB,1MiB,16MiB,64MiB", help="of the tensors")
    parser.add_argument("--runs", type=int, default=5, help="of everything")
    parser.add_argument("--lanes", type=int, choices=(64, 256), default=256)
    parser.add_argument("--examples", default=",".join(EXAMPLES), help="which to train; empty: none")
    chosen = parser.parse_args(arguments)
    plan = plan_of(chosen.runs, chosen.sizes, chosen.examples)
    print(machine_and_date())
    print(
        f"load before: {os.getloadavg()[0]:.1f}; plain loopback, {chosen.lanes} lanes; "
        f"medians of {chosen.runs} runs (least … most)"
    )
    for workers in chosen.workers:
        comparison = measure(plan, workers, chosen.lanes)
        print(f"\n{workers} processes, one thread each")
        if plan.sizes:
            print_allreduces(comparison)
        if plan.examples:
            print_examples(comparison)


if __name__ == "__main__":
    main()
