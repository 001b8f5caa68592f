"""Addresses that only this machine reaches."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether a host, an address or a name without a look-up, is this machine's loopback; IPv6 with brackets or without."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
