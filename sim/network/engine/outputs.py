"""Outputs that all workers of a job share: every block is compared with the expected one when a worker has written it.

The results of all workers must be equal, and a thousand of them would need a thousand arrays. So all workers write to one
array. When a worker core has accepted a RESULT, the block that the core wrote is compared, then overwritten by bytes that no
sum has: a later worker's block is right only if that worker writes it.
"""

# mypy: disable-error-code="no-any-return,return-value"

from typing import Final

import numpy as np
from numba import carray, types

from host_agent.codecs.payload import elements_of
from host_agent.protocol.records import CORE, PASS, PASS_RING, SLOT, is_header_only, slot_of
from host_agent.wire.constants import HEADER_OFFSET_CHUNK
from host_agent.wire.header import swap
from netsum_common.compiled import Integer, Record, compiled
from netsum_common.memory import compare_bytes, load32, pointer
from sim.frames import HEADERS_BYTES
from sim.network.engine.engine_records import OUTPUT
from sim.network.engine.packets import frame_address

ERASED: Final = 0xFF  # The byte that erases blocks; four of them are a NaN.

_fill = types.ExternalFunction("memset", types.uintp(types.uintp, types.intc, types.uintp))


@compiled
def accepted(worker: Record) -> Integer:
    """Return how many RESULTs a worker's core has accepted."""
    return carray(pointer(worker.core), (1,), CORE)[0].chunks


@compiled
def check_output(world: Record, worker: Record, packet: Integer) -> Integer:
    """Compare the block of a RESULT that a worker's core has just accepted, if the block is part of a shared output.

    Returns False if the expected values of the block must be computed first; `world.due_…` then says which.
    """
    core = carray(pointer(worker.core), (1,), CORE)[0]
    chunk_at = frame_address(world, packet) + HEADERS_BYTES + HEADER_OFFSET_CHUNK
    chunk: Integer = np.int64(swap(load32(np.uintp(chunk_at))))
    slot = carray(pointer(worker.slots), (worker.slot_count,), SLOT)[slot_of(core, chunk)]
    work = carray(pointer(worker.passes), (PASS_RING,), PASS)[slot.pass_number % PASS_RING]
    block = slot.index - work.lead
    if block < 0 or is_header_only(work, block):  # Exponents alone, or a header.
        return True
    outputs = carray(pointer(world.outputs), (world.output_count,), OUTPUT)
    for at in range(world.output_count):
        output = outputs[at]
        if output.target == work.payload.target:
            start, stop = elements_of(work.payload, block, core.lanes)
            place, size = start * output.element_bytes, (stop - start) * output.element_bytes
            if stop > output.known:
                world.due_packet, world.due_output, world.due_elements = packet, at, stop
                return False
            target = np.uintp(output.target + place)
            if compare_bytes(target, np.uintp(output.expected + place), np.uintp(size)) != 0:
                _note_wrong(output, worker.rank, start, stop)
            _fill(target, np.int32(ERASED), np.uintp(size))
            carray(pointer(output.blocks), (worker.rank + 1,), np.int64)[worker.rank] += 1
            break
    return True


@compiled
def _note_wrong(output: Record, rank: Integer, start: Integer, stop: Integer) -> None:
    if output.wrong_worker >= 0:
        return
    output.wrong_worker = rank
    output.wrong_element = start
    for element in range(start, stop):
        place, size = element * output.element_bytes, output.element_bytes
        if (
            compare_bytes(np.uintp(output.target + place), np.uintp(output.expected + place), np.uintp(size))
            != 0
        ):
            output.wrong_element = element
            return
