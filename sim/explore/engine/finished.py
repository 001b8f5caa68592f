"""Packets about chunks that their worker has finished: they have no effect any more, and are left out of states.

A packet of a worker's, or for it, is *finished* if the worker has accepted the RESULT of the packet's chunk, or has started
again in a later epoch, or if it is for a worker that has died. That a finished packet stays without effect is not
assumed. Two checks of the running code together show it:

- No step takes a worker back to an earlier chunk of a slot, or to an earlier epoch (`moved_back`, at every step). So a
  packet that is finished stays finished.
- For every different pair of switch and worker that was reached, each finished packet that has ever been in flight is
  delivered (`check_part`). It must change nothing, and its answers must be finished themselves.

A packet between two switches of a tree is finished if it would be for every worker below. There the second check takes
every different combination of all switches and workers that was reached.
"""

# mypy: disable-error-code="no-any-return"

import numpy as np
from numba import carray

from host_agent.wire.constants import KIND_PROBE, KIND_STATUS
from netsum_common.compiled import Integer, Record, compiled
from netsum_common.memory import compare_bytes, copy_bytes, pointer
from sim.explore.engine import world as w
from sim.explore.engine.packets import entry_of, packet_kind
from sim.explore.engine.packing import host_at
from sim.explore.engine.step_codes import ANSWERED, TIRED
from sim.explore.engine.switch_steps import arrive_at_switch, restore_switch
from sim.explore.engine.views import entries_of, packet_of, state_of
from sim.explore.engine.worker_steps import arrive_at_worker


@compiled
def is_finished(world: Record, packet: Integer) -> bool:
    """Whether a packet is finished in the state that is worked on."""
    owner = packet_of(world, packet).owner
    if owner < 0 or owner >= world.owners:
        return False
    host = owner // world.epochs
    epoch = owner - host * world.epochs
    port = packet_of(world, packet).port
    if port < world.hosts:
        return _is_finished_for(world, packet, host, epoch)
    below = carray(pointer(world.below), (world.switches,), np.int64)[port - world.hosts]
    for each in range(world.hosts):
        if below >> each & 1 and not _is_finished_for(world, packet, np.int64(each), epoch):
            return False
    return True


@compiled
def _is_finished_for(world: Record, packet: Integer, host: Integer, epoch: Integer) -> bool:
    state = state_of(world)
    at = host_at(world, host)
    if state[at + w.AT_EPOCH] != epoch:
        return state[at + w.AT_EPOCH] > epoch
    if state[at + w.AT_LIFE] == w.DEAD_HOST and packet_of(world, packet).way == w.DOWN:
        return True
    chunk = packet_of(world, packet).chunk
    at += w.HOST_BYTES + ((world.first_chunk + chunk) & (world.slots - 1)) * w.SLOT_BYTES
    held = np.int64(state[at + w.AT_CHUNK]) - 1
    return bool(held > chunk or (held == chunk and state[at + w.AT_BITS] & 1 == 0))


@compiled
def leave_out_finished(world: Record) -> None:
    """Take the finished packets out of the state that is worked on."""
    entries = entries_of(world)
    kept = np.int64(0)
    for place in range(world.entry_count):
        if not is_finished(world, np.int64(entries[place]) >> w.PACKET_SHIFT):
            entries[kept] = entries[place]
            kept += 1
    world.entry_count = kept


@compiled
def moved_back(world: Record) -> bool:
    """Whether a worker is at an earlier chunk of a slot, or in an earlier epoch, than in the state that is expanded."""
    now = state_of(world)
    then = carray(pointer(world.from_state), (world.fixed_bytes,), np.uint8)
    for host in range(world.hosts):
        at = host_at(world, host)
        if now[at + w.AT_EPOCH] < then[at + w.AT_EPOCH]:
            return True
        if now[at + w.AT_EPOCH] > then[at + w.AT_EPOCH]:
            continue
        for slot in range(world.slots):
            place = at + w.HOST_BYTES + slot * w.SLOT_BYTES
            before = then[place + w.AT_CHUNK] * 2 + 1 - (then[place + w.AT_BITS] & 1)
            if now[place + w.AT_CHUNK] * 2 + 1 - (now[place + w.AT_BITS] & 1) < before:
                return True
    return False


@compiled
def check_part(world: Record, part: Integer, blank: Integer) -> Integer:
    """Deliver all finished packets of a worker with a state of the switch and of that worker; of a tree, all finished packets.

    `part`: address of the worker's number in a byte, then of the head, the switch and the worker's block; of a tree, of all
    switches and workers. `blank`: address of a worker's block at the start, for the other workers. Returns NOTHING, or
    LEFT_OUT_WRONGLY.
    """
    front = w.HEAD_BYTES + world.switch_bytes
    host = np.int64(carray(pointer(part), (1,), np.uint8)[0])
    if world.switches > 1:
        copy_bytes(np.uintp(world.from_state), np.uintp(part + 1), np.uintp(world.fixed_bytes))
    else:
        for each in range(world.hosts):
            copy_bytes(
                np.uintp(world.from_state + host_at(world, each)), np.uintp(blank), np.uintp(world.host_bytes)
            )
        copy_bytes(np.uintp(world.from_state), np.uintp(part + 1), np.uintp(front))
        copy_bytes(
            np.uintp(world.from_state + host_at(world, host)),
            np.uintp(part + 1 + front),
            np.uintp(world.host_bytes),
        )
    copy_bytes(np.uintp(world.state), np.uintp(world.from_state), np.uintp(world.fixed_bytes))
    for packet in range(world.packet_count):
        mine = packet_of(world, packet).owner // world.epochs == host or world.switches > 1
        if not mine or not is_finished(world, np.int64(packet)):
            continue
        numbered = packet_kind(world, np.int64(packet))[0] in (KIND_PROBE, KIND_STATUS)
        for label in range(w.DEAD + 1):
            if label > 0 and (not numbered or world.slots < label < w.DEAD):
                continue
            for how in (0, TIRED, ANSWERED):
                if not _is_without_effect(world, entry_of(packet, label), how):
                    return np.int64(w.LEFT_OUT_WRONGLY)
    return np.int64(w.NOTHING)


@compiled
def _is_without_effect(world: Record, entry: Integer, how: Integer) -> bool:
    switch = packet_of(world, entry >> w.PACKET_SHIFT).to
    world.entry_count = 0
    world.finished_calls += 1
    if switch != w.TO_WORKER:
        if how != 0:
            return True
        restore_switch(world, switch)
        result = arrive_at_switch(world, entry)
    else:
        result = arrive_at_worker(world, entry, how)
    if result < 0:
        return False
    if compare_bytes(np.uintp(world.state), np.uintp(world.from_state), np.uintp(world.fixed_bytes)) != 0:
        return False
    leave_out_finished(world)
    return world.entry_count == 0
