"""How a worker core failed, as an error that says who or what is missing."""

from __future__ import annotations

from host_agent.errors import (
    DuplicateWorkerError,
    MismatchError,
    MissingWorkersError,
    PeerError,
    ResultsLostError,
    SwitchSilentError,
)
from host_agent.protocol.arrivals import CHUNK_MASK
from host_agent.protocol.core import WorkerCore
from host_agent.protocol.records import FAILURE_MISMATCH

SILENT_AFTER_PROBES = 5
"""So many PROBEs about the oldest chunk in a row without an answer mean that the switch does not answer, whatever it said
before. There is one each time the timer expires."""

_RESTART = "The communicator is broken; restart the job to get a new admission."


def failure_of(core: WorkerCore, what: str, trouble: str = "") -> PeerError:
    """Put the failure of a core into words.

    Parameters
    ----------
    core : WorkerCore
        One that has failed.
    what : str
        What was going on, for the message: "allreduce number 7 (sum of 100 float32)".
    trouble : str
        What the driver knows about the way to the switch.
    """
    state = core.state[0]
    host, port = core.admission.switch
    switch = f"the switch at {host}:{port}"
    if state["failure"] == FAILURE_MISMATCH:
        return MismatchError(
            f"{what}: the workers of job {core.admission.job_id} do not agree on this collective. All must call the same "
            f"collectives in the same order, with the same operation, data type and number of elements. {_RESTART}"
        )
    after = f"{what}: no progress for {state['timeout_ns'] / 1e9:g} s"
    if trouble:
        after += f" ({trouble})"
    if state["heard_ns"] < 0 or state["unanswered"] >= SILENT_AFTER_PROBES:
        return SwitchSilentError(
            f"{after} and {switch} does not answer: it is down, out of reach, or does not admit worker "
            f"{core.admission.worker_id} of job {core.admission.job_id} from this address (any more). {_RESTART}"
        )
    if state["status_chunk"] != state["oldest_chunk"]:
        return SwitchSilentError(
            f"{after}, and {switch} did not say who is missing before the deadline. {_RESTART}"
        )
    chunk = int(state["status_chunk"]) & CHUNK_MASK
    held = int(state["status_slot_chunk"])
    if held != chunk and (held - chunk) & CHUNK_MASK < 1 << 31:
        return DuplicateWorkerError(
            f"{after}: {switch} is at chunk {held}, this worker at chunk {chunk}. Another process uses the admission of "
            f"worker {core.admission.worker_id}, or used it before: each serves one communicator, once. {_RESTART}"
        )
    everyone = (1 << core.admission.num_workers) - 1
    seen = int(state["status_seen"]) if held == chunk else 0
    if seen == everyone:
        return ResultsLostError(
            f"{after}: all workers contributed, but the results of {switch} do not arrive here, though shorter packets do. "
            f"Check the MTU of every link on the way. {_RESTART}"
        )
    missing = tuple(w for w in range(core.admission.num_workers) if not seen >> w & 1)
    if core.admission.worker_id in missing:
        return SwitchSilentError(
            f"{after}: {switch} answers, but the contributions of this worker do not reach it. Check the MTU of every link "
            f"on the way. {_RESTART}"
        )
    names = f"worker {missing[0]}" if len(missing) == 1 else "workers " + ", ".join(map(str, missing))
    return MissingWorkersError(f"{after}: {names} did not contribute. {_RESTART}", missing)
