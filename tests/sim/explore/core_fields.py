"""Every field of the core's records, and what of it a state of the explorer holds (`sim.explore.engine.packing`)."""

from typing import Final

from host_agent.codecs.payload import PAYLOAD
from host_agent.protocol.records import CORE, COUNTERS, PASS, SLOT

CORE_KEPT: Final = frozenset(
    (
        *("next_chunk", "oldest_chunk", "in_flight", "passes_begun", "passes_done", "sending_pass"),
        *("sending_index", "next_sequence", "largest_acked", "loss_detected_at", "loss_time_ns"),
        *("pto_ns", "extra_probes"),
        *("probe_before", "presumed_lost", "due", "failure", "failure_chunk", "objections", "padding"),
    )
)
CORE_CONSTANT: Final = frozenset(
    (
        *("job_id", "token", "worker_id", "num_workers", "slot_count", "lanes", "rank", "headroom"),
        *("levels", "reach", "path_worker", "path_mask", "max_rto_ns", "timeout_ns", "quorum"),
        "lane_bytes",
    )
)
CORE_WINDOW: Final = frozenset(
    (
        *("congestion", "flight_bytes", "window_bytes", "threshold_bytes", "largest_bytes", "largest_ns"),
        *("competes", "starting", "trimming", "recover_chunk", "counted_lost", "counted", "jitter_ns"),
        *("round_end", "round_least_ns", "round_total_ns", "round_samples", "round_lost", "round_marked"),
        *("path_ns", "marked_share", "round_results", "round_full"),
        *("trial_rounds", "trial_wait", "trial_ns", "trial_bytes", "doubts"),
    )
)
"""Fields of the congestion window, which these cores do not have: it would only delay what is sent, by times that are choices."""
CORE_TIMES: Final = frozenset(
    (
        *("srtt_ns", "rttvar_ns", "rto_ns", "measured", "result_ns", "min_result_ns", "max_result_ns"),
        *("base_ns", "progress_ns", "recovered_ns", "window", "window_ends"),
        *CORE_WINDOW,
    )
)
"""Whether there is a queue is a choice (`fire`). With fewer than `LEAST_WINDOW` slots the window is all of them."""
CORE_TELLS: Final = frozenset(
    (
        *("heard_ns", "unanswered", "asked", "answered", "status_chunk", "status_ns", "status_level"),
        *("status_seen", "status_slot_chunk"),
    )
)
"""The text of an error follows from these; they are checked only after a time of a fair network (see `fair`). How many chunks
are probed depends on `unanswered` where there are more than `PTO_PROBES` slots: with up to two it decides nothing."""
CORE_PROBES: Final = frozenset((*("probe", "probe_number", "probe_sequence", "probe_sent_ns"),))
"""Labels stand for them."""
SLOT_KEPT: Final = frozenset(
    (
        *("chunk", "in_flight", "pass_number", "index", "exponent", "first_sequence", "last_sequence"),
        *("retransmissions", "due", "loss_time_ns", "lost", "padding", "quorum"),
    )
)
SLOT_TIMES: Final = frozenset(
    (*("first_sent_ns", "last_sent_ns", "asked_ns", "unanswered", "frame_bytes", "under_way"),)
)
"""`unanswered` sets the PROBE retry time, so it is part of the state."""
PASS_KEPT: Final = frozenset(("results", "offered", "added"))
PASS_REST: Final = frozenset(
    (
        *("op", "fingerprint", "part", "contributes", "lead", "dependency", "first_chunk", "chunks"),
        *("retransmissions", "payload", "quorum", "header_only_from", "header_only_to", "data_from"),
        *("data_to",),
    )
)
"""Constant, or counters that no decision depends on."""
PAYLOAD_REST: Final = frozenset(
    (
        *("encode", "decode", "exponent", "least_exponent", "greatest_exponent", "may_be_non_finite"),
        *("per_lane", "field_bits", "levels", "stochastic", "seed", "flip", "divisor", "elements"),
        *("data_blocks", "source", "target", "exponents", "partial", "blocks", "own", "overflowed"),
        *("non_finite", "checks"),
    )
)


def unlisted_fields() -> set[str]:
    """Return the fields of the core's records that none of the sets above lists, or that are listed and no longer there."""
    core = CORE_KEPT | CORE_CONSTANT | CORE_TIMES | CORE_TELLS | CORE_PROBES | set(COUNTERS)
    return (
        set(CORE.names or ()) ^ core
        | set(SLOT.names or ()) ^ (SLOT_KEPT | SLOT_TIMES)
        | set(PASS.names or ()) ^ (PASS_KEPT | PASS_REST)
        | set(PAYLOAD.names or ()) ^ PAYLOAD_REST
    )
