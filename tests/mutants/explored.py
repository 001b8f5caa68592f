"""The explorer's net: scenarios in full or for half a minute, then random runs; 1 if one breaks a guarantee."""

import sys
import time

from sim.core_calls import SHIPPED
from sim.explore.random_runs import SYSTEMS, RandomRuns
from sim.explore.search import Search
from sim.explore.system import System
from tests.sim.explore.blind_faults import EXPLORE_S, PROGRAM, RANDOM_S, SCENARIOS


def main() -> int:
    """Explore until something is found; return the exit status."""
    for scenario in SCENARIOS:
        system = System(scenario, PROGRAM, SHIPPED)
        if (
            Search(system, order="largest", collect=False, memory_bytes=1 << 30)
            .run(until_s=EXPLORE_S)
            .violation
        ):
            print(f"{scenario.name} violates a guarantee")
            return 1
    for scenario in SYSTEMS:
        until = time.monotonic() + RANDOM_S
        runs = RandomRuns(scenario, PROGRAM, 1, SHIPPED)
        if runs.run(lambda until=until: time.monotonic() > until):  # type: ignore[misc]
            print(f"{scenario.name}, at random, violates a guarantee")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
