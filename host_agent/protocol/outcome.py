"""The error for a failed worker core, with the missing workers or switch."""

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

SILENT_AFTER_PROBES = 24
"""PROBEs in a row without an answer that, with as little for `RECENT_SHARE` of the deadline, mean that the switch does not
answer. Where half of all packets are lost each way, one run of 24 in a thousand goes unanswered."""
RECENT_SHARE = 4
"""Workers are named only by STATUSes of the last 1/n of the deadline: earlier, others may have
been missing that were only recovering from losses."""
LOSSY_SHARE = 4
"""The network, not its MTU, is blamed if more than 1/n of the PROBEs go unanswered: PROBEs are short."""

_RESTART = "The communicator is broken; restart the job to get a new admission."


def failure_of(core: WorkerCore, what: str, trouble: str = "", restarted: str = "") -> PeerError:
    """Return the error for the failure of a core.

    `what`: the collective in progress, for the message: "allreduce number 7 (sum of 100 float32)". `trouble`: the
    driver's knowledge of the path to the switch. `restarted`: why the job has another epoch by now; empty if nothing is known of
    one.
    """
    state = core.state[0]
    host, port = core.admission.switch
    switch = f"the switch at {host}:{port}"
    above = " or one above it" if len(core.admission.path) > 1 else ""
    if state["failure"] == FAILURE_MISMATCH:
        return MismatchError(
            f"{what}: the workers of job {core.admission.job_id} do not agree on this collective. All must call the same "
            "collectives in the same order, with the same operation, data type and number of elements, and all of them exactly "
            f"or none. {_RESTART}"
        )
    after = f"{what}: no progress for {state['timeout_ns'] / 1e9:g} s"
    if restarted:
        return SwitchSilentError(
            f"{after}: the job was given a new epoch ({restarted}), and {switch} admits no packets of this one. {_RESTART}"
        )
    if trouble:
        after += f" ({trouble})"
    recent_ns = state["progress_ns"] + state["timeout_ns"] * (RECENT_SHARE - 1) // RECENT_SHARE
    silent = state["heard_ns"] < recent_ns and state["unanswered"] >= SILENT_AFTER_PROBES
    if state["heard_ns"] < 0 or silent:
        return SwitchSilentError(
            f"{after} and {switch}{above} does not answer: it is down, unreachable, or no longer admits worker "
            f"{core.admission.worker_id} of job {core.admission.job_id} from this address. {_RESTART}"
        )
    asked, answered = int(state["asked"]), int(state["answered"])
    lossy = ""
    if (asked - answered) * LOSSY_SHARE > asked:
        lossy = f"the network loses packets: {answered} of {asked} probes to {switch} were answered"
    if state["status_chunk"] != state["oldest_chunk"] or state["status_ns"] < recent_ns:
        return SwitchSilentError(
            f"{after}, and {switch} did not report which workers are missing shortly before the deadline"
            f"{f' ({lossy})' if lossy else ''}. {_RESTART}"
        )
    chunk = int(state["status_chunk"]) & CHUNK_MASK
    held = int(state["status_slot_chunk"])
    if held != chunk and (held - chunk) & CHUNK_MASK < 1 << 31:
        return DuplicateWorkerError(
            f"{after}: {switch} is at chunk {held}, this worker at chunk {chunk}. Another process uses the admission of "
            f"worker {core.admission.worker_id}, or used it before: an admission serves one communicator, once. {_RESTART}"
        )
    slot = core.records[1][int(state["oldest_chunk"]) & (core.admission.slot_count - 1)]
    if slot["quorum"] and slot["in_flight"] and slot["chunk"] == state["oldest_chunk"]:
        return _no_quorum(core, after, held == chunk, lossy)
    level = int(state["status_level"])
    place = core.admission.path[level]
    seen = int(state["status_seen"]) if held == chunk else 0
    if seen == (1 << len(place.children)) - 1:
        cause = lossy or "Shorter packets do: check the MTU of every link on the way"
        return ResultsLostError(
            f"{after}: all workers contributed, but the results of {switch} do not arrive here. {_sentence(cause)} {_RESTART}"
        )
    missing = place.behind(seen)
    if core.admission.rank in missing and level:
        cause = lossy or "Check the links between the switches and their MTU"
        return SwitchSilentError(
            f"{after}: the sum of {switch} does not reach level {level} of the tree of switches. {_sentence(cause)} {_RESTART}"
        )
    if core.admission.rank in missing:
        cause = lossy or "Shorter packets do: check the MTU of every link on the way"
        return SwitchSilentError(
            f"{after}: {switch} answers, but the contributions of this worker do not reach it. {_sentence(cause)} {_RESTART}"
        )
    names = _names(missing)
    if level:
        return MissingWorkersError(
            f"{after}: at least one of {names}, on other switches, did not contribute. {_RESTART}", missing
        )
    return MissingWorkersError(f"{after}: {names} did not contribute. {_RESTART}", missing)


def _no_quorum(core: WorkerCore, after: str, held: bool, lossy: str) -> PeerError:
    """Return the error for a quorum chunk whose quorum did not come, or whose RESULT did not."""
    seen = int(core.state["status_seen"][0]) if held else 0
    needed = core.admission.quorum
    missing = core.admission.path[0].behind(seen)
    if seen.bit_count() >= needed:
        cause = lossy or "check the links on the way"
        return ResultsLostError(
            f"{after}: the quorum is complete, but its result does not arrive here. {_sentence(cause)} {_RESTART}"
        )
    return MissingWorkersError(
        f"{after}: the switch has {seen.bit_count()} of {needed} arrays that a round takes, and none of {_names(missing)}. "
        f"{_RESTART}",
        missing,
    )


def _names(ranks: tuple[int, ...]) -> str:
    return f"worker {ranks[0]}" if len(ranks) == 1 else "workers " + ", ".join(map(str, ranks))


def _sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."
