"""The records that a network consists of. All fields are int64; times are picoseconds unless a name says otherwise.

Compiled functions take one record, the world, which holds the addresses of all others: a record is passed as a pointer, where a
tuple of arrays would be passed as a hundred arguments.

A byte takes ten picoseconds at 800 Gbit/s, and 2^63 picoseconds are 106 days.
"""

from typing import Any, Final

import numpy as np

NEVER: Final = (1 << 63) - 1  # A time that does not come.
PS_PER_NS: Final = 1000
PS_PER_S: Final = 10**12


def record(*names: str) -> np.dtype[Any]:
    """Return a structured type of int64 fields."""
    return np.dtype([(name, np.int64) for name in names], align=True)


WORLD: Final = record(
    # The clock and the heap of events.
    *("now_ps", "sequence"),
    "events",  # how many have been run, without timers that only set themselves anew
    "heap",  # address of int64[heap_room, 4]: time, tie, what, 0
    *("heap_count", "heap_room"),
    # Packets: records, and rows of bytes.
    *("packets", "frames", "row_bytes", "packet_room"),
    "free",  # address of a stack of packets that are free, int32
    "free_count",
    # The graph.
    *("nodes", "node_count", "links"),
    "ways",  # int32[router_count, router_count]: the row of `way_choices`, or -1
    "router_count",
    "way_choices",  # int64[rows, 2]: where the links to choose from begin in `way_links`, and how many there are
    "way_links",  # int32
    *("workers", "switches"),
    "port_links",  # int32: link of each port of each switch, or -1
    "endpoints",  # int32[node_count, endpoints_per_node]: the worker at a node's k-th UDP port, or -1
    "endpoints_per_node",
    "addresses",  # int64[address_count, 2]: IPv4 address and node, in order
    "address_count",
    # Room to work in.
    "scratch",  # rows for a worker core's datagrams
    "scratch_rows",
    "scratch_bytes",  # of a row
    "scratch_lengths",  # int32 for each row
    "in_length",  # one int32, one uint16: the switch's input lengths
    "in_port",
    # Addresses of the worker core's functions (`sim.network.engine.core`).
    *("core_take_in", "core_transmit"),
    # Random numbers.
    "seed",
    # The loop's report to Python.
    *("subject", "switch_status", "messages_left", "messages_watched"),
    *("due_packet", "due_output", "due_elements"),  # a RESULT that waits for the sum to compare it with
    # Flows of peers and background traffic.
    "flows",
    "flow_window",  # packets of a flow that may be outstanding at most, a power of two
    "flow_rings",  # RING[flow, flow_window]
    "stalls",
    "messages",
    "successors",  # int32
    "places",
    "generators",
    # Shared outputs.
    *("outputs", "output_count"),
    # Scripted faults.
    *("scripts", "script_count"),
    # Recording.
    "trace",
    "trace_frames",  # uint8[trace_room, trace_frame_bytes]
    *("trace_frame_bytes", "trace_count", "trace_room", "trace_all"),
)

COUNTS: Final = (
    *("packets", "bytes", "lost", "lost_in_queue", "lost_too_long", "lost_while_down", "duplicated"),
    *("marked", "busy_total_ps", "longest_wait_ps"),
)
"""Counters of a link."""

LINK: Final = record(
    *("from_node", "to_node", "to_port"),
    "rate_bps",  # 0: without limit
    *("latency_ps", "framing_bytes", "mtu"),
    "queue_ps",  # how long a packet may have to wait before it is dropped
    "mark_ps",  # from which wait on packets are marked
    "busy_ps",
    "longest_packet_ps",  # the longest time that a packet has taken
    "remainder",
    "first_packet",  # of those under way, plus one; 0: none is
    *("last_packet", "up"),
    # Faults; chances are of 2^32.
    *("faulty", "loss", "duplicate", "jitter_ps", "straggle", "straggle_ps"),
    "bursts",  # 0: none
    *("to_bad", "to_good", "loss_bad", "bad"),
    # How many random numbers of each purpose were drawn.
    *("thrown_loss", "thrown_duplicate", "thrown_jitter", "thrown_straggle", "thrown_burst", "scripted"),
    "tapped",
    *COUNTS,
)

PACKET: Final = record(
    "kind",
    "length",  # bytes in its row, from the Ethernet header on
    "wire_bytes",  # bytes that a link counts
    "target",  # node
    *("flow", "number"),
    "order",  # of its transmission
    "missing",  # of an acknowledgement: the first packet that is not there
    "marked",
    "urgent",  # of a segment: acknowledge it at once; of an acknowledgement: it has not left its host yet
    "sent_ps",
    # Behind another one on a link.
    *("arrive_ps", "tie"),
    "next",  # the one behind it, plus one; 0: none
)

NODE: Final = record(
    *("kind", "index"),
    # Ways (`sim.network.routes.Routes`).
    *("router", "out_link", "in_link"),
    # Fields of a host that peers and background traffic run on.
    *("busy_ps", "packet_ps", "byte_ps", "slower"),
)

