"""Trees of switches in a network, and the controller of the jobs on them."""

from collections.abc import Mapping, Sequence

from controller.job_controller import JobController
from controller.trees import Place, tree_switches
from sim.network.graph import Node
from sim.network.network import Network
from sim.network.programming import ProgrammedSwitch, tokens


def tree_controller(
    network: Network, programmed: Mapping[str, ProgrammedSwitch], *, token_seed: int = 0, epoch: int = 1
) -> JobController:
    """Return the controller of a network's adding switches; its tokens and epochs are the same in every run.

    `programmed`: the switches that add, by name; all have the same number of lanes.
    """
    switches = tree_switches(network.topology)
    like = next(iter(programmed.values()))
    return JobController(
        {name: switches[name] for name in programmed},
        {name: switch.tables for name, switch in programmed.items()},
        like.capabilities,
        new_token=tokens(token_seed),
        unix_seconds=lambda: epoch,
    )


def places(network: Network, hosts: Sequence[Node], adds: Node | None = None, place: int = 0) -> list[Place]:
    """Return the places of workers on these hosts: the switch that adds for each worker, and its endpoint there.

    `adds`: the switch that adds for all workers, which may be behind other switches; None: each host's own switch. `place`: the
    worker's number on its host, from 0.
    """
    found = []
    for host in hosts:
        switch = adds or network.by_name[network.topology.place(host.name)[0]]
        (endpoint,) = network.endpoints([host], switch, place)
        found.append(Place(switch.name, endpoint))
    return found
