"""The switches of a scenario as a tree and as a network, their names, and where a packet that leaves by a port arrives.

Ports have the numbers that `sim.explore.engine.world` says.
"""

from dataclasses import dataclass
from functools import cached_property

from sim.explore.engine.world import DOWN, TO_WORKER, UP
from topologies.generated import addressed
from topologies.topology import LinkEnd, LinkSpec, Topology


@dataclass(frozen=True)
class ScenarioShape:
    """Who is below whom."""

    leaves: tuple[int, ...]  # The switch of each host.
    parents: tuple[int, ...] = ()  # The parent of each switch but switch 0, the root.

    @cached_property
    def topology(self) -> Topology:
        """The network, with the ports of the tree; its switches have their numbers for names."""
        hosts, switches = addressed(
            [f"h{host}" for host in range(self.hosts)], [str(switch) for switch in range(self.switches)]
        )
        pairs = [(LinkEnd(f"h{host}"), LinkEnd(str(leaf), host)) for host, leaf in enumerate(self.leaves)]
        for child, parent in enumerate(self.parents, 1):
            port = self.hosts + child
            pairs.append((LinkEnd(str(child), port), LinkEnd(str(parent), port)))
        return Topology("tree", hosts, switches, tuple(map(LinkSpec, pairs)))

    @property
    def hosts(self) -> int:
        """How many hosts there are."""
        return len(self.leaves)

    @property
    def switches(self) -> int:
        """How many switches there are."""
        return 1 + len(self.parents)

    def children(self, switch: int) -> list[int]:
        """Return the ports of a switch's children: hosts, then switches."""
        hosts = [host for host, leaf in enumerate(self.leaves) if leaf == switch]
        return hosts + [
            self.hosts + child for child, parent in enumerate(self.parents, 1) if parent == switch
        ]

    def below(self, switch: int) -> list[int]:
        """Return the hosts whose packets go through a switch, in order."""
        found: list[int] = []
        for port in self.children(switch):
            found += [port] if port < self.hosts else self.below(port - self.hosts)
        return sorted(found)

    def goes_to(self, way: int, port: int) -> int:
        """Return the switch at which a packet arrives that goes up or down by a port, or TO_WORKER."""
        if port < self.hosts:
            return self.leaves[port] if way == UP else TO_WORKER
        child = port - self.hosts
        return self.parents[child - 1] if way == UP else child

    def ends(self, way: int, port: int) -> tuple[int, int]:
        """Return who sends a packet and who receives it: the number of a host, or the number of hosts + that of a switch."""
        above = self.leaves[port] if port < self.hosts else self.parents[port - self.hosts - 1]
        # A child has its port for a number in either case.
        return (port, self.hosts + above) if way == UP else (self.hosts + above, port)

    def name(self, actor: int) -> str:
        """Return the name of a host, or of number of hosts + a switch."""
        if actor < self.hosts:
            return f"worker {actor}"
        if self.switches == 1:
            return "switch"
        return "root" if actor == self.hosts else f"switch {actor - self.hosts}"

    def links(self) -> list[tuple[str, str]]:
        """Return the names of all pairs of neighbours, the upper one first."""
        ends = [self.ends(DOWN, port) for port in range(self.hosts + self.switches) if port != self.hosts]
        return [(self.name(upper), self.name(lower)) for upper, lower in ends]
