"""Violations, in words."""

from typing import Final

from sim.explore.engine import world as w

VIOLATIONS: Final = {
    w.WRONG_RESULT: "S1, S2: a worker accepted a result that is not the operation over one contribution of every worker",
    w.STRAY_WRITE: "S2: a packet changed memory of a worker that is not the block of the result it accepted",
    w.OUTSIDER_ADMITTED: "S4: a packet that is not admitted changed a register or was answered",
    w.FOREIGN_SLOT: "S4: a packet changed a slot of another job",
    w.AGREED_FALSELY: "S6: a worker accepted a result although the workers do not mean the same collective",
    w.MISADDRESSED: "S2: an answer has the port or address of another worker, or headers that no host takes",
    w.DISPUTED_FALSELY: "S6: a worker got a MISMATCH although all workers mean the same collective",
    w.STUCK: "S3: with all packets lost here and none after, the workers do not reach the end",
    w.MACHINE_ERROR: "the explorer's own limits: more packets in flight, or more different ones, than it has room for",
    w.WRONG_NAME: "S3: a worker's error does not name the worker that died",
    w.LEFT_OUT_WRONGLY: "the explorer's own assumption: a packet about a finished chunk has an effect: use --all-states",
}
"""By code."""
