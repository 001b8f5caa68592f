"""The IPv4 addresses of this machine, by which a controller knows its hosts."""

import fcntl
import os
import socket
import struct
from typing import Final

HOST_VARIABLE: Final = "NETSUM_HOST_IP"
"""Names this machine's address on the data network, where it is not to be found out."""
_SIOCGIFADDR: Final = 0x8915


def own_addresses() -> list[str]:
    """Return the address that `HOST_VARIABLE` names, or else that of every interface but the loopback's."""
    named = os.environ.get(HOST_VARIABLE)
    if named:
        return [named]
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, request)
            except OSError:  # It has no IPv4 address.
                continue
            found.append(socket.inet_ntoa(answer[20:24]))
    return [address for address in found if not address.startswith("127.")]
