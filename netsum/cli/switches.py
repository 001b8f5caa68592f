"""`netsum switch`: the embedded switch as a process."""

from pathlib import Path
from typing import Annotated

import typer

from netsum.cli.faults import told_in_a_sentence
from netsum.cli.texts import epilog

switch_app = typer.Typer(help="Run an embedded P4 switch, and look at switches.", no_args_is_help=True)


@switch_app.callback()
def switch_group() -> None:
    """Run an embedded P4 switch, and look at switches."""


@switch_app.command(
    "serve",
    epilog=epilog(
        ("netsum switch serve --ports 4", "P4Runtime on 127.0.0.1:9559, ports on UDP 28275 to 28278"),
        ("netsum switch serve --drop-ppm 10000", "with 1 % of the packets lost each way"),
        ("netsum switch serve --program my.json --p4info my.p4info.txtpb", "any v1model program"),
        ok="ended by Ctrl-C or SIGTERM",
        interrupted="",
    ),
)
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
