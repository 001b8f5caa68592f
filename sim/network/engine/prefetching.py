"""Prefetching of the memory that the next events read.

With a thousand workers, a worker's data has left the cache by the worker's next event, and an event would mostly wait for
memory. The top of the heap shows which events are next.
"""

# mypy: disable-error-code="no-any-return,return-value"

from typing import Final

import numpy as np
from numba import carray

from host_agent.protocol.records import CORE, PASS, PASS_RING, SLOT
from netsum_common.compiled import Record, compiled
from netsum_common.memory import pointer, prefetch
from sim.frames import HEADERS_BYTES
from sim.network.engine.engine_records import LINK, NODE, PACKET, WORKER
from sim.network.engine.events import ARRIVAL, HEAP_WORDS, event_kind, event_packet, event_target
from sim.network.engine.packets import frame_address, packet_of
from sim.network.engine.switches import HOST_NODE

_AHEAD: Final = 4  # Number of heap entries to look at after the first: its children.
_LINK_BYTES: Final = LINK.itemsize
_PACKET_BYTES: Final = PACKET.itemsize
_SLOT_BYTES: Final = SLOT.itemsize
_PASS_BYTES: Final = PASS.itemsize
_CORE_BYTES: Final = int(CORE.fields["path_worker"][1])  # type: ignore[index]
"""Size of the core's fields before the rings of PROBEs, which are not prefetched."""


@compiled
def bring_closer(world: Record) -> None:
    """Prefetch the data of the heap's first event, and the records that lead to the data of the four events after it."""
    if world.heap_count <= _AHEAD:
        return
    heap = carray(pointer(world.heap), (_AHEAD + 1, HEAP_WORDS), np.int64)
    for at in range(1, _AHEAD + 1):
        what = heap[at, 2]
        if event_kind(what) == ARRIVAL:
            prefetch(world.links + event_target(what) * _LINK_BYTES, np.int64(_LINK_BYTES))
            prefetch(world.packets + event_packet(what) * _PACKET_BYTES, np.int64(_PACKET_BYTES))
    what = heap[0, 2]
    if event_kind(what) != ARRIVAL:
        return
    number, packet = event_target(what), event_packet(what)
    described = packet_of(world, packet)
    prefetch(frame_address(world, packet), described.length)
    if described.next != 0:
        prefetch(world.packets + (described.next - 1) * _PACKET_BYTES, np.int64(_PACKET_BYTES))
    node = carray(pointer(world.links), (number + 1,), LINK)[number].to_node
    if carray(pointer(world.nodes), (node + 1,), NODE)[node].kind != HOST_NODE:
        return
    place = carray(pointer(world.endpoints), (world.node_count, world.endpoints_per_node), np.int32)[node, 0]
    if place < 0:
        return
    worker = carray(pointer(world.workers), (place + 1,), WORKER)[place]
    prefetch(worker.core, np.int64(_CORE_BYTES))
    prefetch(worker.slots + (described.number & (worker.slot_count - 1)) * _SLOT_BYTES, np.int64(_SLOT_BYTES))
    prefetch(worker.passes + worker.passes_seen % PASS_RING * _PASS_BYTES, np.int64(_PASS_BYTES))
    prefetch(world.links + worker.link * _LINK_BYTES, np.int64(_LINK_BYTES))
    prefetch(worker.headers, np.int64(1))
    prefetch(worker.headers + HEADERS_BYTES - 1, np.int64(1))
