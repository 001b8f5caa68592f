"""Rates, losses and round trips of links, as options of commands write them.

Failures raise `LinksError`; the message says what is wrong.
"""

from collections.abc import Callable

from host_agent.errors import ArgumentError
from topologies.units import parse_latency_ns, parse_loss_ppm, parse_rate_bps


class LinksError(ArgumentError):
    """It is not written as it should be; the message names the option and what is expected."""


def rate_of(text: str, option: str = "--rate") -> int:
    """Read a rate such as "100mbit", in bit/s."""
    return _read(parse_rate_bps, text, option)


def loss_of(text: str, option: str = "--loss") -> int:
    """Read a loss such as "0.1", in percent; return it in packets of a million."""
    return _read(parse_loss_ppm, text, option)


def rtt_us_of(text: str, option: str = "--rtt") -> float:
    """Read a time such as "1ms", in microseconds."""
    return _read(parse_latency_ns, text, option) / 1000


def _read(parse: Callable[[str], int], text: str, option: str) -> int:
    try:
        return parse(text)
    except ValueError as expected:
        raise LinksError(f"{option}: expected {expected}, not {text!r}") from None
