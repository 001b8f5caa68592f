"""Round-trip times to the switch, after RFC 6298, and the timers that follow from them.

Departures from the RFC, with reasons. PROBEs are timed, which the switch answers at once with a STATUS; they are numbered, so
no sample is ambiguous. The time from contribution to RESULT also includes waiting for the slowest worker, and under loss for
the recoveries of all others: as a round trip it would make each worker slower by the losses of the others, and the others by
that. It only bounds the round trip from above. The initial value and the lower bound of 1 s (2.1, 2.4) protect against needless
retransmissions; here an expiry makes a worker ask, with a header alone, and only chunks that are known to be lost are sent
again. Instead of doubling (5.5) intervals grow slowly: while PROBEs go unanswered, with their number; once the switch has said
that other workers are late, with the time waited.
"""

from typing import Final

import numpy as np

from host_agent.protocol.records import NEVER
from netsum_common.compiled import Integer, Record, compiled, compiled_inline

GRANULARITY_NS: Final = 1_000_000  # G of RFC 6298; kGranularity of RFC 9002.
MIN_PTO_NS: Final = 10_000_000
"""Least probe timeout before a PROBE has been timed: an operating system may leave a worker waiting for some
milliseconds."""
WINDOW_PTO_NS: Final = 2_000_000
"""The same with a congestion window, if RESULTs have come: all others of a first window that was too large may be lost."""
INITIAL_RTO_NS: Final = 30_000_000
MAX_RTO_NS: Final = 1_000_000_000
EXPIRIES_BEFORE_DEADLINE: Final = 16
"""The timeout expires at least this often before the deadline, so that PROBEs find out who is missing."""
WAITED_SHARE: Final = 8  # The next PROBE of a chunk follows after 1/n of the time that the chunk has waited.
REPEATS_AT_ONCE: Final = 8
"""Retransmissions at intervals of RTO, or at once for known losses, before the interval grows: most losses are by chance, but
long packets may not get through at all, and a switch may be down."""
REPEAT_SHARE: Final = 4  # Then each interval is longer than the one before by 1/n of it.
PACKET_THRESHOLD: Final = 3  # kPacketThreshold of RFC 9002, section 6.1.1.


@compiled
def reset_timeout(core: Record) -> None:
    """Forget all samples; `timeout_ns` must be set."""
    core.max_rto_ns = min(MAX_RTO_NS, max(GRANULARITY_NS, core.timeout_ns // EXPIRIES_BEFORE_DEADLINE))
    core.srtt_ns = 0
    core.rttvar_ns = 0
    core.measured = 0
    core.rto_ns = min(INITIAL_RTO_NS, core.max_rto_ns)
    core.base_ns = NEVER
    core.result_ns = 0
    core.min_result_ns = NEVER
    core.max_result_ns = 0


@compiled
def take_sample(core: Record, rtt_ns: int) -> None:
    """Update SRTT, RTTVAR and RTO by a round trip."""
    if core.srtt_ns == 0:
        core.srtt_ns = max(rtt_ns, 1)
        core.rttvar_ns = rtt_ns // 2
    else:
        core.rttvar_ns += (abs(core.srtt_ns - rtt_ns) - core.rttvar_ns) // 4
        core.srtt_ns = max(core.srtt_ns + (rtt_ns - core.srtt_ns) // 8, 1)
    core.rto_ns = min(core.srtt_ns + max(GRANULARITY_NS, 4 * core.rttvar_ns), core.max_rto_ns)


@compiled
def take_probe_time(core: Record, ns: int) -> None:
    """Take in the time from a PROBE to its STATUS; the first one replaces the estimate from RESULTs."""
    if core.measured == 0:
        core.measured = 1
        core.srtt_ns = 0
    core.base_ns = min(core.base_ns, ns)
    take_sample(core, ns)


@compiled
def take_result_time(core: Record, ns: int) -> None:
    """Take in the time from a contribution, sent once, to its RESULT: the round trip is at most that."""
    if core.srtt_ns == 0 or ns < core.srtt_ns:
        take_sample(core, ns)
    core.result_ns = ns if core.result_ns == 0 else core.result_ns + (ns - core.result_ns) // 8
    core.min_result_ns = min(core.min_result_ns, ns)
    core.base_ns = min(core.base_ns, ns)
    core.max_result_ns = max(core.max_result_ns, ns)


@compiled_inline
def pto_after_ns(core: Record, waited_ns: Integer) -> Integer:
    """Return the probe timeout, in ns, given how long no chunk has been answered."""
    least_ns: Integer = np.int64(0)
    if core.measured == 0:
        least_ns = WINDOW_PTO_NS if core.congestion != 0 and core.srtt_ns != 0 else MIN_PTO_NS
    return min(max(core.rto_ns, least_ns, waited_ns // WAITED_SHARE), core.max_rto_ns)


@compiled_inline
def probe_again_after_ns(core: Record, waited_ns: int) -> Integer:
    """Return the time, in ns, to the next PROBE of a chunk that waits for other workers, given how long it has waited."""
    return min(max(core.rto_ns, waited_ns // WAITED_SHARE), core.max_rto_ns)


@compiled
def repeat_after_ns(core: Record, times: int) -> Integer:
    """Return how long, in ns, to wait for an answer to a transmission that follows this number of unanswered ones."""
    ns = core.rto_ns
    while times > REPEATS_AT_ONCE and ns < core.max_rto_ns:
        ns += ns // REPEAT_SHARE
        times -= 1
    return min(ns, core.max_rto_ns)


@compiled_inline
def loss_delay_ns(core: Record) -> Integer:
    """Return how long, in ns, after its transmission a chunk is presumed lost: the time threshold (RFC 9002, section 6.1.2)."""
    return max(core.srtt_ns * 9 // 8, GRANULARITY_NS)  # kTimeThreshold is 9/8.


@compiled_inline
def set_loss_time(core: Record, slot: Record, ns: Integer) -> None:
    """Arm the timer of a chunk in flight: `transmit` checks it at this time at the latest."""
    if slot.loss_time_ns == NEVER:
        core.presumed_lost += 1
    slot.loss_time_ns = ns
    core.loss_time_ns = min(core.loss_time_ns, ns)
