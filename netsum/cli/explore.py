"""`netsum explore`."""

from typing import Any

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
    from netsum.terminal import print_result

    if options.symmetry and options.all_states:
        raise UsageError("--symmetry leaves states out and --all-states leaves none out: give one of them")
    chosen = [
        each for each in (options.resume, options.replay, options.at_random or None) if each is not None
    ]
    if len(chosen) > 1 or (chosen and options.names):
        raise UsageError("give configurations, --resume, --replay or --random, not several of them")
    found = print_result(options.as_json, lambda: _explored(options))
    if not found.get("clean", True):
        raise typer.Exit(1)


def _explored(options: ExploreOptions) -> dict[str, Any]:
    from netsum.explore import at_random, runs

    if options.list_all:
        return {"configurations": runs.print_configurations()}
    if options.at_random:
        found = at_random.run_at_random(options.minutes, options.seed, options.out)
        return {"clean": found.clean, "seed": found.seed, "systems": found.systems}
    if options.replay is not None:
        return {"clean": runs.replay(options.replay)}
    ended = runs.run(options) if options.resume is None else runs.resume(options.resume, options)
    return {"clean": all(each["outcome"] == "exhausted" for each in ended), "searches": ended}
