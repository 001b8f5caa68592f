"""Switch ports that are UDP sockets on loopback: they need no root, and a host is any process with a socket.

Port i of the switch is a socket on 127.0.0.1. A datagram from (address, port) reaches the program as the
frame of a network: MAC addresses 02:00 and the four bytes of the IPv4 address, destination the
switch's address, and destination UDP port the one a switch would be asked at (`shown_port`), not the
socket's own. A frame that leaves by port i has its datagram sent from that socket to the frame's IPv4
destination and UDP port; a frame that carries none (ARP, ICMP, fragments) cannot be sent and is counted.
"""

import errno
import select
import socket
import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from netsum_common.sockets import (
    CONTROL,
    IO_VECTOR,
    MESSAGE,
    SEGMENT_CONTROL_BYTES,
    SOL_UDP,
    UDP_GRO,
    UDP_SEGMENT,
    enlarge,
    places_of,
)
from netsum_common.switch_options import UDP_PORT
from sim.switch.ports.abi import ADDRESS, ADDRESS_BYTES, EVENT_WORDS
from sim.switch.ports.arrivals import DatagramInbox
from sim.switch.ports.departures import DatagramOutbox
from sim.switch.ports.driver import PortDriver, PortUnavailableError

DEFAULT_CAPACITY_BYTES = 67 * 64
"""Room for frames with 1,024 lanes, which loopback carries; an odd number of cache lines keeps rows in different sets."""

_OUT_BATCH = 1024
_LONGEST_RUN = 64
_MESSAGE_BYTES = 1 << 16
# Odd in cache lines, so that the beginnings of all messages do not fall into one set of the cache.
_ARRIVAL_BYTES = _MESSAGE_BYTES + 33 * 64

_SO_MEMINFO = 55
_MEMINFO_DROPS = 8


