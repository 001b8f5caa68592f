"""Values of match fields and action parameters in files, as the unsigned numbers of P4Runtime's fields."""

import contextlib
import ipaddress

from topologies.addresses import mac_int

_FORMS = "an integer, an Ethernet address, an IPv4 or IPv6 address"


def bits_of(found: object, bitwidth: int) -> int:
    """Return a value as the unsigned number that a field of some bits holds.

    `found`: an integer (a negative one in two's complement), a text with an Ethernet, IPv4 or IPv6 address, or a list that
    holds only one such value. Raises ValueError with the expected form.
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
    """Return (address as a number, bits of an address of its kind)."""
    with contextlib.suppress(ValueError):
        return mac_int(text), 48
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(_FORMS) from None
    return int(address), address.max_prefixlen
