"""netsum beside Gloo inside PyTorch: runs the ranks, and writes their measurements as tables."""

import os
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from netsum.allreduce.plan import PlanError, parse_size, size_text
from netsum.allreduce.report import Message
from netsum.bench.machine import use_examples
from netsum.bench.options import TorchOptions
from netsum.bench.testbeds import run_ranks
from netsum.bench.torch_plan import COLLECTIVES, TorchPlan
from netsum.bench.torch_rank import BACKENDS
from netsum.terminal import ProgressRows
from topologies.run_folder import RunningTestbed

SILENCE_S = 900.0  # How long the ranks may print nothing: one training, on a slow link.
EXAMPLES = {
    "digits_cnn": 30,
    "char_lstm": 20,
    "wide_embedding": 10,
    "wide_embedding_sparse": 10,
    "resnet18": 5,
    "transformer_lm": 10,
    "transformer_fsdp": 5,
}
"""Steps of a run."""
DTYPES = ("float32", "bfloat16")


@dataclass
class TorchComparison:
    """Measurements of ranks."""

    # Seconds of a collective, by (name, bytes, dtype) and backend, one for each run; bytes that rank 0 received likewise.
    seconds: dict[tuple[str, int, str], dict[str, list[float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    received: dict[tuple[str, int, str], dict[str, list[float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    # Reports as examples/harness.py makes them, by (example, dtype) and backend, one for each run.
    examples: dict[tuple[str, str], dict[str, list[Message]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )

    def on_message(self, rank: int, message: Message) -> None:
        """Keep a message of a rank."""
        if message["event"] == "collective":
            key = message["collective"], message["bytes"], message["dtype"]
            self.seconds[key][message["backend"]].append(message["seconds"])
            self.received[key][message["backend"]].append(message["received"])
        elif message["event"] == "example":
            self.examples[message["name"], message["dtype"]][message["backend"]].append(message)

    def to_json(self) -> dict[str, Any]:
        """Return it as `netsum bench torch --json` shows it."""
        return {
            "collectives": [
                {"collective": name, "bytes": size, "dtype": dtype, "backend": backend, "seconds": seconds,
                 "received_bytes": self.received[name, size, dtype][backend]}
                for (name, size, dtype), by_backend in self.seconds.items()
                for backend, seconds in by_backend.items()
            ],
            "examples": [
                report
                for by_backend in self.examples.values()
                for reports in by_backend.values()
                for report in reports
            ],
        }  # fmt: skip


def plan_of(options: TorchOptions) -> TorchPlan:
    """Return the plan that options describe.

    Raises PlanError if there is no such collective, size, example, type or device.
    """
    collectives, dtypes = options.collectives.split(","), options.dtypes.split(",")
    other = sorted({*collectives} - {*COLLECTIVES})
    if other:
        raise PlanError(f"--collectives: expected {', '.join(COLLECTIVES)}, not {other[0]!r}")
    unknown = sorted({*dtypes} - {*DTYPES})
    if unknown:
        raise PlanError(f"--dtypes: expected {' or '.join(DTYPES)}, not {unknown[0]!r}")
    if options.device == "cuda" and not torch.cuda.is_available():
        raise PlanError("--device cuda: PyTorch finds no GPU that it can use here")
    names = [name for name in options.examples.split(",") if name]
    if names:
        use_examples()
    for name in names:
        if name not in EXAMPLES:
            raise PlanError(f"there is no example {name!r}: expected {', '.join(EXAMPLES)}")
    return TorchPlan(
        runs=options.runs,
        collectives=collectives,
        sizes=[parse_size(size) for size in options.sizes.split(",") if size],
        dtypes=dtypes,
        examples={name: EXAMPLES[name] for name in names},
        device=options.device,
    )


def compare(
    plan: TorchPlan, where: RunningTestbed | int, *, controller: str, folder: Path
) -> TorchComparison:
    """Run a rank on each host of a testbed, or some on loopback, and return their measurements; `RankError` if a rank failed."""
    comparison = TorchComparison()
    os.environ["NETSUM_CONTROLLER"] = controller
    run_ranks("torch_rank", plan.to_json(), where, folder, SILENCE_S, comparison.on_message)
    return comparison


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} … {max(values):.2f})"


def print_collectives(comparison: TorchComparison) -> None:
    """Print the times of the collectives, how they compare, and what rank 0 received."""
    mpi = any("mpi" in by_backend for by_backend in comparison.seconds.values())
    rows = ProgressRows(
        *("collective", "float32 size", "type", ">netsum, ms", ">Gloo, ms", ">netsum / Gloo"),
        *(">netsum, MB in", ">Gloo, MB in"),
        *([">MPI, ms"] if mpi else []),
    )
    for key, by_backend in comparison.seconds.items():
        collective, size, dtype = key
        ours, theirs = ([second * 1e3 for second in by_backend[backend]] for backend in BACKENDS)
        ratio = statistics.median(ours) / statistics.median(theirs)
        of_mpi = [_spread([second * 1e3 for second in by_backend["mpi"]]) if "mpi" in by_backend else ""]
        taken = [f"{statistics.median(comparison.received[key][backend]) / 1e6:.3f}" for backend in BACKENDS]
        rows.add(
            *(collective, size_text(size), dtype, _spread(ours), _spread(theirs), f"{ratio:.2f}"),
            *taken,
            *(of_mpi if mpi else []),
        )
    rows.print()


def print_examples(comparison: TorchComparison) -> None:
    """Print the times of the examples' steps, and how they compare: as a multiple of a step over Gloo."""
    rows = ProgressRows(
        "example", "gradients", "over", ">ms a step", ">x Gloo", ">computing", ">communicating", ">size, MB", ">sent, MB",
        ">last loss", key=3,
    )  # fmt: skip
    for (name, dtype), by_backend in comparison.examples.items():
        of_gloo = statistics.median(report["step_ms"] for report in by_backend["gloo"])
        for backend in BACKENDS:
            reports = by_backend[backend]
            steps = [report["step_ms"] for report in reports]
            communicating = [max(0.0, report["step_ms"] - report["compute_ms"]) for report in reports]
            sent = reports[0]["sent_bytes"]
            rows.add(
                name,
                dtype,
                backend,
                _spread(steps),
                f"{statistics.median(steps) / of_gloo:.2f}",
                f"{statistics.median(report['compute_ms'] for report in reports):.1f}",
                f"{statistics.median(communicating):.1f}",
                f"{reports[0]['gradient_bytes'] / 1e6:.2f}",
                "-" if sent is None else f"{sent / 1e6:.2f}",
                f"{reports[0]['losses'][-1]:.4f}",
            )
    rows.print()
