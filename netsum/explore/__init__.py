"""What `netsum explore` does: runs explorations, shows how far they are, writes what they find."""

from netsum.explore.at_random import run_at_random
from netsum.explore.runs import go_on, print_configurations, replay, run

__all__ = ["go_on", "print_configurations", "replay", "run", "run_at_random"]
