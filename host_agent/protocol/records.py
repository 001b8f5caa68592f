"""The records that a worker core consists of.

All fields are int64: chunk numbers count on beyond 2^32 here and are cut to 32 bits on the wire only, and signed
arithmetic of one width has no surprises. Time is in nanoseconds.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from host_agent.compiled import Integer, Record, compiled_inline
from host_agent.packetize.blocks import BLOCK_FIELDS

PASS_RING: Final = 16
"""Passes that may be under way or wait their turn at once, a power of two."""

NEVER: Final = (1 << 63) - 1
"""A time that does not come."""

FAILURE_NONE: Final = 0
FAILURE_MISMATCH: Final = 1
FAILURE_DEADLINE: Final = 2

DUE_NO: Final = 0
DUE_TIMER: Final = 1
"""The retransmission timer expired."""
DUE_OVERTAKEN: Final = 2
"""RESULTs of chunks sent later have come."""
DUE_STATUS: Final = 3
"""A STATUS says that the RESULT is there to be fetched."""


def _record(*names: str, more: list[tuple[str, Any]] | None = None) -> np.dtype[Any]:
    return np.dtype([(name, np.int64) for name in names] + (more or []), align=True)


COUNTERS: Final = (
    "packets_sent",
    "bytes_sent",
    "packets_received",
    "bytes_received",
    "chunks",  # RESULTs accepted
    "retransmissions",  # all of them
    "overtaken",  # those because of DUE_OVERTAKEN
    "probes",
    "statuses",
    "duplicates",  # RESULTs of a chunk that had its RESULT
    "stale",  # RESULTs and STATUSes of other chunks
    "foreign",  # not for this worker, this epoch or this collective
    "malformed",
)
"""What a core counts, over its whole life."""

CORE: Final = _record(
    # The admission.
    "job_id",
    "token",
    "worker_id",
    "num_workers",
    "slot_count",
    "lanes",
    "headroom",  # ceil(log2(num_workers))
    # Chunks.
    "next_chunk",
    "oldest_chunk",  # no older one is in flight
    "in_flight",
    "idle_chunk",  # the first one sent since nothing was in flight
    # Passes: numbers that count on; a pass lives at its number modulo PASS_RING.
    "passes_begun",
    "passes_done",  # all before this one have all RESULTs
    "sending_pass",
    "sending_index",
    # Retransmission.
    "srtt_ns",  # 0: no sample yet
    "rttvar_ns",
    "rto_ns",
    "max_rto_ns",
    "backoff",
    "timer_base_ns",
    "latest_rtt_ns",
    "min_rtt_ns",
    "max_rtt_ns",
    "next_sequence",  # transmissions are numbered, to tell which overtook which
    "overtaker",  # largest number of a first transmission whose RESULT has come
    "loss_timer_ns",
    "due",  # chunks waiting to be retransmitted
    # The deadline.
    "timeout_ns",
    "progress_ns",
    "heard_ns",  # when the switch last said anything to this worker; -1: never
    "unanswered",  # PROBEs about the oldest chunk since
    "status_chunk",  # what the last STATUS about the oldest chunk said; -1: none
    "status_seen",
    "status_slot_chunk",
    "failure",
    "failure_chunk",
    *COUNTERS,
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
    "retransmissions",
    "due",
    "fetched",  # a STATUS made it due since the last other retransmission
    "room",  # send lanes along, so that the RESULT has room for its own
)

CONTRIBUTES_NOTHING: Final = 0
CONTRIBUTES_DATA: Final = 1
CONTRIBUTES_ZEROS: Final = 2

PASS: Final = _record(
    "op",
    "fingerprint",
    "contributes",
    "lead",  # K: by how many chunks exponents precede their lanes; 0: no exponents
    "dependency",  # chunk i needs the RESULT of chunk i - dependency; 0: none
    "chunks",
    "results",
    "retransmissions",
    more=BLOCK_FIELDS,
)


@compiled_inline
def slot_of(core: Record, chunk: int) -> Integer:
    """Return the slot of a chunk. The number of slots is a power of two."""
    return chunk & (core.slot_count - 1)


@compiled_inline
def pool_index_of(core: Record, chunk: int) -> Integer:
    """Return slot * 2 + pool version of a chunk."""
    version = 1 if chunk & core.slot_count != 0 else 0
    return slot_of(core, chunk) * 2 + version
