"""The catalogue: the faults of the P4 program and of the worker core."""

from typing import Final

from sim.explore.faults.core_faults import CORE_FAULTS
from sim.explore.faults.program_faults import PROGRAM_FAULTS

__all__ = ["FAULTS"]

FAULTS: Final = {fault.name: fault for fault in (*PROGRAM_FAULTS, *CORE_FAULTS)}
"""By name."""
