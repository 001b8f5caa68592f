"""Values of match fields and action parameters as files write them, in the bytes of P4Runtime."""

import contextlib
import ipaddress

from controller.addresses import mac_int

_FORMS = "an integer, an Ethernet address, an IPv4 or IPv6 address"


def bits_of(found: object, bitwidth: int) -> int:
    """Return a value as the unsigned number that a field of some bits holds.

    `found`: an integer (a negative one in two's complement), or a text with an Ethernet, IPv4 or IPv6 address, or any of
    these alone in a list. Raises ValueError: with what was expected.
    """
    if isinstance(found, list) and len(found) == 1:
        (found,) = found
    if isinstance(found, int) and not isinstance(found, bool):
        if not -(1 << bitwidth - 1) <= found < 1 << bitwidth:
            raise ValueError(f"a value of {bitwidth} bits")
        return found % (1 << bitwidth)
    if isinstance(found, str):
        number, bits = _address(found)
        if bits != bitwidth:
            raise ValueError(f"a value of {bitwidth} bits, which an address of {bits} bits is not")
        return number
    raise ValueError(_FORMS)


def _address(text: str) -> tuple[int, int]:
    """Return an address as a number, and how many bits addresses of its kind have."""
    with contextlib.suppress(ValueError):
        return mac_int(text), 48
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(_FORMS) from None
    return int(address), address.max_prefixlen
