"""The records that a worker core consists of.

All fields are int64: chunk numbers count on beyond 2^32 here and are cut to 32 bits on the wire only, and signed
arithmetic of one width has no surprises. Time is in nanoseconds.
"""

from typing import Any, Final

import numpy as np

from host_agent.codecs.payload import PAYLOAD, array_block
from host_agent.wire.constants import TREE_MAX_LEVELS
from netsum_common.compiled import Integer, Record, compiled_inline

PASS_RING: Final = 16  # Passes that may be under way or wait their turn at once, a power of two.

PROBE_RING: Final = 256  # Number of PROBEs whose STATUSes can be distinguished, a power of two.
PROBE_NUMBERS: Final = 8191
"""PROBEs are numbered 1 to this on the wire, in the field where other STATUSes carry an exponent, which is 0 or larger."""

NEVER: Final = (1 << 63) - 1  # A time that does not come.

FAILURE_NONE: Final = 0
FAILURE_MISMATCH: Final = 1
FAILURE_DEADLINE: Final = 2

DUE_NO: Final = 0
DUE_PROBE: Final = 1  # A PROBE is due.
DUE_RETRANSMIT: Final = 2  # A retransmission and a PROBE are due.
DUE_FAST_RETRANSMIT: Final = 3  # The same, because RESULTs of chunks sent later have arrived.
DUE_OFFER: Final = 4
"""To be sent for the first time: a quorum chunk, which began without this worker's contribution."""


def _record(*names: str, more: list[Any] | None = None) -> np.dtype[Any]:
    return np.dtype([(name, np.int64) for name in names] + (more or []), align=True)


COUNTERS: Final = (
    "packets_sent",
    "bytes_sent",
    "packets_received",
    "bytes_received",
    "chunks",  # RESULTs accepted
    "retransmissions",  # all of them
    "fast_retransmissions",  # those because of DUE_FAST_RETRANSMIT
    "completed",  # RESULTs that answered this worker's only contribution: it was the last, so their time is the path's
    "congested",  # RESULTs of chunks of which a queue has marked a contribution
    "probes",
    "statuses",
    "duplicates",  # RESULTs of a chunk that had its RESULT
    "stale",  # RESULTs and STATUSes of other chunks
    "foreign",  # not for this worker, this epoch or this collective
    "malformed",
)
"""Counters of a core, over its whole life."""

CORE: Final = _record(
    # The admission.
    "job_id",
    "token",
    "worker_id",
    "num_workers",
    "slot_count",
    "lanes",
    "lane_bytes",  # of a packet's lanes on the wire; a simulator may compute fewer lanes
    "rank",
    "headroom",  # ceil(log2(world size))
    "levels",  # of switches on the path to the root
    "reach",  # the highest of them that a retransmission reaches
    "quorum",  # number of contributions that complete a quorum chunk; 0: the job has none
    "padding",  # a switch could not grow a packet into a RESULT: empty contributions are sent with lanes of zeros
    # Chunks.
    "next_chunk",
    "oldest_chunk",  # no older one is in flight
    "in_flight",
    # Passes: numbers that count on; a pass is at its number modulo PASS_RING.
    "passes_begun",
    "passes_done",  # all before this one have all RESULTs
    "sending_pass",
    "sending_index",
    # Time: the way to the switch and back, and from contribution to RESULT, which includes waiting for other workers.
    "srtt_ns",  # 0: no sample yet
    "rttvar_ns",
    "rto_ns",
    "measured",  # whether a PROBE has been timed; else SRTT is but a bound
    "max_rto_ns",
    "base_ns",  # a PROBE's round trip without queues
    "result_ns",  # smoothed
    "min_result_ns",
    "max_result_ns",
    # Recovery.
    "next_sequence",  # number of the next transmission
    "largest_acked",  # largest number of a first transmission whose RESULT has arrived
    "loss_detected_at",  # largest_acked when chunks were last checked for losses
    "loss_time_ns",  # when a chunk must be checked, as loss_time of RFC 9002; never later than it should be
    "pto_ns",  # probe timeout: when the oldest chunks are probed unless a RESULT arrives
    "extra_probes",  # how many more chunks to probe,
    "probe_before",  # among those with a smaller number of transmission
    "presumed_lost",  # chunks in flight with a `loss_time_ns`
    "recovered_ns",  # send time of the newest PROBE for a recovered chunk (cf. RFC 9002, recovery start time)
    "window",  # how many other chunks may be in flight
    "window_ends",  # before this chunk; from there on, as many as there are slots
    # The congestion window (`congestion`), in bytes of frames.
    "congestion",  # 1: there is one, instead of `window`
    "flight_bytes",  # of the chunks in flight that are not presumed lost
    "window_bytes",  # how many of them there may be
    "threshold_bytes",  # from here on the window grows by little
    "largest_bytes",  # the window at the last congestion; 0: none yet
    "largest_ns",  # when that was
    "competes",  # 1: others fill the queue, and only losses and marks make the window smaller
    "path_ns",  # the least round trip of a chunk with lanes: on slow links it is longer than a PROBE's
    "starting",  # 1: no queue has been met yet
    "trimming",  # the losses of the first flight make the window smaller, one by one
    "recover_chunk",  # losses of chunks before it have had their answer
    "counted_lost",  # packets, for the share that is lost,
    "counted",  # of this many chunks
    "jitter_ns",  # mean less least round trip of a round
    "marked_share",  # smoothed, of 1,024
    # A round: about as long as a round trip.
    "round_end",  # ends with the RESULT of a chunk from this one on
    "round_least_ns",  # the least round trip in it
    "round_total_ns",  # their sum
    "round_samples",
    "round_lost",
    "round_marked",
    "round_results",
    "round_full",  # whether the window kept a chunk back
    # A trial, whose the queue is.
    "trial_rounds",  # left of it; 0: none is under way
    "trial_wait",  # rounds until the next
    "trial_ns",  # the round trip before it
    "doubts",  # trials in a row that found another owner of the queue than was thought
    "trial_bytes",  # the window before it
    "probe",  # number of the last PROBE
    "due",  # chunks waiting to be sent again or probed
    # The deadline.
    "timeout_ns",
    "progress_ns",
    "heard_ns",  # when the last packet of the switch arrived; -1: none has
    "unanswered",  # PROBEs since then
    "asked",  # PROBEs since the last RESULT
    "answered",  # STATUSes that answered these
    "status_chunk",  # chunk of the last STATUS about the oldest chunk; -1: none
    "status_ns",  # when it arrived
    "status_level",
    "status_seen",
    "status_slot_chunk",
    "failure",
    "failure_chunk",
    "objections",  # contributions still to be sent to it, which make the switch repeat the MISMATCH
    *COUNTERS,
    more=[
        # By level: the child that this worker is behind, and the bits of all children.
        ("path_worker", np.int64, (TREE_MAX_LEVELS,)),
        ("path_mask", np.int64, (TREE_MAX_LEVELS,)),
        # PROBE n is at n modulo PROBE_RING.
        ("probe_number", np.int64, (PROBE_RING,)),
        ("probe_sequence", np.int64, (PROBE_RING,)),
        ("probe_sent_ns", np.int64, (PROBE_RING,)),
    ],
)

