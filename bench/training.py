"""``netsum bench training``: a training step over netsum and over Gloo, on the same limited links, in the same run.

A Mininet testbed is brought up; on each of its hosts one process has a group of both backends, and trains the examples over
each in turn, several times. The ranks meet over the data network, whose switch forwards torch's rendezvous and Gloo's TCP
like any other traffic.
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
from bench.testbeds import testbed  # noqa: E402
from bench.torch_comparison import EXAMPLES, compare, plan_of, print_allreduces, print_examples  # noqa: E402
from netsum.allreduce.session import testbed_sites  # noqa: E402

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the time of a step, how much of it is communication, the machine and the date."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--topology", default="star-4", help="as netsum testbed up takes it")
    parser.add_argument("--rate", default="100mbit", help="of every link")
    parser.add_argument("--loss", default="0", help="percent, of every link, each way")
    parser.add_argument("--lanes", type=int, choices=(64, 256), default=256)
    parser.add_argument("--runs", type=int, default=3, help="of everything")
    parser.add_argument("--examples", default=",".join(EXAMPLES), help="which to train")
    parser.add_argument("--sizes", default="", help="of tensors to all-reduce besides; empty: none")
    chosen = parser.parse_args(arguments)
    plan = plan_of(chosen.runs, chosen.sizes, chosen.examples)
    print(machine_and_date())
    print(f"load before: {os.getloadavg()[0]:.1f}; medians of {chosen.runs} runs (least … most)")
    with (
        testbed(
            chosen.topology,
            switch="embedded",
            lanes=chosen.lanes,
            rate=chosen.rate,
            loss_percent=chosen.loss,
        ) as bed,
        tempfile.TemporaryDirectory() as folder,
    ):
        sites = testbed_sites(bed, ())
        hosts = bed.state["hosts"]
        comparison = compare(
            plan,
            sites,
            master=hosts[sites[0].name]["ip"],
            interfaces=[hosts[site.name]["interface"] for site in sites],
            controller=bed.controller_address,
            folder=Path(folder),
        )
        print(
            f"{bed.state['topology']}: {len(sites)} hosts, every link {chosen.rate}, {chosen.loss} % loss; "
            f"embedded switch, {chosen.lanes} lanes"
        )
    if plan.sizes:
        print_allreduces(comparison)
    print_examples(comparison)


if __name__ == "__main__":
    main()
