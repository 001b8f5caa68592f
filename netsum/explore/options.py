"""Options of `netsum explore`."""

from dataclasses import dataclass
from pathlib import Path

from netsum.options import json_option
from netsum_common.options import argument, option


@dataclass(frozen=True)
class ExploreOptions:
    """Options of the explorer."""

    names: tuple[str, ...] = argument("Configurations. Default: smallest.", (), metavar="NAME...")
    list_all: bool = option("List the configurations and end.", False, "--list")
    shortest: bool = option(
        "Search breadth first: slower, but finds a shortest schedule.", False, "--shortest"
    )
    all_states: bool = option("Explore every state, without reductions.", False, "--all-states")
    symmetry: bool | None = option(
        "One state stands for all renumberings of equal workers. Default: from four workers on."
    )
    memory: int = option("Memory limit of the search in MiB.", 4096, within=(256, None), metavar="MIB")
    checkpoint: Path | None = option("Keep the search in this folder, once a minute and on Ctrl-C.")
    every: float = option("Interval between checkpoints.", 60.0, within=(0.1, None), metavar="SECONDS")
    resume: Path | None = option("Continue the search in this folder.")
    out: Path = option("Folder for the files of a violation.", Path("explored"))
    replay: Path | None = option("Run the schedule in this file and end.")
    at_random: bool = option("Random schedules of larger systems, on all processors.", False, "--random")
    minutes: float = option("Duration of --random.", 1.0, within=(0.01, None))
    seed: int | None = option("Seed of --random. Default: a new one, printed.", within=(0, None))
    as_json: bool = json_option()
