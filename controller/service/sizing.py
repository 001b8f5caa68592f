"""The number of slots for a request."""

import math

from controller.errors import JobRefusedError
from host_agent.job_api.slot_request import BandwidthDelay, Share, Slots
from host_agent.wire.lengths import frame_bytes

_ON_THE_WIRE_BYTES = 4 + 8 + 12  # Check sequence, preamble and gap of a frame.


def wire_bits(lanes: int) -> int:
    """Return the size of a chunk's packet on a link, in bits."""
    return 8 * (frame_bytes(lanes) + _ON_THE_WIRE_BYTES)


def slots_for(request: Slots, lanes: int, capacity: int) -> int:
    """Return how many slots a request asks for: a power of two, possibly more than the switch has.

    `request`: the request of the job's first worker or its operator. `lanes`: int32 values a packet carries. Raises
    JobRefusedError with the reason if the request is invalid.
    """
    match request:
        case BandwidthDelay(rate, rtt):
            if not (0 < rate < 1e15 and 0 < rtt < 1e3):
                raise JobRefusedError(
                    f"slots by bandwidth-delay product need a rate in bit/s and a round-trip time in s, not {rate:g}, {rtt:g}"
                )
            return int(1 << max(0, math.ceil(rate * rtt / wire_bits(lanes)) - 1).bit_length())
        case Share(part):
            if not 0 < part <= 1:
                raise JobRefusedError(f"a share of the switch's slots is above 0 to 1, not {part:g}")
            return int(1 << max(1, math.floor(part * capacity)).bit_length() - 1)
        case _:
            return request
