"""How many slots a job is to get: by number, by the link to be filled, or by share of the switch."""

from dataclasses import dataclass
from typing import Any, Final, Literal

from host_agent.job_api import jobs_pb2


@dataclass(frozen=True)
class BandwidthDelay:
    """As many chunks in flight as fill a link; rounded up to a power of two.

    `link_bits_per_s`: rate of the slowest link between a worker and the switch. `rtt_s`: from a contribution to its result.
    """

    link_bits_per_s: float
    rtt_s: float


@dataclass(frozen=True)
class Share:
    """A part of the switch's slots, above 0 to 1; rounded down to a power of two."""

    part: float


Slots = int | BandwidthDelay | Share  # A number must be a power of two.

IfFull = Literal["refuse", "queue", "take less"]
"""Action if that many slots are not free: refuse, wait, or take the largest free power of two."""

IF_FULL: Final[dict[IfFull, jobs_pb2.IfFull]] = {
    "refuse": jobs_pb2.REFUSE,
    "queue": jobs_pb2.QUEUE,
    "take less": jobs_pb2.TAKE_LESS,
}


def slots_message(request: Slots | None) -> jobs_pb2.Slots:
    """Return a request as a message of the job API; None leaves the number to the controller."""
    match request:
        case None:
            return jobs_pb2.Slots()
        case BandwidthDelay():
            return jobs_pb2.Slots(
                bandwidth_delay=jobs_pb2.BandwidthDelay(
                    link_bits_per_s=request.link_bits_per_s, rtt_s=request.rtt_s
                )
            )
        case Share():
            return jobs_pb2.Slots(share=request.part)
        case _:
            return jobs_pb2.Slots(count=request)


def read_slots(message: Any) -> Slots | None:
    """Read what `slots_message` wrote."""
    match message.WhichOneof("how"):
        case None:
            return None
        case "bandwidth_delay":
            asked = message.bandwidth_delay
            return BandwidthDelay(asked.link_bits_per_s, asked.rtt_s)
        case "share":
            return Share(message.share)
        case _:
            return int(message.count)
