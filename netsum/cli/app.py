"""The commands and their options. What they do is imported when they run, so that ``--help`` is fast."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from netsum.cli.faults import told_in_a_sentence

app = typer.Typer(
    name="netsum",
    help="In-network aggregation that anyone can run: P4 switches add the gradients of a training job.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
run_app = typer.Typer(help="Run a whole demonstration: switch, controller and workers.", no_args_is_help=True)
switch_app = typer.Typer(help="The embedded P4 switch.", no_args_is_help=True)
bench_app = typer.Typer(help="Measure what the README quotes.", no_args_is_help=True)
app.add_typer(run_app, name="run")
app.add_typer(switch_app, name="switch")
app.add_typer(bench_app, name="bench")


class SwitchKind(StrEnum):
    """Which switch runs the P4 program."""

    embedded = "embedded"
    bmv2 = "bmv2"


class Lanes(StrEnum):
    """Values a packet carries; a compiled program each."""

    narrow = "64"
    wide = "256"


@run_app.command("digits")
@told_in_a_sentence
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
        SwitchKind, typer.Option(help="Who runs the P4 program; BMv2 needs root.")
    ] = SwitchKind.embedded,
) -> None:
    """Train a neural network on handwritten digits while the P4 program adds the gradients.

    Worker processes train on their parts of scikit-learn's bundled digits; their gradients are added by the
    switch. The result is set beside single-process training on the same batches. Then the same is done with packets
    dropped: the bits must be the same.
    """
    from rich.console import Console

    from netsum.digits.demo import plan_demo, run_demo

    console = Console()
    demo, lacking = plan_demo(
        workers=workers,
        lanes=None if lanes is None else int(lanes),
        steps=steps,
        drop_percent=drop_percent,
        on_bmv2=switch is SwitchKind.bmv2,
    )
    if lacking:
        console.print(f"[yellow]{lacking}.[/yellow] The embedded engine runs the same program instead.")
    if not run_demo(demo, console):
        raise typer.Exit(1)


@switch_app.command("serve")
@told_in_a_sentence
def switch_serve(
    p4runtime: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where P4Runtime listens; port 0: any.")
    ] = "127.0.0.1:9559",
    ports: Annotated[int, typer.Option(min=1, max=509, help="Switch ports.")] = 4,
    udp_base: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="UDP port of switch port 0; 0: any. Default: the protocol's."),
    ] = None,
    device_id: Annotated[int, typer.Option(min=1, help="What controllers know the switch by.")] = 1,
    drop_ppm: Annotated[
        int, typer.Option(min=0, max=1_000_000, help="Packets per million to lose, each way.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Which packets to lose.")] = 0,
    program: Annotated[
        Path | None, typer.Option(help="BMv2 JSON of a program to begin with; needs --p4info.")
    ] = None,
    p4info: Annotated[Path | None, typer.Option(help="P4Info of that program, in text form.")] = None,
    statistics: Annotated[
        Path | None, typer.Option(help="File for counts of packets, written at the end.")
    ] = None,
    allow_remote: Annotated[
        bool,
        typer.Option("--allow-remote", help="Listen where other machines can reach it, unauthenticated."),
    ] = False,
) -> None:
    """Run the embedded switch until Ctrl-C: P4Runtime on one side, UDP ports on loopback on the other."""
    from host_agent.wire.constants import UDP_PORT
    from sim.switch.serve import ServeOptions, run

    status = run(
        ServeOptions(
            p4runtime=p4runtime,
            allow_remote=allow_remote,
            ports=ports,
            udp_base=UDP_PORT if udp_base is None else udp_base,
            device_id=device_id,
            drop_ppm=drop_ppm,
            seed=seed,
            json=program,
            p4info=p4info,
            statistics=statistics,
        )
    )
    raise typer.Exit(status)


@bench_app.command("engine")
@told_in_a_sentence
def bench_engine(
    runs: Annotated[int, typer.Option(min=1, help="Runs of each switch and program.")] = 3,
    lanes: Annotated[Lanes | None, typer.Option(help="int32 values a packet carries; default: both.")] = None,
) -> None:
    """Packets/s of the embedded engine and, where it is installed, of BMv2: same program, same packets."""
    from netsum.cli.benches import run_bench

    run_bench("engine", ["--runs", str(runs), *([] if lanes is None else ["--lanes", lanes])])


@bench_app.command("host")
@told_in_a_sentence
def bench_host(
    runs: Annotated[int, typer.Option(min=1, help="Runs of each operation.")] = 5,
    lanes: Annotated[Lanes, typer.Option(help="int32 values a packet carries.")] = Lanes.wide,
) -> None:
    """Nanoseconds an element costs the worker library to quantize, beside a plain copy."""
    from netsum.cli.benches import run_bench

    run_bench("host", ["--runs", str(runs), "--lanes", lanes])


@app.command("doctor")
@told_in_a_sentence
def doctor() -> None:
    """Look at this machine for what netsum uses, and say what to do about what is missing."""
    from rich.console import Console
    from rich.markup import escape

    from netsum.doctor import examine

    console = Console(soft_wrap=True, highlight=False)
    for finding in examine():
        mark = "[green]ok[/green]" if finding.well else "[yellow]--[/yellow]"
        console.print(f"{mark}  [bold]{finding.subject}[/bold]: {escape(finding.found)}")
        if not finding.well:
            console.print(f"    needed for: {finding.needed_for}", markup=False)
            console.print(f"    to do: {finding.remedy}", markup=False)
