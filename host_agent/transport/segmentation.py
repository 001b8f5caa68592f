"""How many datagrams a message may hold (UDP_SEGMENT) on the way to the switch.

Such a message goes through the network code, the interface's queue and its timers once. Where it is cut up decides whether it may
be used. Loopback hands it over whole, to sockets that know. An interface without the offload has the kernel cut it up before
the interface sees it, so what leaves are packets like any others. An interface with the offload is a network adapter that cuts
them up itself, or a virtual one that hands the message over whole, and a software switch behind that takes it for one
malformed packet: it is not known which, so messages hold one datagram there.
"""

import ctypes
import fcntl
import socket
import struct
from typing import Final

MOST_SEGMENTS: Final = 64  # The least limit of any kernel (UDP_MAX_SEGMENTS).

# linux/ethtool.h, linux/sockios.h
_ETHTOOL_GSTRINGS, _ETHTOOL_GSSET_INFO, _ETHTOOL_GFEATURES = 0x1B, 0x37, 0x3A
_ETH_SS_FEATURES: Final = 4
_ETH_GSTRING_BYTES: Final = 32
_SIOCETHTOOL: Final = 0x8946
_SIOCGIFADDR: Final = 0x8915
_FEATURE: Final = b"tx-udp-segmentation"

# linux/netlink.h, linux/rtnetlink.h, linux/if_link.h
_RTM_NEWLINK, _RTM_GETLINK, _NLM_F_REQUEST = 16, 18, 1
_IFLA_GSO_MAX_SEGS: Final = 40
_NLMSG, _IFINFO = struct.Struct("=IHHII"), struct.Struct("=BxHiII")
_TIMEOUT_S: Final = 5.0


def segments_towards(local_ip: str) -> int:
    """Return how many datagrams a message may hold that leaves by the interface with an address; 1 if that is not known.

    The interface's own limit counts (`ip link set DEV gso_max_segs 1`): a testbed that loses packets on purpose before they are
    cut up sets it, so that it loses one at a time.
    """
    try:
        name = _interface_with(local_ip)
        if name is None or _has_offload(name):
            return 1
        return max(1, min(MOST_SEGMENTS, _limit_of(socket.if_nametoindex(name))))
    except OSError:
        return 1


def _interface_with(local_ip: str) -> str | None:
    wanted = socket.inet_aton(local_ip)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asked, _SIOCGIFADDR, struct.pack("16s24x", name.encode()))
            except OSError:  # The interface has no IPv4 address.
                continue
            if answer[20:24] == wanted:
                return name
    return None


def _has_offload(name: str) -> bool:
    """Whether an interface accepts such messages unsplit."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:

        def send(request: bytes) -> bytes:
            buffer = ctypes.create_string_buffer(request, len(request))
            fcntl.ioctl(asked, _SIOCETHTOOL, struct.pack("16sP16x", name.encode(), ctypes.addressof(buffer)))
            return buffer.raw

        (count,) = struct.unpack_from(
            "=I", send(struct.pack("=IIQI", _ETHTOOL_GSSET_INFO, 0, 1 << _ETH_SS_FEATURES, 0)), 16
        )
        room = struct.pack("=III", _ETHTOOL_GSTRINGS, _ETH_SS_FEATURES, count)
        strings = send(room + bytes(count * _ETH_GSTRING_BYTES))[len(room) :]
        names = [
            strings[at : at + _ETH_GSTRING_BYTES].rstrip(b"\0")
            for at in range(0, len(strings), _ETH_GSTRING_BYTES)
        ]
        if _FEATURE not in names:
            return False  # A kernel that does not know it cuts up everything, or refuses.
        bit, words = names.index(_FEATURE), (count + 31) // 32
        features = send(struct.pack("=II", _ETHTOOL_GFEATURES, words) + bytes(16 * words))
        # For each 32 features: available, requested, active, never changed.
        (active,) = struct.unpack_from("=I", features, 8 + 16 * (bit // 32) + 8)
        return bool(active >> bit % 32 & 1)


def _limit_of(index: int) -> int:
    """Return an interface's own limit on the segments of a message."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as asked:
        asked.settimeout(_TIMEOUT_S)
        body = _IFINFO.pack(socket.AF_UNSPEC, 0, index, 0, 0)
        asked.send(_NLMSG.pack(_NLMSG.size + len(body), _RTM_GETLINK, _NLM_F_REQUEST, 1, 0) + body)
        answer = asked.recv(1 << 16)
    total, kind, *_ = _NLMSG.unpack_from(answer)
    at = _NLMSG.size + _IFINFO.size
    while kind == _RTM_NEWLINK and at + 4 <= total:
        length, attribute = struct.unpack_from("=HH", answer, at)
        if attribute == _IFLA_GSO_MAX_SEGS:
            (limit,) = struct.unpack_from("=I", answer, at + 4)
            return int(limit)
        at += max(4, (length + 3) & ~3)
    return 1
