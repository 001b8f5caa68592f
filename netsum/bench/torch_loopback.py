"""``netsum bench torch``: netsum and Gloo inside PyTorch on plain loopback, where no link limits either.

The same processes have a group of each and use them in turn. Here netsum can only lose: its switch is software that takes a core
of the same machine, and every value crosses the kernel twice as UDP datagrams, while Gloo moves 64 KiB at a time through TCP.
The table says by how much.
"""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from netsum.allreduce.session import loopback_controller
from netsum.bench.machine import machine_and_date
from netsum.bench.torch_comparison import (
    Comparison,
    compare,
    plan_of,
    print_allreduces,
    print_examples,
)
from netsum.bench.torch_rank import Plan


def measure(plan: Plan, workers: int, lanes: int) -> Comparison:
    """Measure both backends with `workers` processes of this machine."""
    with (
        tempfile.TemporaryDirectory() as name,
        loopback_controller(workers, lanes, 0, Path(name)) as controller,
    ):
        return compare(plan, workers, controller=controller, folder=Path(name))


def run(*, workers: Sequence[int], sizes: str, runs: int, lanes: int, examples: str, dtypes: str) -> None:
    """Measure, and print the times, their ratio, the machine and the date."""
    plan = plan_of(runs, sizes, examples, dtypes)
    print(machine_and_date())
    print(
        f"load before: {os.getloadavg()[0]:.1f}; plain loopback, {lanes} lanes; "
        f"medians of {runs} runs (least … most)"
    )
    for count in workers:
        comparison = measure(plan, count, lanes)
        print(f"\n{count} processes, one thread each")
        if plan.sizes:
            print_allreduces(comparison)
        if plan.examples:
            print_examples(comparison)
