"""`netsum explore`."""

import typer

from netsum.cli.texts import epilog
from netsum.command_errors import UsageError
from netsum.explore.options import ExploreOptions

EPILOG = epilog(
    "netsum explore  # two workers, one slot, three rounds: every schedule",
    "netsum explore --list  # what can be explored",
    "netsum explore two-slots-three-rounds --checkpoint run  # kept in the folder run every minute",
    "netsum explore --resume run  # go on",
    "netsum explore --random --minutes 10  # random schedules of larger systems",
    "netsum explore --replay schedule.json  # run a schedule again, step by step",
    ok="every schedule was explored; none breaks a guarantee",
    fault="a schedule breaks a guarantee and was written to files; or memory ran out; or it could not be done",
)


def explore(options: ExploreOptions) -> None:
    """Run the shipped P4 program and the shipped worker core through every schedule of a small system.

    A state is the switch's registers and tables, all workers, and the packets in flight. Packets are lost, duplicated any
    number of times and reordered in any way; timers fire at any time; workers and switch die where the
    configuration says so. In every state S1 to S6 of docs/protocol.md are checked. docs/explorer.md has the details.
    """
    from netsum.explore import at_random, runs

    if options.symmetry and options.all_states:
        raise UsageError("--symmetry leaves states out and --all-states leaves none out: give one of them")
    chosen = [
        each for each in (options.resume, options.replay, options.at_random or None) if each is not None
    ]
    if len(chosen) > 1 or (chosen and options.names):
        raise UsageError("give configurations, --resume, --replay or --random, not several of them")
    if options.list_all:
        runs.print_configurations()
        return
    if options.at_random:
        clean = at_random.run_at_random(options.minutes, options.seed, options.out)[0]
    elif options.replay is not None:
        clean = runs.replay(options.replay)
    else:
        clean = runs.run(options) if options.resume is None else runs.resume(options.resume, options)
    if not clean:
        raise typer.Exit(1)
