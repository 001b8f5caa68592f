"""The record that all compiled functions take, and the layout of a state.

A state is `HEAD_BYTES`, the registers of each switch (only those cells that the jobs use), a block for each host, and the
packets in flight: sorted entries of 32 bits, number of the packet << 12 | label << 8 | copies.

Ports have the same number at both ends. Host h is on port h of its switch. Switch s > 0 of a tree is on port hosts + s
of its parent, and its parent on its own port hosts + s. Switch 0 is the root.

A label stands for the number of a PROBE. The worker core asks only whether a number is the PROBE's, and whether the PROBE was
sent before or after each chunk's last transmission. So all PROBEs of a worker between the same two
of these transmissions are one to it. Label n: sent after the n-th of them, in order. `DEAD`: before all of them.
"""

from typing import Any, Final

import numpy as np

HEAD_BYTES: Final = 8
AT_TABLES, AT_KILLS, AT_RESTARTS = range(3)
"""In the head: which version of its tables the root holds, how many workers have died, how often a switch has restarted; after
these, which version of its tables each other switch holds (`tables_at`)."""
MAX_SWITCHES: Final = HEAD_BYTES - 2

HOST_BYTES: Final = 18
(
    AT_LIFE,
    AT_EPOCH,
    AT_NEXT,
    AT_OLDEST,
    AT_IN_FLIGHT,
    AT_BEGUN,
    AT_DONE,
    AT_PASS,
    AT_INDEX,
    AT_FLAGS,
    AT_FAILURE,
    AT_LARGEST_ACKED,
    AT_SEQUENCE,
    AT_EXTRA_PROBES,
    AT_SUSPECTS_BEFORE,
    AT_DUE,
    AT_OBJECTIONS,
    AT_FAILED_SLOT,
) = range(HOST_BYTES)
SLOT_BYTES: Final = 9
AT_CHUNK, AT_BITS, AT_SLOT_PASS, AT_SLOT_INDEX, AT_FIRST, AT_LAST, AT_TRIES, AT_EXPONENT = range(8)
ALIVE, DEAD_HOST = 1, 2

LABEL_SHIFT: Final = 8
PACKET_SHIFT: Final = 12
DEAD: Final = 15
DEAD_NUMBER: Final = 8191
MAX_ENTRIES: Final = 4096
MAX_PACKETS: Final = 1 << 16
TX_ROWS: Final = 64
ELEMENTS: Final = 2  # Elements of a block; the lanes beyond carry 0.
BEFORE: Final = 0x5EA15EA1  # Content of a target before a result is written to it.

ORDINARY, QUORUM_CHUNK, CONTRIBUTORS = range(3)
"""Kinds of rounds: of all workers; a quorum chunk; the reduction of the arrays of its contributors."""

UP, DOWN = 0, 1
TO_WORKER: Final = -1  # In place of the number of the switch that a packet arrives at.

NOTHING, CHANGED = 0, 1
(
    WRONG_RESULT,
    STRAY_WRITE,
    OUTSIDER_ADMITTED,
    FOREIGN_SLOT,
    AGREED_FALSELY,
    MISADDRESSED,
    DISPUTED_FALSELY,
    STUCK,
    MACHINE_ERROR,
    WRONG_NAME,
    LEFT_OUT_WRONGLY,
) = range(-1, -12, -1)

_FIELDS: Final = (
    # Sizes.
    *("hosts", "epochs", "owners", "slots", "rounds", "workers", "lanes", "row_bytes", "words", "blocks"),
    *("fixed_bytes", "switch_bytes", "host_bytes", "versions", "first_chunk", "gap"),
    # The tree, an element a switch: its parent, the hosts below it as bits and the first of them, the versions of its tables
    # in which the old epoch is gone and the new one complete. And the switch of each host.
    *("switches", "one_switch_bytes", "parents", "below", "first_below", "emptied", "complete", "leaf_of"),
    # Events that may happen.
    *("copies", "batches", "ahead", "attrition", "reduce", "merge", "collect", "kills", "deadlines"),
    *("restarts",),
    # The worker core: code, then records, a row an owner (host * epochs + epoch).
    *("receive", "send", "begin", "offer", "cores", "core_slots", "core_passes", "works", "exponents"),
    *("targets",),
    # Job with a quorum: the quorum, the kinds of the rounds, the source of each round's elements, the sums of contributors.
    *("quorum", "kinds", "sources"),
    *("expected", "acceptable", "tokens", "headers", "tx_rows", "tx", "tx_lengths", "rx", "rx_length"),
    # The switch.
    *("code", "contexts", "context_bytes", "inputs", "out_count", "out_ports", "out_lengths", "out_frames"),
    *("out_stride", "in_frame", "in_stride", "in_length", "in_port"),
    *("span_count", "span_at", "span_bytes", "span_job", "admitted", "progress_at", "progress_cells"),
    # Packets that have ever been in flight.
    *("packet_count", "packet_bytes", "packets", "about", "index"),
    # The state that is worked on, and the one that it comes from.
    *("state", "entries", "entry_count", "from_state", "from_entries", "from_count"),
    # Ranks of transmissions, for labels.
    *("old_last", "old_count", "new_last", "new_count", "values", "value_count", "canon", "queue"),
    *("snapshot", "snapshot_count", "useful"),
    # Permutations of workers, a row each: to which place each worker comes, and which worker comes to each place. Of each packet
    # the numbers of its permutations, then one more than the least of them. The sums over all sets of workers in each round,
    # and the same in order. Where in a state the bits of workers and the lanes are. To work in.
    *("permutations", "places", "origins", "images", "sums", "sum_count", "sum_keys", "sum_numbers"),
    *("seen_cells", "seen_at", "lane_cells", "lanes_at", "keys", "least", "turned"),
    "armed",  # the timers that were armed when a worker last sent in the call of another step
    # Coverage and faults.
    *("violation", "violation_host", "steps", "switch_runs", "worker_calls", "fair_calls", "finished_calls"),
)

PACKET: Final = np.dtype([(name, np.int64) for name in ("length", "way", "owner", "port", "to", "chunk")])
"""A packet: its bytes, UP or DOWN, whose host and epoch it is of (or -1), port, the switch it goes to (or `TO_WORKER`), chunk."""

WORLD: Final = np.dtype([(name, np.int64) for name in _FIELDS])
"""One element: sizes, options, and the addresses of everything else."""


class World:
    """The record `WORLD` and the arrays that its addresses lead to."""

    def __init__(self) -> None:
        self.record = np.zeros(1, WORLD)
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}

    def put(self, **values: int) -> None:
        """Set fields."""
        for name, value in values.items():
            self.record[name] = value

    def place(self, name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Set a field to an array's address and keep the array."""
        self.arrays[name] = array
        self.record[name] = array.ctypes.data
        return array

    def get(self, name: str) -> int:
        """Return a field."""
        return int(self.record[name][0])
