"""Addresses as text, checked and turned into the integers that table entries hold.

Invalid addresses raise `ValueError` with the expected form.
"""

import ipaddress
import re

_MAC = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")


def ipv4_int(text: str) -> int:
    """Return an IPv4 address such as ``10.0.0.1`` as an integer."""
    try:
        return int(ipaddress.IPv4Address(text))
    except ipaddress.AddressValueError:
        raise ValueError(f"expected an IPv4 address such as 10.0.0.1, not {text!r}") from None


def mac_int(text: str) -> int:
    """Return a MAC address such as ``02:00:0a:00:00:01`` as an integer."""
    if not _MAC.fullmatch(text):
        raise ValueError(f"expected a MAC address such as 02:00:0a:00:00:01, not {text!r}")
    return int(text.replace(":", ""), 16)


def ipv4_prefix(text: str) -> tuple[int, int]:
    """Return an IPv4 network such as ``10.0.1.0/24`` as (network address, prefix length)."""
    try:
        network = ipaddress.IPv4Network(text)
    except (ipaddress.AddressValueError, ipaddress.NetmaskValueError, ValueError):
        raise ValueError(f"expected an IPv4 network such as 10.0.1.0/24, not {text!r}") from None
    return int(network.network_address), network.prefixlen
