"""netsum beside Gloo inside PyTorch: runs the ranks, and writes what they measured as tables."""

from __future__ import annotations

import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from netsum.allreduce.launch import Ranks, Site
from netsum.allreduce.plan import PlanError, parse_size, size_text
from netsum.allreduce.report import Message
from netsum.bench.machine import use_examples
from netsum.bench.torch_rank import BACKENDS, Plan

__all__ = ["EXAMPLES", "Comparison", "compare", "plan_of", "print_allreduces", "print_examples"]

SILENCE_S = 900.0
"""How long the ranks may say nothing: one training, on a slow link."""
EXAMPLES = {"digits_cnn": 30, "char_lstm": 20, "wide_embedding": 10, "wide_embedding_sparse": 10}
"""Steps of a run."""


@dataclass
class Comparison:
    """What ranks measured.

    Attributes
    ----------
    seconds
        Of an all-reduce, by bytes and backend, one for each run.
    examples
        Reports as examples/harness.py makes them, by example and backend, one for each run.
    """

    seconds: dict[int, dict[str, list[float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    examples: dict[str, dict[str, list[Message]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )

    def take(self, rank: int, message: Message) -> None:
        """Keep a message of a rank."""
        if message["event"] == "allreduce":
            self.seconds[message["bytes"]][message["backend"]].append(message["seconds"])
        elif message["event"] == "example":
            self.examples[message["name"]][message["backend"]].append(message)


def plan_of(runs: int, sizes: str, examples: str) -> Plan:
    """Read a plan as options write it: sizes and names of examples with commas between them, either of them empty for none.

    Raises
    ------
    PlanError
        There is no such size or example.
    """
    names = [name for name in examples.split(",") if name]
    if names:
        use_examples()
    for name in names:
        if name not in EXAMPLES:
            raise PlanError(f"there is no example {name!r}: expected {', '.join(EXAMPLES)}")
    return Plan(
        runs=runs,
        sizes=[parse_size(size) for size in sizes.split(",") if size],
        examples={name: EXAMPLES[name] for name in names},
    )


def compare(
    plan: Plan,
    sites: Sequence[Site],
    *,
    master: str,
    interfaces: Sequence[str],
    controller: str,
    folder: Path,
) -> Comparison:
    """Run a rank on each of several sites.

    Parameters
    ----------
    plan
        What they measure.
    sites
        Where; one a rank.
    master
        Address of the first site, where the ranks meet.
    interfaces
        Of each site, for Gloo.
    controller
        What NETSUM_CONTROLLER is set to.
    folder
        For the ranks' logs.

    Raises
    ------
    RankError
        A rank failed.
    """

    def command(rank: int) -> list[str]:
        return [
            *(sys.executable, "-m", "netsum.bench.torch_rank", "--rank", str(rank)),
            *("--world-size", str(len(sites)), "--plan", plan.to_json()),
            *("--master", master, "--interface", interfaces[rank]),
        ]

    comparison = Comparison()
    os.environ["NETSUM_CONTROLLER"] = controller
    with Ranks(command, sites, folder) as ranks:
        ranks.follow(SILENCE_S, comparison.take)
        ranks.dismiss()
    return comparison


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):9.2f} ({min(values):.2f} … {max(values):.2f})"


def print_allreduces(comparison: Comparison) -> None:
    """Print the times of the all-reduces, and how they compare."""
    print(f"{'float32 tensor':>14}  {'netsum, ms':28} {'Gloo, ms':28} {'netsum / Gloo':>13}")
    for size, by_backend in comparison.seconds.items():
        ours, theirs = ([second * 1e3 for second in by_backend[backend]] for backend in BACKENDS)
        ratio = statistics.median(ours) / statistics.median(theirs)
        print(f"{size_text(size):>14}  {_spread(ours):28} {_spread(theirs):28} {ratio:13.2f}")


def print_examples(comparison: Comparison) -> None:
    """Print the times of the examples' steps, and how they compare."""
    print(
        f"{'':21} {'':7} {'ms a step':28} {'computing':>10} {'communicating':>14} {'gradients':>10} {'sent':>9}"
    )
    for name, by_backend in comparison.examples.items():
        for backend in BACKENDS:
            reports = by_backend[backend]
            steps = [report["step_ms"] for report in reports]
            computing = statistics.median(report["compute_ms"] for report in reports)
            communicating = statistics.median(
                max(0.0, report["step_ms"] - report["compute_ms"]) for report in reports
            )
            sent = reports[0]["sent_bytes"]
            print(
                f"{name:21} {backend:7} {_spread(steps):28} {computing:10.1f} {communicating:14.1f} "
                f"{reports[0]['gradient_bytes'] / 1e6:7.2f} MB "
                + (f"{sent / 1e6:6.2f} MB" if sent is not None else f"{'-':>9}")
            )
        ours, theirs = (
            statistics.median(report["step_ms"] for report in by_backend[backend]) for backend in BACKENDS
        )
        print(f"{'':21} {'':7} a step over netsum takes {ours / theirs:.2f} times as long as over Gloo")
