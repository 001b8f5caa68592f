"""Parts of the world as records and arrays: what compiled functions read and write."""

# mypy: disable-error-code="no-any-return"

import numpy as np
from numba import carray

from host_agent.protocol.records import CORE, PASS, PASS_RING, SLOT
from netsum_common.compiled import Integer, Record, compiled_inline
from netsum_common.memory import pointer
from sim.explore.engine import world as w


@compiled_inline
def packet_of(world: Record, number: Integer) -> Record:
    """Return the record of a packet."""
    return carray(pointer(world.about), (w.MAX_PACKETS,), w.PACKET)[number]


@compiled_inline
def entries_of(world: Record) -> Record:
    """Return the packets of the state that is worked on, and room for more."""
    return carray(pointer(world.entries), (w.MAX_ENTRIES,), np.uint32)


@compiled_inline
def state_of(world: Record) -> Record:
    """Return the fixed part of the state that is worked on, byte by byte."""
    return carray(pointer(world.state), (world.fixed_bytes,), np.uint8)


@compiled_inline
def core_of(world: Record, owner: Integer) -> Record:
    """Return an owner's core."""
    return carray(pointer(world.cores), (world.owners,), CORE)[owner]


@compiled_inline
def slots_of(world: Record, owner: Integer) -> Record:
    """Return the slots of an owner's core."""
    return carray(pointer(world.core_slots), (world.owners, world.slots), SLOT)[owner]


@compiled_inline
def passes_of(world: Record, owner: Integer) -> Record:
    """Return the passes of an owner's core."""
    return carray(pointer(world.core_passes), (world.owners, PASS_RING), PASS)[owner]
