"""Switches: they run the compiled P4 program, called by its address, or only forward.

The program sees packets in the order of arrival. Its packets leave after the pipeline's latency, which is the same for all
packets, so the program can run at once and schedule its packets ahead of time.
"""

# mypy: disable-error-code="no-any-return,return-value"

from typing import Final

import numpy as np
from numba import carray

from host_agent.wire.constants import HEADER_BYTES, HEADER_OFFSET_CHUNK
from host_agent.wire.header import swap
from netsum_common.compiled import Integer, Record, compiled
from netsum_common.memory import copy_bytes, load16, load32, pointer
from sim.frames import HEADERS_BYTES, IPV4_DESTINATION
from sim.network.engine.engine_records import LINK, NODE, SWITCH
from sim.network.engine.links import send
from sim.network.engine.packets import (
    SLOT_PROTOCOL,
    frame_address,
    lose,
    packet_of,
    release,
    take_packet,
)
from sim.network.engine.ways import link_towards
from sim.switch.codegen.traffic import DONE
from sim.switch.ports.program_call import run_program

FORWARDED, UNFINISHED = range(2)  # The program has run to its end; it needs more memory first.

HOST_NODE, SWITCH_NODE = range(2)  # Kinds of nodes.

_PS_PER_US: Final = 1_000_000


@compiled
def on_packet(world: Record, number: Integer, port: Integer, packet: Integer) -> Integer:
    """Handle a packet that has arrived at a port of a switch: run the program or forward the packet."""
    switch = carray(pointer(world.switches), (number + 1,), SWITCH)[number]
    if switch.alive == 0:
        lose(world, packet)
        return np.int64(FORWARDED)
    wait_ps = switch.busy_ps - world.now_ps
    if wait_ps < 0:
        wait_ps = np.int64(0)
    if wait_ps > switch.queue_ps:
        switch.lost_in_queue += 1
        lose(world, packet)
        return np.int64(FORWARDED)
    switch.longest_wait_ps = max(switch.longest_wait_ps, wait_ps)
    switch.busy_ps = world.now_ps + wait_ps + switch.service_ps
    switch.busy_total_ps += switch.service_ps
    switch.packets += 1
    described = packet_of(world, packet)
    if switch.code == 0 or described.kind != SLOT_PROTOCOL:
        forward(world, switch, packet)
        return np.int64(FORWARDED)
    words = carray(pointer(switch.words), (switch.inputs + 6,), np.int64)
    carray(pointer(world.in_length), (1,), np.int32)[0] = described.length
    carray(pointer(world.in_port), (1,), np.uint16)[0] = port
    words[switch.inputs] = frame_address(world, packet)
    words[switch.inputs + 1] = world.row_bytes
    words[switch.inputs + 2] = world.in_length
    words[switch.inputs + 3] = world.in_port
    words[switch.inputs + 4] = 1
    words[switch.inputs + 5] = 0
    words[switch.out_count] = 0
    # The program's clock is the time at which the packet leaves the queue before the pipeline.
    words[switch.now_us] = (world.now_ps + wait_ps) // _PS_PER_US
    status = run_program(switch.code, switch.words)
    if status != DONE:
        world.switch_status = status
        switch.pending = packet + 1
        return np.int64(UNFINISHED)
    send_output(world, number)
    release(world, packet)
    return np.int64(FORWARDED)


@compiled
def send_output(world: Record, number: Integer) -> None:
    """Send the packets that the program has put out."""
    switch = carray(pointer(world.switches), (number + 1,), SWITCH)[number]
    words = carray(pointer(switch.words), (switch.inputs + 6,), np.int64)
    count = words[switch.out_count]
    ports = carray(pointer(switch.ports), (count,), np.uint16)
    lengths = carray(pointer(switch.lengths), (count,), np.int32)
    port_links = carray(pointer(world.port_links), (1,), np.int32)
    leaves_ps = switch.busy_ps + switch.latency_ps
    for row in range(count):
        port = np.int64(ports[row])
        link = np.int64(-1)
        if port < switch.port_count:
            link = np.int64(port_links[switch.port_links + port])
        length = np.int64(lengths[row])
        if link < 0 or length > world.row_bytes - 64:
            switch.unreachable += 1
            continue
        on_wire = length + switch.added_bytes if length > switch.header_only_bytes else length
        packet = take_packet(world, np.int64(SLOT_PROTOCOL), length, on_wire, np.int64(-1), np.int64(-1))
        described = packet_of(world, packet)
        frame = frame_address(world, packet)
        output = switch.frames + row * switch.stride
        copy_bytes(np.uintp(frame), np.uintp(output), np.uintp(length))
        described.number = 0
        if length >= HEADERS_BYTES + HEADER_BYTES:
            # The chunk's low 16 bits: a hint for prefetching the worker's slot (`sim.network.engine.prefetching`).
            low = np.int64(load16(np.uintp(output + HEADERS_BYTES + HEADER_OFFSET_CHUNK + 2)))
            described.number = (low & 0xFF) << 8 | low >> 8
        target = carray(pointer(world.links), (link + 1,), LINK)[link].to_node
        if carray(pointer(world.nodes), (target + 1,), NODE)[target].kind == SWITCH_NODE:
            target = _node_of(world, frame, length)
        described.target = target
        send(world, link, packet, leaves_ps)


@compiled
def forward(world: Record, switch: Record, packet: Integer) -> None:
    """Send a packet on towards its target."""
    described = packet_of(world, packet)
    link = np.int64(-1)
    if described.target >= 0:
        link = link_towards(world, switch.node, described.target)
    if link < 0:
        switch.unreachable += 1
        lose(world, packet)
        return
    send(world, link, packet, switch.busy_ps + switch.latency_ps)


@compiled
def _node_of(world: Record, frame: Integer, length: Integer) -> Integer:
    """Return the node with a frame's IPv4 destination address, or -1."""
    if length < HEADERS_BYTES:
        return np.int64(-1)
    address = np.int64(swap(load32(np.uintp(frame + IPV4_DESTINATION))))
    addresses = carray(pointer(world.addresses), (world.address_count, 2), np.int64)
    low, high = np.int64(0), world.address_count
    while low < high:
        middle = (low + high) >> 1
        if addresses[middle, 0] < address:
            low = middle + 1
        else:
            high = middle
    if low < world.address_count and addresses[low, 0] == address:
        return addresses[low, 1]
    return np.int64(-1)
