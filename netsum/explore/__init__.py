"""The work of `netsum explore`: runs explorations, shows their progress, writes their findings."""

from netsum.explore.at_random import run_at_random
from netsum.explore.runs import go_on, print_configurations, replay, run

__all__ = ["go_on", "print_configurations", "replay", "run", "run_at_random"]
