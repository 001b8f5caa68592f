"""The records of a network's state. All fields are int64; times are picoseconds unless a name says otherwise.

Compiled functions take one record, the world, which holds the addresses of all others: a record is passed as a pointer, where a
tuple of arrays would be passed as a hundred arguments.

A byte takes ten picoseconds at 800 Gbit/s, and 2^63 picoseconds are 106 days.
"""

from typing import Any, Final

import numpy as np

NEVER: Final = (1 << 63) - 1  # A time that is never reached.
PS_PER_NS: Final = 1000
PS_PER_S: Final = 10**12


def record(*names: str) -> np.dtype[Any]:
    """Return a structured type of int64 fields."""
    return np.dtype([(name, np.int64) for name in names], align=True)


WORLD: Final = record(
    # The clock and the heap of events.
    *("now_ps", "sequence"),
    "events",  # number of events run, without timers that only set themselves anew
    "heap",  # address of int64[heap_room, 4]: time, tie, what, 0
    *("heap_count", "heap_room"),
    # Packets: records, and rows of bytes.
    *("packets", "frames", "row_bytes", "packet_room"),
    "free",  # address of the stack of free packets, int32
    "free_count",
    # The graph.
    *("nodes", "node_count", "links"),
    "ways",  # int32[router_count, router_count]: the row of `way_choices`, or -1
    "router_count",
    "way_choices",  # int64[rows, 2]: index in `way_links` of the first link to choose from, and number of such links
    "way_links",  # int32
    *("workers", "switches"),
    "port_links",  # int32: link of each port of each switch, or -1
    "endpoints",  # int32[node_count, endpoints_per_node]: the worker at a node's k-th UDP port, or -1
    "endpoints_per_node",
    "addresses",  # int64[address_count, 2]: IPv4 address and node, sorted by address
    "address_count",
    # Working memory.
    "scratch",  # rows for a worker core's datagrams
    "scratch_rows",
    "scratch_bytes",  # bytes of a row
    "scratch_lengths",  # int32 for each row
    "in_length",  # one int32, and in_port one uint16: length and port of the switch's input packet
    "in_port",
    # Addresses of the worker core's functions (`sim.core_calls`).
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
    "queue_ps",  # longest wait; a packet that would wait longer is dropped
    "mark_ps",  # a packet that waits longer is marked
    "busy_ps",
    "longest_packet_ps",  # the longest time that a packet has taken
    "remainder",
    "first_packet",  # first packet in flight, plus one; 0: none
    *("last_packet", "up"),
    # Faults; probabilities are in units of 2^-32.
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
    "order",  # number of the transmission
    "missing",  # in an acknowledgement: the first missing packet
    "marked",
    "urgent",  # in a segment: acknowledge it at once; in an acknowledgement: it has not left its host yet
    "sent_ps",
    # Fields of a packet that is behind another packet on a link.
    *("arrive_ps", "tie"),
    "next",  # the packet behind it, plus one; 0: none
)

NODE: Final = record(
    *("kind", "index"),
    # Routes (`sim.network.routes.Routes`).
    *("router", "out_link", "in_link"),
    # Fields of a host that peers and background traffic run on.
    *("busy_ps", "packet_ps", "byte_ps", "slower"),
)

WORKER: Final = record(
    *("node", "link", "core", "slots", "slot_count", "passes", "row_bytes"),
    "headers",  # address of its 42 bytes of headers
    "target",  # node that the worker sends to
    *("alive", "deaf", "failure_seen", "timer_ps", "busy_ps", "send_ps", "receive_ps", "byte_ps"),
    "slower",  # processing time in percent of the normal one
    "added_bytes",  # bytes on the wire of lanes that are not simulated, for a packet with lanes
    *("passes_seen", "busy_total_ps", "rank"),
    "checked",  # results are compared as they arrive
    "sample_at",  # number of accepted RESULTs at which the loop reports to Python
)

OUTPUT: Final = record(
    "target",  # address of the output that all workers of a job write; 0: free
    "expected",  # address of the expected output
    "known",  # number of leading elements of the expected output that are computed
    "element_bytes",
    "blocks",  # address of int64[workers]: number of blocks that each worker has written
    "wrong_worker",  # rank of the first worker that has written a wrong value; -1: none
    "wrong_element",
)
"""Results of a collective, shared by the workers (`sim.network.engine.outputs`)."""

