"""`netsum run`: whole demonstrations."""

import typer

from netsum.cli.parameters import Commands
from netsum.cli.texts import epilog
from netsum.digits.task import DigitsOptions

run_app = Commands(help="Run a whole demonstration: switch, controller and workers.")


@run_app.callback()
def run_group() -> None:
    """Run a whole demonstration: switch, controller and workers."""


@run_app.command(
    "digits",
    epilog=epilog(
        "netsum run digits  # four workers, then the same with 1 % of the packets lost each way",
        "netsum run digits --workers 8 --lanes 64  # eight workers, smaller packets",
        "netsum run digits --json | jq '.runs[] | {drop_percent, retransmissions}'  # for a script",
        "sudo netsum run digits --mininet  # hosts and switch in network namespaces",
        "sudo netsum run digits --switch bmv2  # the same program on BMv2, in network namespaces",
        ok="trained; all workers of all runs ended with the same bits",
    ),
)
def run_digits(options: DigitsOptions) -> None:
    """Train a neural network on handwritten digits while the P4 program adds the gradients.

    Worker processes train on their parts of 1,797 handwritten digits; their gradients are added by the
    switch. The result is set beside single-process training on the same batches. Then the same is done with packets
    dropped: the bits must be the same.
    """
    from netsum.digits.demo import plan_demo, run_demo
    from netsum.terminal import console, print_result

    demo = plan_demo(options)
    if not print_result(options.as_json, lambda: run_demo(demo, console()))["same_bits"]:
        raise typer.Exit(1)
