"""Quantities in topology files and commands: rates, delays, shares of packets, sizes.

Failures raise `ValueError` with the reason.
"""

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

_WRITTEN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z%µ]*)\s*")
_BITS_PER_SECOND = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_NANOSECONDS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9}
_PER_MILLION = {"%": 10**4, "ppm": 1}
_BYTES = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 10**3, "mb": 10**6, "gb": 10**9}


def parse_rate_bps(written: object) -> int:
    """Return a rate in bit/s. A number is in Mbit/s, as in p4lang's tutorials; a string has one of tc's units."""
    expected = 'a rate above 0, in Mbit/s (100) or with a unit ("100mbit", "1.5gbit", "500kbit")'
    rate_bps = _parse(written, _BITS_PER_SECOND, "mbit", expected)
    if not 1000 <= rate_bps <= 10**12:
        raise ValueError('a rate between "1kbit" and "1000gbit"')
    return rate_bps


def parse_latency_ns(written: object) -> int:
    """Return a delay in ns. A number is in milliseconds; a string has a unit."""
    latency_ns = _parse(
        written, _NANOSECONDS, "ms", 'a delay in ms (5) or with a unit ("5ms", "100us", "0ms")'
    )
    if latency_ns > 60 * 10**9:
        raise ValueError("a delay of at most 60 s")
    return latency_ns


def parse_loss_ppm(written: object) -> int:
    """Return a share of lost packets, in packets per million. A number is in percent; a string has a unit."""
    loss_ppm = _parse(written, _PER_MILLION, "%", 'a loss in percent (0.1) or with a unit ("0.1%", "100ppm")')
    if loss_ppm > 10**6:
        raise ValueError("a loss of at most 100 %")
    return loss_ppm


def parse_size_bytes(written: object, most: int = 1 << 34) -> int:
    """Return a size in bytes. A number is in bytes; a string has a unit, of which KiB is 1,024 bytes and kB 1,000.

    Raises ValueError with the expected value if `written` has another form, is 0, or is more than `most`.
    """
    expected = 'a size ("4MiB", "100kB") above 0'
    size = _parse(written, _BYTES, "", expected)
    if not 0 < size <= most:
        raise ValueError(f"{expected}, at most {most:,} bytes" if size else expected)
    return size


def quantity(written: str) -> float | None:
    """Convert a number with a unit to bytes, bit/s, ns or percent; return None for any other text."""
    match = _WRITTEN.fullmatch(written)
    units = {**_BYTES, **_BITS_PER_SECOND, **_NANOSECONDS, "%": 1}
    if match is None or match[2].lower() not in units:
        return None
    return float(Decimal(match[1]) * units[match[2].lower()])


def rate_text(rate_bps: int) -> str:
    """Format a rate in the largest unit that makes it an integer, as `parse_rate_bps` and tc read it."""
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