class UdpPorts(PortDriver):
    """A set of switch ports on loopback UDP sockets.

    `ports`: (switch port, UDP port) of each socket; UDP port 0 lets the system choose. `host`: IPv4 address of all sockets.
    `shown_port`: destination UDP port that programs see. `capacity_bytes`: longest frame; longer datagrams are counted and
    dropped. `batch`, `drop_ppm`, `seed`: as for `PortDriver`. Raises PortUnavailableError if a UDP port is in use or may not
    be opened. Raises ValueError: as for `PortDriver`.
    """

    def __init__(
        self,
        ports: Sequence[tuple[int, int]],
        *,
        host: str = "127.0.0.1",
        shown_port: int = UDP_PORT,
        batch: int = 256,
        capacity_bytes: int = DEFAULT_CAPACITY_BYTES,
        drop_ppm: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__([number for number, _ in ports], batch, drop_ppm, seed)
        try:
            self._open(ports, host)
        except BaseException:
            self.close()
            raise
        count = len(ports)
        descriptors = [each.fileno() for each in self._sockets]
        positions = np.full(max(descriptors, default=0) + 1, -1, np.int32)
        positions[descriptors] = np.arange(count)
        self.record = self.record._replace(frames=np.zeros((batch, capacity_bytes), np.uint8))
        arriving, leaving = _Messages(batch), _Messages(_OUT_BATCH)
        arrivals = np.empty((batch, _ARRIVAL_BYTES), np.uint8)
        arriving.point_at(arrivals)
        self._memory = (arriving, leaving)
        self._inbox = DatagramInbox(
            poller=self._poller.fileno(),
            waker=self._waker,
            events=np.zeros((count + 1, EVENT_WORDS), np.uint32),
            positions=positions,
            numbers=self._numbers,
            own_ip=int.from_bytes(socket.inet_aton(host), "big"),
            own_port=shown_port,
            messages=arriving.messages,
            controls=arriving.controls,
            senders=arriving.addresses,
            arrivals=arrivals,
            owners=np.zeros(batch, np.int32),
            cursor=np.zeros(5, np.int64),
            record=self.record,
        )
        self._outbox = DatagramOutbox(
            sockets=self._position_of_port,
            descriptors=np.array(descriptors, np.int32),
            messages=leaving.messages,
            controls=leaving.controls,
            vectors=leaving.vectors,
            receivers=leaving.addresses,
            places=np.zeros((_OUT_BATCH, 2), np.int64),
            targets=np.zeros(_OUT_BATCH, np.int64),
            starts=np.zeros(count + 1, np.int64),
            longest_run=self._longest_run,
            record=self.record,
        )

    def _open(self, ports: Sequence[tuple[int, int]], host: str) -> None:
        self._sockets: list[socket.socket] = []
        self._longest_run = _LONGEST_RUN
        for number, udp_port in ports:
            opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            self._sockets.append(self._resources.enter_context(opened))
            try:
                opened.bind((host, udp_port))
            except OSError as fault:
                raise _unavailable(number, host, udp_port, fault) from None
            enlarge(opened, socket.SO_RCVBUF)
            self._longest_run = min(self._longest_run, _offload(opened))
            self._poller.register(opened, select.EPOLLIN)

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        """The (address, UDP port) of each switch port."""
        return {int(n): each.getsockname() for n, each in zip(self._numbers, self._sockets, strict=True)}

    @property
    def names(self) -> dict[int, str]:
        """The address of each switch port, HOST:PORT."""
        return {number: f"{host}:{udp_port}" for number, (host, udp_port) in self.addresses.items()}

    def is_up(self, number: int) -> bool:
        """Whether packets can pass a switch port: always."""
        del number
        return True

    def mend(self) -> None:
        """Do nothing: sockets on loopback stay."""

    def overruns(self) -> list[int]:
        """How many datagrams the system dropped of each port because its socket's buffer was full."""
        return [_overrun(each) for each in self._sockets]


class _Messages:
    """Room for a batch of `recvmmsg` or `sendmmsg`: one vector, one control message and one address a message."""

    def __init__(self, count: int) -> None:
        self.messages = np.zeros(count, MESSAGE)
        self.controls = np.zeros(count, CONTROL)
        self.vectors = np.zeros(count, IO_VECTOR)
        self.addresses = np.zeros(count, ADDRESS)
        self.controls["length"] = SEGMENT_CONTROL_BYTES
        self.controls["level"] = SOL_UDP
        self.controls["type"] = UDP_SEGMENT
        self.addresses["family"] = socket.AF_INET
        self.messages["name"] = places_of(self.addresses)
        self.messages["name_length"] = ADDRESS_BYTES
        self.messages["vectors"] = places_of(self.vectors)
        self.messages["vector_count"] = 1
        self.messages["control"] = places_of(self.controls)

    def point_at(self, rows: npt.NDArray[np.uint8]) -> None:
        """Let message i be received into row i."""
        self.vectors["base"] = places_of(rows)
        self.vectors["length"] = _MESSAGE_BYTES


def _offload(opened: socket.socket) -> int:
    """Have runs of datagrams received as one message; return how many datagrams may be sent as one.

    Kernels before 5.0 do neither, and that is no more than slower.
    """
    try:
        opened.setsockopt(SOL_UDP, UDP_GRO, 1)
        opened.getsockopt(SOL_UDP, UDP_SEGMENT)
    except OSError:
        return 1
    return _LONGEST_RUN


def _overrun(opened: socket.socket) -> int:
    """How many datagrams the system dropped because the socket's buffer was full."""
    memory = opened.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 4 * (_MEMINFO_DROPS + 1))
    return int(struct.unpack_from("=I", memory, 4 * _MEMINFO_DROPS)[0])


def _unavailable(number: int, host: str, udp_port: int, fault: OSError) -> PortUnavailableError:
    where = f"switch port {number} could not open UDP {host}:{udp_port}"
    if fault.errno == errno.EADDRINUSE:
        return PortUnavailableError(
            f"{where}: it is in use, perhaps by another switch; stop that one or choose other UDP ports"
        )
    return PortUnavailableError(f"{where}: {fault.strerror}; choose another address or UDP port")