SLOT: Final = _record(
    "chunk",  # -1: none yet
    "in_flight",
    "pass_number",
    "index",  # in its pass
    "exponent",  # sent with it
    "first_sequence",
    "last_sequence",
    "first_sent_ns",
    "last_sent_ns",
    "asked_ns",  # when the last PROBE about it was sent
    "retransmissions",
    "unanswered",  # PROBEs about it since the last STATUS
    "due",
    "loss_time_ns",  # when the next PROBE is due; NEVER: it is not presumed lost
    "lost",  # known to be, but sent again more than REPEATS_AT_ONCE times, so it waits for loss_time_ns
    "padding",  # send lanes along, which the RESULT takes the place of
    "quorum",  # its chunk is a quorum chunk
    "frame_bytes",  # of its contribution or RESULT, whichever is longer
    "under_way",  # the same while one may be under way, else 0
)

CONTRIBUTES_NOTHING: Final = 0
CONTRIBUTES_DATA: Final = 1

PASS: Final = _record(
    "op",
    "fingerprint",
    "contributes",
    "part",  # content of the exponent field of chunks without an exponent: `PART_*`, 0 if unknown
    "lead",  # K: by how many chunks exponents precede their lanes; 0: no exponents
    "dependency",  # chunk i needs the RESULT of chunk i - dependency; 0: none
    "first_chunk",
    "chunks",
    "results",
    "retransmissions",
    "quorum",  # its only chunk is a quorum chunk: a quorum of contributions completes it
    "offered",  # this worker contributes to it; not before that
    "added",  # bits of the workers whose contributions its RESULT has
    # Blocks of the array: those of whose RESULTs this worker needs the header only, and those that it contributes to.
    "header_only_from",
    "header_only_to",
    "data_from",
    "data_to",
    more=[("payload", PAYLOAD)],
)


@compiled_inline
def is_header_only(record: Record, block: int) -> bool:
    """Whether this worker needs a header-only RESULT of a block of the pass."""
    if record.header_only_to == 0:
        return False
    return bool(record.header_only_from <= array_block(record.payload, block) < record.header_only_to)


@compiled_inline
def has_data(record: Record, block: int) -> bool:
    """Whether this worker contributes to a block of the pass."""
    return bool(record.data_from <= array_block(record.payload, block) < record.data_to)


@compiled_inline
def slot_of(core: Record, chunk: int) -> Integer:
    """Return the slot of a chunk. The number of slots is a power of two."""
    return chunk & (core.slot_count - 1)


@compiled_inline
def pool_index_of(core: Record, chunk: int) -> Integer:
    """Return slot * 2 + pool version of a chunk."""
    version = 1 if chunk & core.slot_count != 0 else 0
    return slot_of(core, chunk) * 2 + version
