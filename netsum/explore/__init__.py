"""The work of `netsum explore`: runs explorations, shows their progress, writes their findings."""

from netsum.explore.at_random import run_at_random
from netsum.explore.runs import print_configurations, replay, resume, run

__all__ = ["print_configurations", "replay", "resume", "run", "run_at_random"]
