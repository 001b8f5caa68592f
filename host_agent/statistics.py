"""Cost of a call, and the events of the network meanwhile."""

from dataclasses import dataclass, fields, replace


@dataclass(slots=True)
class Statistics:
    """Counts of one collective, or of all collectives of a communicator.

    Packets are counted from the end of the collective before to the end of this one, so the counts of several collectives
    add up although they overlap; chunks and retransmissions are the collective's own.
    """

    collectives: int = 0
    elements: int = 0
    duration_ns: int = 0
    chunks: int = 0
    """RESULTs accepted."""
    retransmissions: int = 0
    packets_sent: int = 0
    bytes_sent: int = 0
    """UDP payload."""
    packets_received: int = 0
    bytes_received: int = 0
    fast_retransmissions: int = 0
    """Retransmissions because RESULTs of later chunks had arrived, not because a timer expired."""
    completed: int = 0
    """RESULTs that waited for nobody else: this worker's contribution was the last, so their time is the path's."""
    congested: int = 0
    """RESULTs of chunks of which a queue has marked a contribution (ECN)."""
    probes: int = 0
    duplicates: int = 0
    """RESULTs of chunks that had theirs."""
    stale: int = 0
    """RESULTs and STATUSes of chunks long done."""
    foreign: int = 0
    """Packets of another job, epoch, worker or collective."""
    malformed: int = 0
    overflowed: int = 0
    """Elements of int32 sums that did not fit."""
    non_finite: int = 0
    """Blocks that came out as NaN because an input was not finite."""
    verified: int = 0
    """Collectives whose results were checked."""
    corrupted: int = 0
    """Results that were refused, those of collectives that were then repeated included."""
    sparse_collectives: int = 0
    """Collectives that left out blocks of zeros, or would have."""
    sparse_blocks: int = 0
    """Blocks of the arrays of sparse collectives."""
    own_blocks: int = 0
    """Blocks that are non-zero at this worker."""
    union_blocks: int = 0
    """Blocks that are non-zero at any worker: those are sent."""
    saved_bytes: int = 0
    """UDP payload, sent and received, that these arrays would have cost more if none of their blocks were zero."""
    srtt_ns: int = 0
    """Smoothed round trip to the switch, at the end."""
    result_ns: int = 0
    """Smoothed time from contribution to RESULT, at the end: the round trip, and waiting for other workers."""
    min_result_ns: int = 0
    """Least and largest of these since the communicator was made."""
    max_result_ns: int = 0
    window_bytes: int = 0
    """The congestion window at the end; 0: there is none."""

    @property
    def elements_per_s(self) -> float:
        """Throughput; 0 if nothing was timed."""
        return self.elements / self.duration_ns * 1e9 if self.duration_ns else 0.0

    def __sub__(self, before: "Statistics") -> "Statistics":
        """Return the counts since an earlier reading; the round-trip and result times are the later ones."""
        return replace(self, **{name: getattr(self, name) - getattr(before, name) for name in _COUNTED})

    def add(self, other: "Statistics") -> None:
        """Add another's counts; the round-trip and result times are taken over."""
        for name in _COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in _LAST:
            setattr(self, name, getattr(other, name))


_LAST = ("srtt_ns", "result_ns", "min_result_ns", "max_result_ns", "window_bytes")
_COUNTED = tuple(field.name for field in fields(Statistics) if field.name not in _LAST)
