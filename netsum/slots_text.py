"""How many slots a job is to get, as commands write it."""

import re

from host_agent.errors import ArgumentError
from host_agent.job_api.slot_request import BandwidthDelay, Share, Slots
from topologies.units import parse_latency_ns, parse_rate_bps


class SlotsError(ArgumentError):
    """It is not written as it should be; the message says what is expected."""


def parse_slots(text: str | None) -> Slots | None:
    """Read "64", "25%" or "10gbit*50us"; None stays None; `SlotsError` if it is none of these."""
    if text is None:
        return None
    if text.isascii() and text.isdigit() and int(text).bit_count() == 1:
        return int(text)
    if (share := re.fullmatch(r"(\d+(?:\.\d+)?)%", text)) and 0 < float(share[1]) <= 100:
        return Share(float(share[1]) / 100)
    rate, times, delay = text.partition("*")
    if times:
        try:
            return BandwidthDelay(float(parse_rate_bps(rate)), parse_latency_ns(delay) / 1e9)
        except ValueError as expected:
            raise SlotsError(f"slots: expected {expected} in {text!r}") from None
    raise SlotsError(
        f"slots: expected a power of two, a share such as 25%, or a link such as 10gbit*50us, not {text!r}"
    )
