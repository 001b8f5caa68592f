"""Scripted faults: the n-th packet of a given kind, chunk and worker on a link is dropped or delayed."""

# mypy: disable-error-code="no-any-return,return-value"

from typing import Final

import numpy as np
from numba import carray

from host_agent.wire.header import HEADER_WORDS, read_header
from netsum_common.compiled import Integer, Record, compiled
from netsum_common.memory import pointer
from sim.frames import HEADERS_BYTES
from sim.network.engine.engine_records import SCRIPT
from sim.network.engine.packets import SLOT_PROTOCOL, frame_address, packet_of

ANY: Final = -1
PASSES, DROP, DELAY = range(3)


@compiled
def scripted_action(world: Record, link: Integer, packet: Integer) -> tuple[Integer, Integer]:
    """Return the scripts' action for a packet on a link, `PASSES`, `DROP` or `DELAY`, and by how many ps it is delayed."""
    described = packet_of(world, packet)
    if described.kind != SLOT_PROTOCOL or described.length < HEADERS_BYTES + 4 * HEADER_WORDS:
        return np.int64(PASSES), np.int64(0)
    words = carray(pointer(frame_address(world, packet) + HEADERS_BYTES), (HEADER_WORDS,), np.uint32)
    header = read_header(words)
    kind, worker, chunk = header[1], header[8], header[11]
    scripts = carray(pointer(world.scripts), (world.script_count,), SCRIPT)
    for at in range(world.script_count):
        script = scripts[at]
        if (
            script.link in (ANY, link)
            and script.kind in (ANY, kind)
            and script.chunk in (ANY, chunk)
            and script.worker in (ANY, worker)
            and header[2] & script.flags == script.flags
        ):
            script.seen += 1
            if script.seen == script.nth:
                return script.action, script.delay_ps
    return np.int64(PASSES), np.int64(0)
