"""S3, second half: when a worker of a job on one switch has died, the others' errors name it."""

# mypy: disable-error-code="no-any-return"

import numpy as np
from numba import carray

from host_agent.protocol.records import FAILURE_DEADLINE, FAILURE_NONE
from netsum_common.compiled import Integer, Record, compiled
from netsum_common.memory import copy_bytes, pointer
from sim.explore.engine.packing import host_at, unpack
from sim.explore.engine.step_codes import QUEUE
from sim.explore.engine.switch_steps import restore_switch, run_switch
from sim.explore.engine.views import core_of, state_of
from sim.explore.engine.worker_steps import fire, frame_of_row, receive_now, send_now, timers_of
from sim.explore.engine.world import ALIVE, AT_DONE, AT_FAILURE, AT_LIFE, NOTHING, WRONG_NAME
from sim.frames import HEADERS_BYTES


@compiled
def check_names(world: Record) -> Integer:
    """Check the knowledge of each living worker that is not done after its PROBEs have been answered.

    Its error is made of the last STATUS about its oldest chunk (`host_agent.protocol.outcome`): it must say that the dead
    have not contributed, and that it has itself, and the switch must have answered.
    """
    state = state_of(world)
    dead = np.int64(0)
    for host in range(world.hosts):
        at = host_at(world, np.int64(host))
        if state[at + AT_LIFE] != ALIVE or state[at + AT_FAILURE] == FAILURE_DEADLINE:
            dead |= 1 << host
    for host in range(world.hosts):
        at = host_at(world, host)
        if dead >> host & 1 or state[at + AT_DONE] == world.rounds:
            continue
        owner = unpack(world, np.int64(host))
        core = core_of(world, owner)
        if core.failure != FAILURE_NONE:
            return np.int64(WRONG_NAME)
        _answer_probes(world, np.int64(host), owner)
        all_workers = (1 << world.workers) - 1
        if core.heard_ns < 0 or core.status_chunk != core.oldest_chunk:
            return np.int64(WRONG_NAME)
        held = core.status_slot_chunk == core.oldest_chunk & 0xFFFFFFFF
        seen = core.status_seen if held else np.int64(0)
        missing = all_workers & ~seen
        if not held or missing == 0 or missing & ~dead != 0 or seen >> host & 1 == 0:
            return np.int64(WRONG_NAME)
    return np.int64(NOTHING)


@compiled
def _answer_probes(world: Record, host: Integer, owner: Integer) -> None:
    """Let an unpacked worker's timers fire, and hand it the switch's answers to its packets."""
    restore_switch(world, np.int64(0))
    fire(world, owner, timers_of(world, owner) & ~QUEUE)
    for row in range(send_now(world, owner)):
        length = frame_of_row(world, host, np.int64(row))
        left = run_switch(world, np.int64(0), length, host)
        ports = carray(pointer(world.out_ports), (left + 1,), np.uint16)
        sizes = carray(pointer(world.out_lengths), (left + 1,), np.int32)
        for each in range(left):
            if ports[each] != host:
                continue
            size = np.int64(sizes[each]) - HEADERS_BYTES
            copy_bytes(
                np.uintp(world.rx),
                np.uintp(world.out_frames + each * world.out_stride + HEADERS_BYTES),
                np.uintp(min(size, world.row_bytes)),
            )
            carray(pointer(world.rx_length), (1,), np.int32)[0] = size
            receive_now(world, owner)
