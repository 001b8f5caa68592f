"""A worker's reports to the controller."""

from dataclasses import asdict

from host_agent.communicator import Communicator
from host_agent.job_api import jobs_pb2

_COUNTERS = (
    *("chunks", "retransmissions", "probes", "duplicates", "stale", "congested"),
    *("packets_sent", "packets_received", "bytes_sent", "bytes_received"),
)
_TOTALS = (
    *("sparse_collectives", "sparse_blocks", "own_blocks", "union_blocks", "saved_bytes"),
    *("verified", "corrupted"),
)


def report_of(communicator: Communicator) -> jobs_pb2.Report:
    """Return a communicator's totals, their growth since the last report, and the chunk that it has waited for too long."""
    now = communicator.activity()
    total = communicator.total_stats
    report = jobs_pb2.Report(
        collectives=total.collectives,
        elements=total.elements,
        srtt_ns=now.srtt_ns,
        in_flight=now.in_flight,
        window_bytes=now.window_bytes,
        link=communicator.link,
    )
    for name in _COUNTERS:
        setattr(report, name, now.counters[name])
    for name in _TOTALS:
        setattr(report, name, getattr(total, name))
    sample = communicator.control.durations()
    if sample is not None:
        report.durations.CopyFrom(jobs_pb2.Durations(**asdict(sample)))
    if now.stuck is not None:
        report.stuck.CopyFrom(
            jobs_pb2.StuckSlot(
                slot=now.stuck.slot,
                chunk=now.stuck.chunk,
                waiting_ns=now.stuck.waiting_ns,
                switch_answered=now.stuck.missing is not None,
                missing=now.stuck.missing or (),
            )
        )
    return report
