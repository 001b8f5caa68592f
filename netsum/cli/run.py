"""`netsum run`: whole demonstrations."""

from typing import Annotated

import typer

from netsum.cli.options import DemoSwitch
from netsum.cli.parameters import Commands
from netsum.cli.texts import epilog
from netsum_common.lane_counts import Lanes

run_app = Commands(help="Run a whole demonstration: switch, controller and workers.")


@run_app.callback()
def run_group() -> None:
    """Run a whole demonstration: switch, controller and workers."""


@run_app.command(
    "digits",
    epilog=epilog(
        ("netsum run digits", "four workers, then the same with 1 % of the packets lost each way"),
        ("netsum run digits --workers 8 --lanes 64", "eight workers, smaller packets"),
        ("sudo netsum run digits --mininet", "hosts and switch in network namespaces"),
        ("sudo netsum run digits --switch bmv2", "the same program on BMv2, in network namespaces"),
        ok="trained; all workers of all runs ended with the same bits",
    ),
)
def run_digits(
    workers: Annotated[int, typer.Option(min=1, max=32, help="Worker processes.")] = 4,
    lanes: Annotated[
        Lanes | None, typer.Option(help="int32 values a packet carries. Default: 256; 64 with BMv2.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, max=100_000, help="Gradient steps. Default: 200; 60 with BMv2.")
    ] = None,
    drop_percent: Annotated[
        float,
        typer.Option(min=0.0, max=50.0, help="Packets dropped each way in the second run; 0: no second run."),
    ] = 1.0,
    switch: Annotated[
        DemoSwitch, typer.Option(help="Who runs the P4 program; BMv2 does so in Mininet.")
    ] = "embedded",
    mininet: Annotated[
        bool,
        typer.Option("--mininet", help="Hosts and switch in network namespaces, not on loopback (root)."),
    ] = False,
) -> None:
    """Train a neural network on handwritten digits while the P4 program adds the gradients.

    Worker processes train on their parts of scikit-learn's bundled digits; their gradients are added by the
    switch. The result is set beside single-process training on the same batches. Then the same is done with packets
    dropped: the bits must be the same.
    """
    from netsum.digits.demo import plan_demo, run_demo
    from netsum.terminal import console

    demo = plan_demo(
        workers=workers,
        lanes=None if lanes is None else int(lanes),
        steps=steps,
        drop_percent=drop_percent,
        in_mininet=mininet,
        on_bmv2=switch == "bmv2",
    )
    if not run_demo(demo, console()):
        raise typer.Exit(1)
