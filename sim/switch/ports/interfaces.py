"""Switch ports that are network interfaces (AF_PACKET): for network namespaces, Mininet and real networks. Linux, root.

Every frame that comes in by the interface reaches the program, whomever it is for, as it was on the wire: a VLAN tag that
the kernel took out is put back, and a checksum that a sender left to its hardware is completed. A frame that an offload has
made of several packets was on no wire, so it is counted and dropped: turn segmentation and receive offloads off at both ends
of a cable. An interface that goes down or vanishes is a port without a cable; when it is back, also as a new one of
the same name, the port works again.
"""

import contextlib
import errno
import fcntl
import logging
import mmap
import select
import socket
import struct
from collections.abc import Sequence

import numpy as np

from netsum_common.sockets import IO_VECTOR, MESSAGE, places_of
from sim.switch.ports.abi import EVENT_WORDS, LINK_ADDRESS, LINK_ADDRESS_BYTES
from sim.switch.ports.driver import PortDriver, PortUnavailableError
from sim.switch.ports.rings import RingInbox, RingOutbox

RING_BYTES = 8 << 20  # Room for frames of one port that the switch has not taken yet.

SEND_BUFFER_BYTES = 64 << 20
"""All ports share it; what bounds a port's queue is meant to be its interface's queueing discipline."""

_BLOCK_BYTES = 1 << 18
_OUT_BATCH = 1024
_HEADROOM_BYTES = 128
"""Headers of a frame in a ring: the kernel's `tpacket2_hdr`, `sockaddr_ll` and `virtio_net_hdr`."""
_FRAME_OVERHEAD_BYTES = 22  # Ethernet header and two VLAN tags.
_SMALLEST_MTU = 1500

# linux/if_packet.h, linux/if_ether.h, linux/sockios.h
_SOL_PACKET = 263
_ADD_MEMBERSHIP, _RX_RING, _STATISTICS, _VERSION, _VNET_HDR, _IGNORE_OUTGOING = 1, 5, 6, 10, 15, 23
_TPACKET_V2, _MR_PROMISC = 1, 1
_ETH_P_ALL = 0x0003
_SO_SNDBUFFORCE = 32
_SIOCGIFFLAGS, _SIOCGIFMTU = 0x8913, 0x8921
_IFF_UP, _IFF_RUNNING = 0x1, 0x40

_LOG = logging.getLogger(__name__)


