"""`netsum repro`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from netsum.cli.texts import epilog
from netsum.command_errors import UsageError
from netsum.options import json_option
from netsum_common.options import argument, option

if TYPE_CHECKING:
    from netsum.repro.runs import ComparedRun

EPILOG = epilog(
    "netsum repro -- torchrun --nproc-per-node 4 train.py  # exact sums, plain sums and Gloo",
    "netsum repro --over exact --json -- torchrun --nproc-per-node 4 train.py  # for CI",
    "netsum repro --over gloo --condition buckets --condition order -- torchrun --nproc-per-node 4 train.py"
    "  # what Gloo's sums depend on",
    "netsum repro -- python train.py  # a training in one process",
    ok="all runs have the same bits",
    fault="some run differs, and standard output says where and why; or the training failed",
)


@dataclass(frozen=True)
class ReproOptions:
    """A training, and the conditions under which it is run."""

    command: tuple[str, ...] = argument("The training: program and arguments.", metavar="COMMAND...")
    over: tuple[Literal["exact", "plain", "gloo"], ...] = option(
        "Sums to use: exact or plain ones of a switch, or Gloo's. Default: all.", ()
    )
    condition: tuple[Literal["buckets", "order", "lanes", "loss", "tree", "link"], ...] = option(
        "What to change, one at a time. Default: everything.", ()
    )
    workers: tuple[int, ...] = option("Another number for --nproc-per-node.", (), within=(1, None))
    controller: tuple[str, ...] = option(
        "Another network, such as one with a tree of switches.", (), metavar="ADDRESS"
    )
    steps: int = option("Optimizer steps to compare.", 20, within=(1, None))
    timeout: float = option("Time for one run.", 3600.0, within=(1.0, None), metavar="SECONDS")
    keep: Path | None = option("New folder that keeps the first run's tensors and output.")
    as_json: bool = json_option()


def repro(options: ReproOptions) -> None:
    """Run a training several times under different conditions, and name the first step, tensor and element that differ.

    The training is run as it is, again, and with one thing changed at a time: the size of DistributedDataParallel's buckets,
    the order of the ranks, lanes, 1 % of the packets lost, a tree of two switches, UDP instead of shared memory. Gradients and
    weights at every step of an optimizer of torch.optim are compared, bit for bit. If a plain repetition differs, two runs
    with seeds distinguish random numbers without a seed from a race. Every run writes its tensors to disk: twice the
    model's size a step and rank.
    """
    import tempfile

    from netsum.repro.runs import CONDITIONS, OVER, Training, examine
    from netsum.terminal import echo, print_json

    keep = options.keep
    if keep is not None and keep.exists():
        raise UsageError(f"--keep: expected a folder that does not exist yet, not {str(keep)!r}")
    conditions = {name: CONDITIONS[name] for name in options.condition or CONDITIONS}
    conditions |= {f"controller {each}": {"NETSUM_CONTROLLER": each} for each in options.controller}
    with tempfile.TemporaryDirectory() as temporary:
        findings = examine(
            Training(options.command, keep or Path(temporary), options.steps, options.timeout),
            options.over or list(OVER),
            conditions,
            options.workers,
            (lambda compared: None) if options.as_json else _show,
        )
    if options.as_json:
        document = {"reproducible": findings.reproducible, "causes": findings.causes}
        print_json({**document, "runs": [each.to_json() for each in findings.runs]})
    else:
        for sentence in findings.causes or ["all runs have the same bits"]:
            echo(sentence)
    if not findings.reproducible:
        raise typer.Exit(1)


def _show(compared: "ComparedRun") -> None:
    from netsum.terminal import echo

    where = "" if compared.first is None else f"  {compared.first}"
    echo(f"{compared.over:8}{compared.condition:12}{compared.result}{where}")
