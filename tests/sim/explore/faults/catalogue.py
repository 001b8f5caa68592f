"""The catalogue: the faults of the P4 program, of it in a tree of switches, with quorums, and of the worker core."""

from typing import Final

from tests.sim.explore.faults.core_faults import CORE_FAULTS
from tests.sim.explore.faults.program_faults import PROGRAM_FAULTS
from tests.sim.explore.faults.quorum_faults import QUORUM_FAULTS
from tests.sim.explore.faults.tree_faults import TREE_FAULTS

__all__ = ["FAULTS"]

FAULTS: Final = {fault.name: fault for fault in (*PROGRAM_FAULTS, *TREE_FAULTS, *QUORUM_FAULTS, *CORE_FAULTS)}
"""By name."""
