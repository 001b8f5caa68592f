"""The addresses of this machine: IPv4, by which a controller knows its hosts, and MAC, to which aggregators in a kernel send."""

import fcntl
import os
import socket
import struct
from collections.abc import Iterable
from typing import Final

HOST_VARIABLE: Final = "NETSUM_HOST_IP"
"""Names this machine's address on the data network, where it is not to be found out."""
_SIOCGIFADDR: Final = 0x8915
_SIOCGIFHWADDR: Final = 0x8927


def own_addresses() -> list[str]:
    """Return the address that `HOST_VARIABLE` names, or else that of every interface but the loopback's."""
    named = os.environ.get(HOST_VARIABLE)
    if named:
        return [named]
    return [address for address, _ in interface_addresses().values() if not address.startswith("127.")]


def hardware_addresses(addresses: Iterable[str]) -> list[str]:
    """Return the MAC address of the interface that has each address; empty where none has it."""
    known = dict(interface_addresses().values())
    return [known.get(address, "") for address in addresses]


def interface_addresses() -> dict[str, tuple[str, str]]:
    """Return the IPv4 and the MAC address of each interface that has an IPv4 address, by name."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                ip = fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, request)[20:24]
                mac = fcntl.ioctl(asked.fileno(), _SIOCGIFHWADDR, request)[18:24]
            except OSError:  # The interface has no IPv4 address.
                continue
            found[name] = socket.inet_ntoa(ip), mac.hex(":")
    return found
