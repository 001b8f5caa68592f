"""`netsum explore`."""

from pathlib import Path
from typing import Annotated

import typer

from netsum.cli.texts import epilog
from netsum.command_errors import UsageError

EPILOG = epilog(
    ("netsum explore", "two workers, one slot, three rounds: every schedule"),
    ("netsum explore --list", "what can be explored"),
    ("netsum explore two-slots-three-rounds --checkpoint run", "kept in the folder run every minute"),
    ("netsum explore --resume run", "go on"),
    ("netsum explore --random --minutes 10", "random schedules of larger systems"),
    ("netsum explore --replay schedule.json", "run a schedule again, step by step"),
    ok="every schedule was explored; none breaks a guarantee",
    fault="a schedule breaks a guarantee and was written to files; or memory ran out; or it could not be done",
)


def explore(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Configurations. Default: smallest.", show_default=False),
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="List the configurations and end.")] = False,
    shortest: Annotated[
        bool,
        typer.Option("--shortest", help="Breadth first: slower, but what is found is as short as can be."),
    ] = False,
    all_states: Annotated[
        bool, typer.Option("--all-states", help="Leave no state out that another one stands for.")
    ] = False,
    symmetry: Annotated[
        bool | None,
        typer.Option(
            help="One state stands for all renumberings of equal workers. Default: from four workers on.",
            show_default=False,
        ),
    ] = None,
    memory: Annotated[int, typer.Option(min=256, metavar="MIB", help="MiB that the search may hold.")] = 4096,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Keep the search in this folder, once a minute and on Ctrl-C.")
    ] = None,
    every: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="How often --checkpoint and --resume keep it.")
    ] = 60.0,
    resume: Annotated[Path | None, typer.Option(help="Go on with the search in this folder.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the files of a violation.")] = Path("explored"),
    replay: Annotated[Path | None, typer.Option(help="Run the schedule in this file and end.")] = None,
    at_random: Annotated[
        bool, typer.Option("--random", help="Random schedules of larger systems, on all processors.")
    ] = False,
    minutes: Annotated[float, typer.Option(min=0.01, help="How long, with --random.")] = 1.0,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of --random. Default: a new one, printed.")
    ] = None,
) -> None:
    """Run the shipped P4 program and the shipped worker core through every schedule of a small system.

    A state is the switch's registers and tables, all workers, and the packets in flight. Packets are lost, duplicated any
    number of times and reordered in any way; timers fire at any time; workers and switch die where the
    configuration says so. In every state S1 to S6 of docs/protocol.md are checked. docs/explorer.md has the details.
    """
    from netsum import explore as exploration

    if symmetry and all_states:
        raise UsageError("--symmetry leaves states out and --all-states leaves none out: give one of them")
    chosen = [value for value in (resume, replay, at_random or None) if value is not None]
    if len(chosen) > 1 or (chosen and names):
        raise UsageError("give configurations, --resume, --replay or --random, not several of them")
    if list_all:
        exploration.print_configurations()
        return
    if at_random:
        clean = exploration.run_at_random(minutes, seed, out)[0]
    elif replay is not None:
        clean = exploration.replay(replay)
    elif resume is not None:
        clean = exploration.resume(resume, memory << 20, every, out)
    else:
        clean = exploration.run(
            names or ["smallest"],
            order="breadth" if shortest else "largest",
            reduce=not all_states,
            symmetry=symmetry,
            memory_bytes=memory << 20,
            checkpoint=checkpoint,
            every_s=every,
            out=out,
        )
    if not clean:
        raise typer.Exit(1)
