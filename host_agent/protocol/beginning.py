"""Queueing a pass, compiled: `WorkerCore.begin` and simulators that keep cores in arrays share it."""

from host_agent.protocol.records import PASS_RING
from netsum_common.compiled import Record, Records, borrowed, compiled


@compiled
def begin_pass(state: Records, passes: Records, record: Record, now_ns: int) -> None:
    """Queue a pass behind those under way.

    `state`, `passes`: the worker core, which has not failed and has fewer than `PASS_RING` passes under way. `record`: what
    `Pass.lay_out` returned, its element.
    """
    state, passes = borrowed(state), borrowed(passes)
    core = state[0]
    if core.passes_done == core.passes_begun:
        core.progress_ns = now_ns
        core.status_chunk = -1
        core.unanswered = 0
        core.asked = 0
        core.answered = 0
        core.heard_ns = -1
    begun = passes[core.passes_begun % PASS_RING]
    passes[core.passes_begun % PASS_RING] = record
    begun.first_chunk = core.next_chunk
    if core.sending_pass < core.passes_begun:
        before = passes[(core.passes_begun - 1) % PASS_RING]
        begun.first_chunk = before.first_chunk + before.chunks
    core.passes_begun += 1
