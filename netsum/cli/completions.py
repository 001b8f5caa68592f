"""What the shell offers for an argument whose values are known here: topologies, testbeds, and the nodes of a testbed."""

from topologies.run_folder import running_testbeds
from topologies.topology_file import shipped_topologies


def topologies(incomplete: str) -> list[str]:
    """Return the shipped topologies that begin so."""
    return [name for name in shipped_topologies() if name.startswith(incomplete)]


def testbeds(incomplete: str) -> list[str]:
    """Return the testbeds of this machine that begin so."""
    return [testbed.name for testbed in running_testbeds() if testbed.name.startswith(incomplete)]


def nodes(incomplete: str) -> list[str]:
    """Return the hosts and switches of this machine's testbeds that begin so."""
    names = {
        name
        for testbed in running_testbeds()
        for kind in ("hosts", "switches")
        for name in testbed.state.get(kind, ())
    }
    return sorted(name for name in names if name.startswith(incomplete))
