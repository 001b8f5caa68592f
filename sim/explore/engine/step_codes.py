"""The codes of steps.

A step's code is kind << KIND_SHIFT | what << WHAT_SHIFT | how. `what` is a place in the list of packets, a host or a switch.
`how` says which timers have expired when the worker sends (`TIMERS`), and whether its PROBEs have shown a queue (`QUEUE`). Of a
STATUS: `TIRED`, the worker has sent the chunk too often; `ANSWERED`, an earlier copy of it has come.
"""

# mypy: disable-error-code="no-any-return"

from typing import Final

from netsum_common.compiled import Integer, compiled_inline

DELIVER, KEEP, LOSE, DRIVE, BEGIN, KILL, JOIN, CONTROL, RESTART, SATURATE, OFFER, FAIL = range(1, 13)
"""Deliver a packet; deliver it and keep it; lose it; let a worker send, with timers fired; let it begin a round; kill it;
let it join the second epoch; let the controller write its next table entry; restart a switch; deliver all packets to
a switch that change nothing in it; let a worker contribute to a quorum chunk; let its deadline pass."""
TIMERS: Final = (1 << 10) - 1
QUEUE: Final = 1 << 9
TIRED, ANSWERED = 1 << 10, 1 << 11
HOW: Final = (1 << 12) - 1
WHAT: Final = (1 << 15) - 1
KIND_SHIFT: Final = 27
WHAT_SHIFT: Final = 12


@compiled_inline
def step_code(kind: Integer, what: Integer, how: Integer) -> Integer:
    """Return a step's code."""
    return kind << KIND_SHIFT | what << WHAT_SHIFT | how
