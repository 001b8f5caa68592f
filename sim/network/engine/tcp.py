"""The congestion windows of background flows: CUBIC (RFC 9438) and DCTCP (RFC 8257).

Slow start ends where round trips get longer by an eighth, as with HyStart++ (RFC 9406, section 4.2, without the slower rounds
after it). There is no RACK and no pacing. A host queues at most `OWN_QUEUE_PS` of a flow in its own interface, as Linux does
(TCP small queues), and a window that is not used does not grow (RFC 9438, section 5.8).
"""

# mypy: disable-error-code="no-any-return,return-value"

from typing import Final

import numpy as np
from numba import carray

from host_agent.protocol.congestion import cubic_growth, cubic_inflection_ms
from netsum_common.compiled import Integer, Record, compiled
from netsum_common.memory import pointer
from sim.network.engine.engine_records import CONTROLS, LINK, PS_PER_NS
from sim.network.engine.ways import link_towards

CUBIC: Final = CONTROLS.index("cubic")
DCTCP: Final = CONTROLS.index("dctcp")
PER_PACKET: Final = 1000  # Windows are counted in thousandths of a packet.
LEAST_WINDOW: Final = 2 * PER_PACKET
OWN_QUEUE_PS: Final = 10**9
LEAST_RISE_PS: Final = 4 * 10**9
MOST_RISE_PS: Final = 16 * 10**9
RISE_SHARE: Final = 8
RISE_WINDOW: Final = 16 * PER_PACKET  # In smaller windows a rise says nothing.
ALPHA_ONE: Final = 1024
_PS_PER_MS: Final = 10**6 * PS_PER_NS


@compiled
def host_queue_is_full(world: Record, flow: Record) -> bool:
    """Return whether a flow leaves its packets where they are, as its host's interface has enough of them."""
    if flow.control == 0 or flow.outstanding == 0:
        return False
    way = link_towards(world, flow.source, flow.target)
    if way < 0:
        return False
    link = carray(pointer(world.links), (way + 1,), LINK)[way]
    return bool(link.busy_ps - world.now_ps > min(link.queue_ps // 2, np.int64(OWN_QUEUE_PS)))


@compiled
def grow(world: Record, flow: Record, fresh: Integer) -> None:
    """Let newly acknowledged packets open the window."""
    if flow.control != 0:
        used = (flow.outstanding + fresh) * PER_PACKET
        if used * (2 if flow.window < flow.threshold else 1) + PER_PACKET <= flow.window:
            return
        rise_ps = min(max(flow.least_rtt_ps // RISE_SHARE, np.int64(LEAST_RISE_PS)), np.int64(MOST_RISE_PS))
        if flow.window >= RISE_WINDOW and flow.srtt_ps > flow.least_rtt_ps + rise_ps:
            flow.threshold = min(flow.threshold, flow.window)
    if flow.window < flow.threshold:
        flow.window += fresh * PER_PACKET
    elif flow.control == CUBIC:
        _grow_cubic(world, flow, fresh)
    else:
        flow.window += fresh * PER_PACKET * PER_PACKET // flow.window
    flow.window = min(flow.window, flow.largest_window)


@compiled
def _grow_cubic(world: Record, flow: Record, fresh: Integer) -> None:
    """Approach CUBIC's window of a round trip ahead, but be no slower than Reno (sections 4.2 to 4.5)."""
    if flow.epoch_ps < 0:
        flow.epoch_ps = world.now_ps
        flow.congested = max(flow.congested, flow.window)
        flow.inflection_ms = cubic_inflection_ms(flow.congested - flow.window, np.int64(PER_PACKET))
        flow.estimate = flow.window
    # Reno's rate with this reduction: 3 (1 - 0.7) / (1 + 0.7) of a packet, and a whole one above the window before.
    step = fresh * PER_PACKET * PER_PACKET // flow.window
    flow.estimate += step * 9 // 17 if flow.estimate < flow.before else step
    since_ms = (world.now_ps + flow.srtt_ps - flow.epoch_ps) // _PS_PER_MS - flow.inflection_ms
    target = flow.congested + cubic_growth(since_ms, np.int64(PER_PACKET))
    target = min(max(target, flow.window), flow.window * 3 // 2)
    flow.window = max(flow.window + fresh * PER_PACKET * (target - flow.window) // flow.window, flow.estimate)


@compiled
def shrink(flow: Record) -> None:
    """Close the window once for all losses or marks in it."""
    if flow.control == CUBIC:
        # Fast convergence (section 4.7): less room than before is left to flows that begin.
        flow.before = flow.window
        flow.congested = flow.window * 17 // 20 if flow.window < flow.congested else flow.window
        flow.window = max(flow.window * 7 // 10, np.int64(LEAST_WINDOW))
        flow.epoch_ps = np.int64(-1)
    else:
        flow.window = max(flow.window // 2, np.int64(LEAST_WINDOW))
    flow.threshold = flow.window
    flow.recover = flow.next_number


@compiled
def take_marks(flow: Record, packet: Integer, fresh: Integer, marked: Integer) -> None:
    """Take in an acknowledgement; with DCTCP, the share of a window's packets that are marked closes it (section 3.3)."""
    if flow.control != DCTCP:
        if marked != 0 and packet >= flow.recover:
            shrink(flow)
        return
    flow.seen += fresh
    flow.seen_marked += fresh if marked != 0 else np.int64(0)
    if packet < flow.round_ends or flow.seen == 0:
        return
    flow.alpha += (flow.seen_marked * ALPHA_ONE // flow.seen - flow.alpha) // 16
    if flow.seen_marked > 0 and packet >= flow.recover:
        flow.window = max(flow.window - flow.window * flow.alpha // (2 * ALPHA_ONE), np.int64(LEAST_WINDOW))
        flow.threshold = flow.window
    flow.seen = flow.seen_marked = np.int64(0)
    flow.round_ends = flow.next_number
