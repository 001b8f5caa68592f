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
    """Return the controller of a network's switches that add; its tokens and epochs are the same in every run.

    `programmed`: the switches that add, by name, with the same number of lanes.
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
    """Return where workers on these hosts are.

    `adds`: the switch that adds for all of them, and sees them behind other switches; None: each host's own switch. `place`:
    which of the workers of each host, 0 and up.
    """
    found = []
    for host in hosts:
        switch = adds or network.by_name[network.topology.place(host.name)[0]]
        (endpoint,) = network.endpoints([host], switch, place)
        found.append(Place(switch.name, endpoint))
    return found
