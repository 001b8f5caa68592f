"""`netsum repro`."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netsum.cli.texts import epilog
from netsum.command_errors import UsageError

if TYPE_CHECKING:
    from netsum.repro.runs import ComparedRun

EPILOG = epilog(
    ("netsum repro -- torchrun --nproc-per-node 4 train.py", "exact sums, plain sums and Gloo"),
    ("netsum repro --over exact --json -- torchrun --nproc-per-node 4 train.py", "for CI"),
    (
        "netsum repro --over gloo --condition buckets --condition order -- torchrun --nproc-per-node 4 train.py",
        "what Gloo's sums depend on",
    ),
    ("netsum repro -- python train.py", "a training in one process"),
    ok="all runs have the same bits",
    fault="some run differs, and standard output says where and why; or the training failed",
)


class Sums(StrEnum):
    """Kinds of sums that a training uses."""

    exact = "exact"
    plain = "plain"
    gloo = "gloo"


class ReproChange(StrEnum):
    """Conditions that change between runs."""

    buckets = "buckets"
    order = "order"
    lanes = "lanes"
    loss = "loss"
    tree = "tree"
    link = "link"


def repro(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", help="The training: program and arguments.")
    ],
    over: Annotated[
        list[Sums] | None,
        typer.Option(
            help="Sums to use: exact or plain ones of a switch, or Gloo's. Default: all.", show_default=False
        ),
    ] = None,
    condition: Annotated[
        list[ReproChange] | None,
        typer.Option(help="What to change, one at a time. Default: everything.", show_default=False),
    ] = None,
    workers: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Another number for --nproc-per-node.", show_default=False),
    ] = None,
    controller: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="Another network, such as one with a tree of switches.",
            show_default=False,
        ),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Optimizer steps to compare.")] = 20,
    timeout: Annotated[float, typer.Option(min=1.0, metavar="SECONDS", help="Time for one run.")] = 3600.0,
    keep: Annotated[
        Path | None, typer.Option(help="New folder that keeps the first run's tensors and output.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document, for scripts.")] = False,
) -> None:
    """Run a training several times under other conditions, and name the first step, tensor and element that differ.

    The training is run as it is, again, and with one thing changed at a time: the size of DistributedDataParallel's buckets,
    the order of the ranks, lanes, 1 % of the packets lost, a tree of two switches, UDP instead of shared memory. Gradients and
    weights at every step of an optimizer of torch.optim are compared, bit for bit. If a plain repetition differs, two runs
    with seeds distinguish random numbers without a seed from a race. Every run writes its tensors to disk: twice the
    model's size a step and rank.
    """
    import tempfile

    from netsum.repro.runs import CONDITIONS, Training, examine
    from netsum.terminal import echo, print_json

    if keep is not None and keep.exists():
        raise UsageError(f"--keep: expected a folder that does not exist yet, not {str(keep)!r}")
    conditions = {name: CONDITIONS[name] for name in condition or CONDITIONS}
    conditions |= {f"controller {each}": {"NETSUM_CONTROLLER": each} for each in controller or ()}
    with tempfile.TemporaryDirectory() as temporary:
        findings = examine(
            Training(command, keep or Path(temporary), steps, timeout),
            over or list(Sums),
            conditions,
            workers or [],
            (lambda compared: None) if as_json else _show,
        )
    if as_json:
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