class InterfacePorts(PortDriver):
    """A set of switch ports on network interfaces.

    `batch`, `drop_ppm`, `seed`: as for `PortDriver`. `spin_us`: how many microseconds to look for packets before sleeping:
    less delay for a processor that is never idle. Raises PortUnavailableError if there is no such interface, or this process
    may not open it. Raises ValueError if an interface is given twice; and as for `PortDriver`.
    """

    def __init__(
        self,
        ports: Sequence[tuple[int, str]],
        *,
        batch: int = 128,
        drop_ppm: int = 0,
        seed: int = 0,
        spin_us: int = 0,
    ) -> None:
        interfaces = [interface for _, interface in ports]
        if len(set(interfaces)) != len(interfaces):
            raise ValueError(f"expected a different interface for each port, not {interfaces}")
        super().__init__([number for number, _ in ports], batch, drop_ppm, seed)
        self._interfaces = interfaces
        try:
            self._open()
        except BaseException:
            self.close()
            raise
        count = len(ports)
        self._inbox = RingInbox(
            poller=self._poller.fileno(),
            waker=self._waker,
            events=np.zeros((count + 1, EVENT_WORDS), np.uint32),
            rings=np.array([np.frombuffer(ring, np.uint8).ctypes.data for ring in self._rings], np.uint64),
            heads=np.zeros(count, np.int64),
            places=self._places,
            first=np.zeros(1, np.int64),
            numbers=self._numbers,
            spin_ns=1000 * spin_us,
            record=self.record,
        )
        messages, vectors = np.zeros(_OUT_BATCH, MESSAGE), np.zeros(_OUT_BATCH, IO_VECTOR)
        messages["name_length"] = LINK_ADDRESS_BYTES
        messages["vectors"] = places_of(vectors)
        messages["vector_count"] = 1
        self._outbox = RingOutbox(
            descriptor=self._sender.fileno(),
            positions=self._position_of_port,
            addresses=self._addresses,
            messages=messages,
            vectors=vectors,
            owners=np.zeros(_OUT_BATCH, np.int32),
            record=self.record,
        )

    def _open(self) -> None:
        count = len(self._interfaces)
        self._addresses = np.zeros(count, LINK_ADDRESS)
        self._addresses["family"] = socket.AF_PACKET
        self._addresses["protocol"] = socket.htons(_ETH_P_ALL)
        self._overruns = [0] * count
        # Bound to nothing, it receives nothing.
        self._sender = self._raw_socket()
        with contextlib.suppress(PermissionError):
            self._sender.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, SEND_BUFFER_BYTES)
        mtus = [self._mtu(number, name) for number, name in zip(self._numbers, self._interfaces, strict=True)]
        longest = max([_SMALLEST_MTU, *mtus]) + _FRAME_OVERHEAD_BYTES
        # Odd numbers of cache lines keep rows in different sets of the cache.
        rows = np.zeros((len(self.record.lengths), 64 * ((longest + 63) // 64 | 1)), np.uint8)
        self.record = self.record._replace(frames=rows)
        place_bytes = 64 * ((longest + _HEADROOM_BYTES + 63) // 64 | 1)
        a_block = _BLOCK_BYTES // place_bytes
        blocks = RING_BYTES // _BLOCK_BYTES
        at = np.arange(blocks * a_block, dtype=np.uint32)
        self._places = at // a_block * _BLOCK_BYTES + at % a_block * place_bytes
        self._sockets, self._rings = [], []
        for position in range(count):
            opened = self._raw_socket()
            self._sockets.append(opened)
            self._rings.append(
                _map_ring(opened, struct.pack("=4I", _BLOCK_BYTES, blocks, place_bytes, len(at)))
            )
            self._poller.register(opened, select.EPOLLIN)
            try:
                self._bind(position)
            except OSError as fault:
                raise PortUnavailableError(
                    f"switch port {self._numbers[position]} could not open interface {self._interfaces[position]}: "
                    f"{fault.strerror}"
                ) from None

    def _raw_socket(self) -> socket.socket:
        try:
            opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        except PermissionError:
            raise PortUnavailableError(
                "ports on network interfaces need root (or the capability CAP_NET_RAW): "
                "run the switch with sudo, or use UDP ports"
            ) from None
        return self._resources.enter_context(opened)

    def _mtu(self, number: int, name: str) -> int:
        try:
            answer = fcntl.ioctl(self._sender, _SIOCGIFMTU, _interface_request(name))
        except OSError as fault:
            raise PortUnavailableError(
                f"switch port {number} could not open interface {name}: {fault.strerror}; `ip link` lists those there are"
            ) from None
        mtu: int = struct.unpack_from("=i", answer, 16)[0]
        return mtu

    def _bind(self, position: int) -> None:
        """Attach a port's sockets to its interface as it is now."""
        name, opened = self._interfaces[position], self._sockets[position]
        opened.bind((name, _ETH_P_ALL))
        index = socket.if_nametoindex(name)
        opened.setsockopt(_SOL_PACKET, _ADD_MEMBERSHIP, struct.pack("=iHH8x", index, _MR_PROMISC, 0))
        self._addresses[position]["index"] = index

    @property
    def names(self) -> dict[int, str]:
        """The interface of each switch port."""
        return dict(zip(map(int, self._numbers), self._interfaces, strict=True))

    def is_up(self, number: int) -> bool:
        """Whether a switch port's interface is there, is up and has a carrier."""
        return interface_is_up(self._interfaces[int(self._position_of_port[number])])

    def mend(self) -> None:
        """Notice interfaces that have gone, and attach to those that are back under another number."""
        for position, name in enumerate(self._interfaces):
            known = int(self._addresses[position]["index"])
            try:
                index = socket.if_nametoindex(name)
            except OSError:
                index = 0
            if index == known:
                continue
            port = f"switch port {self._numbers[position]}: interface {name}"
            self._addresses[position]["index"] = 0
            if index == 0:
                _LOG.warning("%s is gone", port)
                continue
            try:
                self._bind(position)
            except OSError as fault:
                # The interface may have disappeared again; the next check finds out.
                if fault.errno != errno.ENODEV:
                    _LOG.warning("%s is back but cannot be opened: %s", port, fault.strerror)
                continue
            _LOG.warning("%s is back", port)

    def overruns(self) -> list[int]:
        """How many frames the kernel dropped of each port because its ring was full."""
        for position, opened in enumerate(self._sockets):
            # Reading resets the kernel's count.
            _, dropped = struct.unpack("=II", opened.getsockopt(_SOL_PACKET, _STATISTICS, 8))
            self._overruns[position] += dropped
        return list(self._overruns)


def _map_ring(opened: socket.socket, request: bytes) -> mmap.mmap:
    """Make the ring of a socket and map it.

    The mapping exists as long as arrays on it do, and is not closed.
    """
    opened.setsockopt(_SOL_PACKET, _VERSION, _TPACKET_V2)
    opened.setsockopt(_SOL_PACKET, _VNET_HDR, 1)
    opened.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
    opened.setsockopt(_SOL_PACKET, _RX_RING, request)
    block_bytes, blocks, _, _ = struct.unpack("=4I", request)
    return mmap.mmap(opened.fileno(), block_bytes * blocks)


def interface_is_up(name: str) -> bool:
    """Whether an interface is there, is up and has a carrier."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            answer = fcntl.ioctl(asking, _SIOCGIFFLAGS, _interface_request(name))
        except OSError:
            return False
    flags: int = struct.unpack_from("=H", answer, 16)[0]
    return bool(flags & _IFF_UP and flags & _IFF_RUNNING)


def _interface_request(name: str) -> bytes:
    """Return a `struct ifreq`."""
    return struct.pack("=16s24x", name.encode()[:15])
