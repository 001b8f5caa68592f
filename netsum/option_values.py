"""Values as options of commands write them: numbers, rates, losses and round trips of links, and slots of a job.

Failures raise `OptionValueError`; the message names the option and the expected value.
"""

import re
from collections.abc import Callable

from host_agent.errors import ArgumentError
from host_agent.job_api.slot_request import BandwidthDelay, Share, Slots
from topologies.units import parse_latency_ns, parse_loss_ppm, parse_rate_bps


class OptionValueError(ArgumentError):
    """A value is not written as it should be."""


def whole_numbers(text: str, option: str, such_as: str = "2,4") -> list[int]:
    """Read numbers of at least 1 with commas between. `such_as`: an example, for the error."""
    numbers = [int(each) if each.isdecimal() else 0 for each in text.split(",")]
    if min(numbers) < 1:
        raise OptionValueError(f"{option}: expected whole numbers such as {such_as}, not {text!r}")
    return numbers


def rate_of(text: str, option: str = "--rate") -> int:
    """Read a rate such as "100mbit", in bit/s."""
    return _read(parse_rate_bps, text, option)


def loss_of(text: str, option: str = "--loss") -> int:
    """Read a loss such as "0.1", in percent; return it in packets of a million."""
    return _read(parse_loss_ppm, text, option)


def rtt_us_of(text: str, option: str = "--rtt") -> float:
    """Read a time such as "1ms", in microseconds."""
    return _read(parse_latency_ns, text, option) / 1000


def parse_slots(text: str | None) -> Slots | None:
    """Read how many slots a job is to get: "64", "25%" or "10gbit*50us"; None stays None."""
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
            raise OptionValueError(f"slots: expected {expected} in {text!r}") from None
    raise OptionValueError(
        f"slots: expected a power of two, a share such as 25%, or a link such as 10gbit*50us, not {text!r}"
    )


def _read(parse: Callable[[str], int], text: str, option: str) -> int:
    try:
        return parse(text)
    except ValueError as expected:
        raise OptionValueError(f"{option}: expected {expected}, not {text!r}") from None