SWITCH: Final = record(
    "node",
    "code",  # 0: the switch only forwards
    *("words", "inputs", "out_count", "now_us", "digest_count", "ports", "lengths", "frames", "stride"),
    "port_links",  # index of its first entry in the world's `port_links`
    *("port_count", "latency_ps", "service_ps", "queue_ps", "busy_ps", "alive", "added_bytes"),
    "header_only_bytes",  # longest frame without lanes
    *("packets", "lost_in_queue", "unreachable"),
    "pending",  # packet whose processing is unfinished, plus one; 0: none
    *("busy_total_ps", "longest_wait_ps"),
)

FLOW: Final = record(
    *("source", "target"),
    # The parts of a packet's size.
    *("segment_bytes", "header_bytes", "ack_bytes"),
    # The sender's fields; packets are numbered over all messages.
    "next_number",  # first packet that was never sent
    "end_number",  # end of the packets that messages have given the flow
    "acknowledged",  # all packets before this one were acknowledged
    "outstanding",
    "lost",  # number of packets known to be lost and not sent again yet
    "order",  # number of the last transmission
    "order_acknowledged",
    "sending",  # message of `next_number`; -1: none
    "last_message",
    # The congestion window, in thousandths of a packet.
    *("window", "threshold", "largest_window"),
    "recover",  # losses before this packet have already reduced the window
    "control",  # an index of `CONTROLS`
    # CUBIC's: the congested window, that before its reduction, and Reno's; times of its curve.
    *("congested", "before", "estimate", "epoch_ps", "inflection_ms"),
    # DCTCP's: packets seen and those that were marked since a round began, its end, and their mean share.
    *("seen", "seen_marked", "round_ends", "alpha"),
    # Round trips.
    *("srtt_ps", "least_rtt_ps", "rttvar_ps", "rto_ps", "least_rto_ps"),
    *("backoff", "deadline_ps", "timer_set"),
    # The receiver's fields.
    *("expected", "ack_every"),
    "unacknowledged",  # packets since the last acknowledgement
    "delivering",  # first message that is not completely delivered; -1: none
    "missing",  # the last packet that was lost and has not arrived since, plus one; 0: none
    "stall",
    # Counts.
    *("packets", "resends", "timeouts", "bytes"),
)

STALL: Final = record("flows", "since_ps", "total_ps")
"""Stalls of a job's flows: number of flows that wait for a lost packet, start of the present stall, and total stalled time."""

RING: Final = record("order", "bytes", "received")
"""An entry of a flow's ring of packets: the number of the last transmission (or `RING_ACKNOWLEDGED`, `_RING_LOST`), the bytes,
and the highest packet received at this index of the ring, plus one."""

MESSAGE: Final = record(
    "flow",  # or `flows.WITHIN_HOST`, `flows.TO_PYTHON`
    "bytes",
    "waits_for",  # messages that must have been delivered before
    "delay_ps",  # delay between the delivery of the last of those messages and sending
    *("first_successor", "successor_count"),
    "last_number",  # the message's last packet
    "next",  # next message on the flow or in the line
    "frees",  # place, from 1, whose turn ends on delivery or, on a flow, when the last byte has been sent; 0: none
    "done_ps",
)

PLACE: Final = record(
    "taken",  # a message has its turn at this place
    "line",  # number, from 1, of the line in which messages wait for a turn at this place or others
    # Fields of a line: its first and last message, plus one (0: none waits), and the freed place, from 1 (-1: several).
    *("first", "last", "freed"),
)
"""A processor, an interface or another place where messages take turns (`sim.network.engine.flows`)."""

GAPS: Final = ("even", "uniform", "poisson")
"""Intervals of background traffic: all the same; evenly distributed between 0 and twice the mean; exponentially distributed."""

CONTROLS: Final = ("", "cubic", "dctcp")
"""Congestion controls of flows; the first is that of RFC 5681, which peers have."""

GENERATOR: Final = record(
    *("source", "target", "packet_bytes", "interval_ps", "until_ps"),
    "burst",  # packets sent at once
    "gaps",  # distribution of the intervals, an index of `GAPS`
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
    "wait_bytes",  # bytes before it in the queue
    "kept",  # number of bytes of the frame that are kept
    # Fields of a packet of the slot protocol; -1: not such a packet.
    "protocol",
    "slot",  # pool index
    *("chunk", "worker"),
)
