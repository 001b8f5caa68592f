"""``netsum bench training``: a training step over netsum and over Gloo, on the same limited links, in the same run.

A Mininet testbed is brought up; on each of its hosts one process has a group of both backends, and trains the examples over
each in turn, several times. The ranks meet over the data network, whose switch forwards torch's rendezvous and Gloo's TCP
like any other traffic.
"""

import os
import tempfile
from pathlib import Path

from netsum.bench.machine import machine_and_date
from netsum.bench.testbeds import testbed
from netsum.bench.torch_comparison import compare, plan_of, print_allreduces, print_examples


def run(
    *, topology: str, rate: str, loss: str, lanes: int, runs: int, examples: str, sizes: str, dtypes: str
) -> None:
    """Measure, and print the time of a step, how much of it is communication, the machine and the date."""
    plan = plan_of(runs, sizes, examples, dtypes)
    print(machine_and_date())
    print(f"load before: {os.getloadavg()[0]:.1f}; medians of {runs} runs (least … most)")
    with (
        testbed(topology, switch="embedded", lanes=lanes, rate=rate, loss_percent=loss) as bed,
        tempfile.TemporaryDirectory() as folder,
    ):
        comparison = compare(plan, bed, controller=bed.controller_address, folder=Path(folder))
        print(
            f"{bed.state['topology']}: {len(bed.state['hosts'])} hosts, every link {rate}, {loss} % loss; "
            f"embedded switch, {lanes} lanes"
        )
    if plan.sizes:
        print_allreduces(comparison)
    print_examples(comparison)