WORKER: Final = record(
    *("node", "link", "core", "slots", "slot_count", "passes", "row_bytes"),
    "headers",  # address of its 42 bytes of headers
    "target",  # node it sends to
    *("alive", "deaf", "failure_seen", "timer_ps", "busy_ps", "send_ps", "receive_ps", "byte_ps"),
    "slower",  # its own work takes this many percent
    "added_bytes",  # on the wire, of a packet with lanes: lanes that are not simulated
    *("passes_seen", "busy_total_ps", "rank"),
    "checked",  # its results are compared as they arrive
    "sample_at",  # with this many RESULTs accepted the loop reports to Python
)

OUTPUT: Final = record(
    "target",  # address of the output that all workers of a job write; 0: free
    "expected",  # address of the expected output
    "known",  # elements of it that are computed, from the first on
    "element_bytes",
    "blocks",  # int64[workers]: how many blocks each has written
    "wrong_worker",  # the rank of the first that has written something else; -1: none
    "wrong_element",
)
"""Results of a collective, shared by the workers (`sim.network.engine.outputs`)."""

SWITCH: Final = record(
    "node",
    "code",  # 0: it only forwards
    *("words", "inputs", "out_count", "now_us", "digest_count", "ports", "lengths", "frames", "stride"),
    "port_links",  # its first in the world's
    *("port_count", "latency_ps", "service_ps", "queue_ps", "busy_ps", "alive", "added_bytes"),
    "header_only_bytes",  # frames longer than this have lanes
    *("packets", "lost_in_queue", "unreachable"),
    "pending",  # the program's output has not left yet
    *("busy_total_ps", "longest_wait_ps"),
)

FLOW: Final = record(
    *("source", "target"),
    # The sources of a packet's bytes.
    *("segment_bytes", "header_bytes", "ack_bytes"),
    # The sender's fields; packets are numbered over all messages.
    "next_number",  # never sent yet
    "end_number",  # of what may be sent
    "acknowledged",  # all before were
    "outstanding",
    "lost",  # known to be lost and not sent again yet
    "order",  # transmissions are numbered, too
    "order_acknowledged",
    "sending",  # message of `next_number`; -1: none
    "last_message",
    # The congestion window, in thousandths of a packet.
    *("window", "threshold", "largest_window"),
    "recover",  # losses before this packet are part of an episode that has had its answer
    "ecn",
    # Round trips.
    *("srtt_ps", "rttvar_ps", "rto_ps", "least_rto_ps", "backoff", "deadline_ps", "timer_set"),
    # The receiver's fields.
    *("expected", "ack_every"),
    "unacknowledged",  # packets since the last acknowledgement
    "delivering",  # message that is not all there; -1: none is under way
    "missing",  # the last packet that was lost and has not come again, plus one; 0: none
    "stall",
    # Counts.
    *("packets", "resends", "timeouts", "bytes"),
)

STALL: Final = record("flows", "since_ps", "total_ps")
"""Recovering flows of a job: how many wait for a lost packet, since when at least one waits, and for how long one has waited."""

RING: Final = record("order", "bytes", "received")
"""A packet of a flow that may be outstanding: the number of its last transmission (`RING_ACKNOWLEDGED`, `RING_LOST`), its bytes,
and the highest packet received at this place of the ring, plus one."""

MESSAGE: Final = record(
    "flow",  # or `flows.WITHIN_HOST`, `flows.TO_PYTHON`
    "bytes",
    "waits_for",  # messages that must have been delivered before
    "delay_ps",  # of its sender, between the last of these and sending
    *("first_successor", "successor_count"),
    "last_number",  # packet that ends it
    "next",  # behind it on the flow or in its line
    "frees",  # plus one, where a turn ends when it is there or, on a flow, when its last byte has been sent; 0: nowhere
    "done_ps",
)

PLACE: Final = record(
    "taken",  # a message has its turn here
    "line",  # the row, plus one, that has the line of those that wait for their turns here or at other places
    # A line's messages, plus one; 0: none waits. A place, plus one, that was freed, so that one may begin; -1: several.
    *("first", "last", "freed"),
)
"""A processor, an interface or another place where messages take turns (`sim.network.engine.flows`)."""

GAPS: Final = ("even", "uniform", "poisson")
"""Intervals of background traffic: all the same; evenly distributed between 0 and twice the mean; exponentially distributed."""

GENERATOR: Final = record(
    *("source", "target", "packet_bytes", "interval_ps", "until_ps"),
    "burst",  # packets at once
    "gaps",  # how intervals are distributed (`sim.network.engine.traffic`)
    *("thrown", "sent", "received", "number"),
)
"""Background traffic from a host to another."""

SCRIPT: Final = record(
    "link",  # -1: any
    "kind",  # of the protocol; -1: any
    *("chunk", "worker"),
    "flags",  # that must be set; 0: any
    *("nth", "seen", "action", "delay_ps"),
)

TRACE: Final = record(
    *("time_ps", "end_ps", "what"),
    "where",  # link
    "packet",  # kind
    "length",  # on the wire
    "wait_bytes",  # of the packets before it in the queue
    "kept",  # bytes of the frame
    # Fields of a packet of the slot protocol; -1: not such a packet.
    "protocol",
    "slot",  # pool index
    *("chunk", "worker"),
)
