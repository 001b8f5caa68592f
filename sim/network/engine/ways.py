"""Choice of a packet's next link (`sim.network.routes` finds the routes)."""

# mypy: disable-error-code="no-any-return"

import numpy as np
from numba import carray

from netsum_common.compiled import Integer, Record, compiled
from netsum_common.memory import pointer
from sim.network.engine.engine_records import NODE


@compiled
def link_towards(world: Record, node: Integer, target: Integer) -> Integer:
    """Return the link to take from a node towards another, or −1 if there is none.

    Among equally short paths, the target's number chooses: all packets for one host take one path, and packets for different
    hosts spread (ECMP by destination).
    """
    if node == target:
        return np.int64(-1)
    nodes = carray(pointer(world.nodes), (world.node_count,), NODE)
    source, end = nodes[node], nodes[target]
    way = np.int64(0)
    if source.router != end.router:
        shape = (world.router_count, world.router_count)
        way = np.int64(carray(pointer(world.ways), shape, np.int32)[source.router, end.router])
    if way < 0 or source.out_link >= 0:
        return source.out_link if way >= 0 else np.int64(-1)
    if source.router == end.router:
        return end.in_link
    choice = carray(pointer(world.way_choices), (way + 1, 2), np.int64)[way]
    place = choice[0] + target % choice[1]
    return np.int64(carray(pointer(world.way_links), (place + 1,), np.int32)[place])
