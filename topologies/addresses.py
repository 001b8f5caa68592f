"""IPv4 and MAC addresses: checks, assignment, and conversion to the integers of table entries.

Invalid addresses raise `ValueError` with the expected form.
"""

import ipaddress
import re
import socket
from ipaddress import IPv4Network

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


def mac_of(ip: str) -> str:
    """Return a locally administered MAC address that contains an IPv4 address, as Mininet's tools do."""
    return "02:00:" + socket.inet_aton(ip).hex(":")


def host_ip(network: IPv4Network, number: int) -> str:
    """Return the address of host `number` in a network; numbers begin at 1."""
    return str(network.network_address + number)


def switch_ip(network: IPv4Network, number: int) -> str:
    """Return the address of switch `number` in a network; numbers begin at 1, at the highest address."""
    return str(network.broadcast_address - number)


def ipv4_prefix(text: str) -> tuple[int, int]:
    """Return an IPv4 network such as ``10.0.1.0/24`` as (network address, prefix length)."""
    try:
        network = IPv4Network(text)
    except (ipaddress.AddressValueError, ipaddress.NetmaskValueError, ValueError):
        raise ValueError(f"expected an IPv4 network such as 10.0.1.0/24, not {text!r}") from None
    return int(network.network_address), network.prefixlen
