"""Compile what most tests run, once: the processes of pytest would each compile it, at the same time."""

import argparse
import sys
import tempfile
from pathlib import Path

from host_agent.communicator import compile_ahead
from netsum.programs import compiled_program
from netsum.simulation import run_experiment
from netsum_common.lane_counts import LINK_LANES, LOCAL_LANES
from netsum_common.switch_options import CPU_PORT
from sim.explore.scenario import BlockPass, ExplorerScenario
from sim.explore.search import Search
from sim.explore.system import System
from sim.switch import Switch, load_program
from sim.switch.ports import Chassis, UdpPorts


def main() -> int:
    """Fill the caches of machine code: the worker's, the switch's and the simulator's, or the explorer's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--explorer", action="store_true", help="the explorer, which uses the worker's code")
    if parser.parse_args().explorer:
        scenario = ExplorerScenario("a barrier", rounds=(BlockPass("barrier"),))
        Search(System(scenario, compiled_program(min(LINK_LANES)).json)).run()
        return 0
    compile_ahead()
    for lanes in (*LINK_LANES, LOCAL_LANES):
        Switch(load_program(compiled_program(lanes).json))
    with UdpPorts([(0, 0)]) as ports:
        Chassis(ports, CPU_PORT)
        ports.warm_up()
    with tempfile.TemporaryDirectory() as folder:
        run_experiment(
            "quick", Path(folder), settings={"job.workers": [2], "job.contender": ["netsum", "ring"]}
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
