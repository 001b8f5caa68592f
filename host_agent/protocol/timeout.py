"""The retransmission timeout of RFC 6298.

Departures, with reasons. The lower bound is 10 ms, not 1 s (2.4): a round trip in a rack takes well under a
millisecond, but an operating system may leave a worker waiting for some; below that, most of what the timer repeats
was not lost. What is timed is contribution to RESULT, so
it includes waiting for the slowest worker: chunks sent when a collective starts would measure how far apart the
workers start, and are taken as samples only if they do not look like that. Back-off ends not only with a sample (5.7)
but with any RESULT that came within the timeout of its chunk's first transmission. A collective that starts from idle starts
without back-off.
"""

from __future__ import annotations

from typing import Final

from host_agent.compiled import Integer, Record, compiled, compiled_inline
from host_agent.protocol.records import NEVER

GRANULARITY_NS: Final = 1_000_000
"""G of RFC 6298; kGranularity of RFC 9002."""
MIN_RTO_NS: Final = 10_000_000
INITIAL_RTO_NS: Final = 1_000_000_000
MAX_RTO_NS: Final = 1_000_000_000
EXPIRIES_BEFORE_DEADLINE: Final = 16
"""The timeout is kept so small that it expires about this often before the deadline: time to ask who is missing."""
MAX_BACKOFF: Final = 30
PACKET_THRESHOLD: Final = 3
"""kPacketThreshold of RFC 9002, section 6.1.1."""


@compiled
def reset_timeout(core: Record) -> None:
    """Forget all samples; `timeout_ns` must be set."""
    core.max_rto_ns = min(MAX_RTO_NS, max(GRANULARITY_NS, core.timeout_ns // EXPIRIES_BEFORE_DEADLINE))
    core.srtt_ns = 0
    core.rttvar_ns = 0
    core.rto_ns = min(INITIAL_RTO_NS, core.max_rto_ns)
    core.backoff = 0
    core.latest_rtt_ns = 0
    core.min_rtt_ns = NEVER
    core.max_rtt_ns = 0


@compiled
def take_sample(core: Record, rtt_ns: int) -> None:
    """Update SRTT, RTTVAR and RTO by an unambiguous (Karn) round trip, which also ends the back-off (5.7)."""
    if core.srtt_ns == 0:
        core.srtt_ns = max(rtt_ns, 1)
        core.rttvar_ns = rtt_ns // 2
    else:
        core.rttvar_ns += (abs(core.srtt_ns - rtt_ns) - core.rttvar_ns) // 4
        core.srtt_ns = max(core.srtt_ns + (rtt_ns - core.srtt_ns) // 8, 1)
    rto_ns = core.srtt_ns + max(GRANULARITY_NS, 4 * core.rttvar_ns)
    core.rto_ns = min(max(rto_ns, MIN_RTO_NS), core.max_rto_ns)
    core.backoff = 0
    core.latest_rtt_ns = rtt_ns
    core.min_rtt_ns = min(core.min_rtt_ns, rtt_ns)
    core.max_rtt_ns = max(core.max_rtt_ns, rtt_ns)


@compiled_inline
def looks_like_a_late_start(core: Record, rtt_ns: int) -> Integer:
    """Whether a round trip of a chunk sent from idle is rather the time until the last worker started."""
    return core.srtt_ns != 0 and rtt_ns > core.rto_ns


@compiled_inline
def backed_off_rto_ns(core: Record) -> Integer:
    """RTO, doubled for every expiry since the last sample, up to the ceiling."""
    return min(core.rto_ns << core.backoff, core.max_rto_ns)


@compiled_inline
def overtaken_after_ns(core: Record) -> Integer:
    """How long after its transmission an overtaken chunk counts as lost (RFC 9002, section 6.1.2)."""
    return max(max(core.srtt_ns, core.latest_rtt_ns) * 9 // 8, GRANULARITY_NS)
