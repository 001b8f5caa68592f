"""Quantities as topology files and commands write them: rates, delays, shares of packets."""

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

_WRITTEN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z%µ]*)\s*")
_BITS_PER_SECOND = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_NANOSECONDS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9}
_PER_MILLION = {"%": 10**4, "ppm": 1}


def parse_rate_bps(written: object) -> int:
    """Read a rate in bits per second: a number is Mbit/s (as p4lang's tutorials have it), a text has a unit, as tc's.

    Raises
    ------
    ValueError
        It is neither; the message says what was expected.
    """
    expected = 'a rate above 0, in Mbit/s (100) or with a unit ("100mbit", "1.5gbit", "500kbit")'
    rate_bps = _parse(written, _BITS_PER_SECOND, "mbit", expected)
    if not 1000 <= rate_bps <= 10**12:
        raise ValueError('a rate between "1kbit" and "1000gbit"')
    return rate_bps


def parse_latency_ns(written: object) -> int:
    """Read a delay in ns: a number is milliseconds, a text has a unit.

    Raises
    ------
    ValueError
        It is neither; the message says what was expected.
    """
    latency_ns = _parse(
        written, _NANOSECONDS, "ms", 'a delay in ms (5) or with a unit ("5ms", "100us", "0ms")'
    )
    if latency_ns > 60 * 10**9:
        raise ValueError("a delay of at most 60 s")
    return latency_ns


def parse_loss_ppm(written: object) -> int:
    """Read a share of lost packets, in packets per million: a number is percent, a text has a unit.

    Raises
    ------
    ValueError
        It is neither, or more than everything; the message says what was expected.
    """
    loss_ppm = _parse(written, _PER_MILLION, "%", 'a loss in percent (0.1) or with a unit ("0.1%", "100ppm")')
    if loss_ppm > 10**6:
        raise ValueError("a loss of at most 100 %")
    return loss_ppm


def rate_text(rate_bps: int) -> str:
    """Write a rate with the largest unit that leaves it whole, as `parse_rate_bps` and tc read it."""
    unit = next(name for name, size in reversed(_BITS_PER_SECOND.items()) if rate_bps % size == 0)
    return f"{rate_bps // _BITS_PER_SECOND[unit]}{unit}"


def _parse(written: object, units: Mapping[str, int], default: str, expected: str) -> int:
    if isinstance(written, (int, float)) and not isinstance(written, bool):
        written = f"{written}{default}" if isinstance(written, int) else f"{Decimal(str(written)):f}{default}"
    match = _WRITTEN.fullmatch(written) if isinstance(written, str) else None
    if match is None or (size := units.get(match[2].lower() or default)) is None:
        raise ValueError(expected)
    try:
        return int(Decimal(match[1]) * size)
    except InvalidOperation:
        raise ValueError(expected) from None
