"""Prefetching of the memory that the next events read.

With a thousand workers, a worker's data has left the cache by the worker's next event, and an event would mostly wait for
memory. The top of the heap shows which events are next.
"""

# mypy: disable-error-code="no-any-return,return-value,untyped-decorator"

from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from host_agent.protocol.records import CORE, PASS, PASS_RING, SLOT
from netsum_common.compiled import Integer, Record, compiled
from netsum_common.memory import pointer
from sim.frames import HEADERS_BYTES
from sim.network.engine.engine_records import LINK, NODE, PACKET, WORKER
from sim.network.engine.events import ARRIVAL, HEAP_WORDS, event_kind, event_packet, event_target
from sim.network.engine.packets import frame_address, packet_of
from sim.network.engine.switches import HOST_NODE

_LINE: Final = 64
_AHEAD: Final = 4  # Number of heap entries to look at after the first: its children.
_LINK_BYTES: Final = LINK.itemsize
_PACKET_BYTES: Final = PACKET.itemsize
_SLOT_BYTES: Final = SLOT.itemsize
_PASS_BYTES: Final = PASS.itemsize
_CORE_BYTES: Final = int(CORE.fields["path_worker"][1])  # type: ignore[index]
"""Size of the core's fields before the rings of PROBEs, which are not prefetched."""


@intrinsic
def _prefetch(typing_context: Any, address: Any) -> Any:
    """Prefetch the cache line at an address, without waiting for it."""
    del typing_context

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, *[ir.IntType(32)] * 3])
        function = builder.module.declare_intrinsic("llvm.prefetch", [cgutils.voidptr_t], kind)
        place = builder.inttoptr(arguments[0], cgutils.voidptr_t)
        read, keep, data = (ir.Constant(ir.IntType(32), value) for value in (0, 3, 1))
        builder.call(function, [place, read, keep, data])
        return context.get_dummy_value()

    return types.void(types.int64), generate


@compiled
def bring_closer(world: Record) -> None:
    """Prefetch the data of the heap's first event, and the records that lead to the data of the four events after it."""
    if world.heap_count <= _AHEAD:
        return
    heap = carray(pointer(world.heap), (_AHEAD + 1, HEAP_WORDS), np.int64)
    for at in range(1, _AHEAD + 1):
        what = heap[at, 2]
        if event_kind(what) == ARRIVAL:
            _lines(world.links + event_target(what) * _LINK_BYTES, np.int64(_LINK_BYTES))
            _lines(world.packets + event_packet(what) * _PACKET_BYTES, np.int64(_PACKET_BYTES))
    what = heap[0, 2]
    if event_kind(what) != ARRIVAL:
        return
    number, packet = event_target(what), event_packet(what)
    described = packet_of(world, packet)
    _lines(frame_address(world, packet), described.length)
    if described.next != 0:
        _lines(world.packets + (described.next - 1) * _PACKET_BYTES, np.int64(_PACKET_BYTES))
    node = carray(pointer(world.links), (number + 1,), LINK)[number].to_node
    if carray(pointer(world.nodes), (node + 1,), NODE)[node].kind != HOST_NODE:
        return
    place = carray(pointer(world.endpoints), (world.node_count, world.endpoints_per_node), np.int32)[node, 0]
    if place < 0:
        return
    worker = carray(pointer(world.workers), (place + 1,), WORKER)[place]
    _lines(worker.core, np.int64(_CORE_BYTES))
    _lines(worker.slots + (described.number & (worker.slot_count - 1)) * _SLOT_BYTES, np.int64(_SLOT_BYTES))
    _lines(worker.passes + worker.passes_seen % PASS_RING * _PASS_BYTES, np.int64(_PASS_BYTES))
    _lines(world.links + worker.link * _LINK_BYTES, np.int64(_LINK_BYTES))
    _prefetch(worker.headers)
    _prefetch(worker.headers + HEADERS_BYTES - 1)


@compiled
def _lines(first: Integer, size: Integer) -> None:
    at = first
    while at < first + size:
        _prefetch(at)
        at += _LINE
