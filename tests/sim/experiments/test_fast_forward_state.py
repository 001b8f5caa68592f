"""State that fast-forward compares: every field of a worker belongs to the state, or here with the reason why it need not."""

import ast
import inspect

import numpy as np
import pytest

from host_agent.protocol.records import CORE, COUNTERS, PASS, SLOT
from sim.network.engine import periods
from sim.network.engine.engine_records import WORKER

_TREE = ast.parse(inspect.getsource(periods))
_FUNCTIONS = {each.name: each for each in _TREE.body if isinstance(each, ast.FunctionDef)}

ADMISSION = "is set by the admission, and the same for as long as there is the worker"
PLACE = "says where something is in memory"
TROUBLE = "is read only about PROBEs, STATUSes and failures; the state is not compared while there are any"

REASONS: dict[str, dict[str, str]] = {
    "core": {
        **dict.fromkeys(
            (
                "job_id",
                "token",
                "worker_id",
                "rank",
                "num_workers",
                "lanes",
                "lane_bytes",
                "headroom",
                "levels",
                "reach",
                "quorum",
            ),
            ADMISSION,
        ),
        **dict.fromkeys(("path_worker", "path_mask", "timeout_ns"), ADMISSION),
        **dict.fromkeys(COUNTERS, "is counted, and goes on by what a period counts"),
        "padding": "changes with a STATUS alone",
        "probe_before": "is read with extra_probes, of which there are none",
        "presumed_lost": "counts slots with loss_time_ns, and every slot's is NEVER",
        "recovered_ns": "is compared with PROBEs about chunks in flight, and no chunk has one",
        "window": "is read up to window_ends, which is behind",
        **dict.fromkeys(("status_ns", "status_level", "status_seen", "status_slot_chunk"), TROUBLE),
        **dict.fromkeys(("failure_chunk", "objections"), TROUBLE),
        **dict.fromkeys(
            ("probe_number", "probe_sequence", "probe_sent_ns"),
            "is read when the STATUS of a PROBE comes; one under way is among the packets",
        ),
    },
    "slot": {
        "exponent": "is a value",
        "frame_bytes": "is under_way where nothing is lost",
        "asked_ns": "is read of chunks with PROBEs, and no chunk has one",
    },
    "work": {
        "contributes": "follows from encode",
        "first_chunk": "is read by checked collectives alone, which simulated jobs do not have",
        **dict.fromkeys(
            ("part", "offered", "added"), "is read of passes without exponents, or with a quorum"
        ),
    },
    "worker": {
        **dict.fromkeys(("core", "slots", "passes", "headers"), PLACE),
        **dict.fromkeys(
            ("node", "link", "target", "rank", "row_bytes", "send_ps", "receive_ps", "byte_ps", "slower"),
            ADMISSION,
        ),
        **dict.fromkeys(("added_bytes", "checked"), ADMISSION),
        "slot_count": ADMISSION,
        "failure_seen": TROUBLE,
        "timer_ps": "follows from the core's deadlines",
        "passes_seen": "is the loop's own; Python attends before a period begins",
        "sample_at": "is when the state is sampled",
        "busy_total_ps": "is counted",
    },
}


def named_in(function: str, variable: str) -> set[str]:
    """Return the attributes of a variable, or of a helper's parameter of that name, that a function reads."""
    return {
        each.attr
        for each in ast.walk(_FUNCTIONS[function])
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == variable
    }


@pytest.mark.parametrize(
    ("variable", "record"), [("core", CORE), ("slot", SLOT), ("work", PASS), ("worker", WORKER)]
)
def test_every_field_is_compared_or_has_a_reason_why_not(variable: str, record: "np.dtype[np.void]") -> None:
    compared = named_in("describe_workers", variable) - {"payload"}
    reasons = set(REASONS[variable])
    fields = set(record.names or ()) - {"payload"}
    assert fields - compared - reasons == set(), "a new field: compare it in describe_workers, or say why not"
    assert reasons - fields == set(), "a field that is no longer there"


def test_no_field_has_a_reason_and_is_compared() -> None:
    for variable, reasons in REASONS.items():
        both = named_in("describe_workers", variable) & set(reasons)
        assert both <= {"core", "slots", "slot_count", "quorum"}, (
            f"{variable}: {both}"
        )  # Read to find the others.


def test_times_of_a_worker_go_on_with_what_is_left_out() -> None:
    """A time that is compared relative to now is moved when periods are left out."""
    moved = named_in("skip_workers", "core") | {
        each.attr for each in ast.walk(_FUNCTIONS["skip_workers"]) if isinstance(each, ast.Attribute)
    }
    times = {name for record in (CORE, SLOT) for name in record.names or () if name.endswith("_ns")}
    durations = {"srtt_ns", "rttvar_ns", "rto_ns", "max_rto_ns", "base_ns", "result_ns", "min_result_ns"}
    durations |= {"path_ns", "jitter_ns", "round_least_ns", "round_total_ns", "trial_ns"}
    durations |= {"max_result_ns", "timeout_ns"}
    without = set(REASONS["core"]) | set(REASONS["slot"]) | durations
    assert times - without - {name for name in moved if name in times} == set()
