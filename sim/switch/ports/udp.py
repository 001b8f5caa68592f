"""Switch ports that are UDP sockets on loopback: they need no root, and a host is any process with a socket.

Port i of the switch is a socket on 127.0.0.1. A datagram from (address, port) reaches the program as the
frame it would be on a network: MAC addresses 02:00 and the four bytes of the IPv4 address, destination the
switch's address, and destination UDP port the one a switch would be asked at (`shown_port`), whatever the
socket's own is. A frame that leaves by port i has its datagram sent from that socket to the frame's IPv4
destination and UDP port; a frame that carries none (ARP, ICMP, fragments) cannot be sent and is counted.
"""

import contextlib
import errno
import os
import select
import socket
import struct
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from sim.switch.ports.abi import (
    ADDRESS,
    ADDRESS_BYTES,
    CONTROL,
    EVENT_WORDS,
    IO_VECTOR,
    MESSAGE,
    SEGMENT_CONTROL_BYTES,
    SOL_UDP,
    UDP_GRO,
    UDP_SEGMENT,
)
from sim.switch.ports.arrivals import receive
from sim.switch.ports.departures import transmit
from sim.switch.ports.frames import STATISTICS

DEFAULT_BASE_PORT = 28275
"""UDP port of switch port 0, and the one shown to the program: 0x6e73, "ns"."""

DEFAULT_CAPACITY_BYTES = 33 * 64
"""Room for the frames of an Ethernet with 1,500 bytes; an odd number of cache lines keeps rows in different sets."""

RECEIVE_BUFFER_BYTES = 8 << 20
PORT_NUMBERS = 512
"""v1model's port numbers have 9 bits."""

_OUT_BATCH = 1024
_LONGEST_RUN = 64
_MESSAGE_BYTES = 1 << 16
# Odd in cache lines, so that the beginnings of all messages do not fall into one set of the cache.
_ARRIVAL_BYTES = _MESSAGE_BYTES + 33 * 64

_SO_RCVBUFFORCE = 33
_SO_MEMINFO = 55
_MEMINFO_DROPS = 8


class PortUnavailableError(OSError):
    """A UDP socket of the switch could not be opened."""


class UdpPorts:
    """A set of switch ports on loopback UDP sockets.

    One thread may call `receive` while another calls `transmit`; each alone is for one thread at a time.

    Parameters
    ----------
    ports
        (switch port, UDP port) of each socket; UDP port 0 lets the system choose.
    host
        IPv4 address of all sockets.
    shown_port
        Destination UDP port that programs see.
    batch
        Most frames a call to `receive` returns.
    capacity_bytes
        Longest frame; longer datagrams are counted and dropped.
    drop_ppm
        How many of a million packets are lost, each way and chosen independently.
    seed
        Which ones.

    Raises
    ------
    PortUnavailableError
        A UDP port is in use or may not be opened.
    ValueError
        A switch port is given twice or is none of v1model's, or `drop_ppm` is not in 0…1,000,000.
    """

    def __init__(
        self,
        ports: Sequence[tuple[int, int]],
        *,
        host: str = "127.0.0.1",
        shown_port: int = DEFAULT_BASE_PORT,
        batch: int = 256,
        capacity_bytes: int = DEFAULT_CAPACITY_BYTES,
        drop_ppm: int = 0,
        seed: int = 0,
    ) -> None:
        numbers = [number for number, _ in ports]
        if len(set(numbers)) != len(numbers) or not all(0 <= number < PORT_NUMBERS for number in numbers):
            raise ValueError(
                f"expected different switch ports between 0 and {PORT_NUMBERS - 1}, not {numbers}"
            )
        if not 0 <= drop_ppm <= 1_000_000:
            raise ValueError(f"expected a loss between 0 and 1,000,000 packets per million, not {drop_ppm}")
        self._resources = contextlib.ExitStack()
        try:
            self._open(ports, host)
        except BaseException:
            self._resources.close()
            raise
        count = len(ports)
        descriptors = [each.fileno() for each in self._sockets]
        self._descriptors = np.array(descriptors, np.int32)
        self._numbers = np.array(numbers, np.uint16)
        self._position_of_descriptor = np.full(max(descriptors, default=0) + 1, -1, np.int32)
        self._position_of_descriptor[descriptors] = np.arange(count)
        self._position_of_port = np.full(1 << 16, -1, np.int32)
        self._position_of_port[numbers] = np.arange(count)
        self._own_ip = int.from_bytes(socket.inet_aton(host), "big")
        self._shown_port = shown_port
        self._drop_ppm = drop_ppm
        # Every direction of every port draws from a stream of its own, so that what one port loses does not
        # depend on how its packets fall among those of the others. xorshift must not start at 0.
        states = np.random.SeedSequence(seed).generate_state(2 * count, np.uint64) | np.uint64(1)
        self._draws_in, self._draws_out = states.reshape(2, count)
        self._counts = np.zeros((count, len(STATISTICS)), np.int64)
        self._events = np.zeros((count + 1, EVENT_WORDS), np.uint32)
        self._in = _Messages(batch)
        self._arrivals = np.empty((batch, _ARRIVAL_BYTES), np.uint8)
        self._in.point_at(self._arrivals)
        self._owners = np.zeros(batch, np.int32)
        self._cursor = np.zeros(4, np.int64)
        self._out = _Messages(_OUT_BATCH)
        self._places = np.zeros((_OUT_BATCH, 2), np.int64)
        self._targets = np.zeros(_OUT_BATCH, np.int64)
        self._starts = np.zeros(count + 1, np.int64)
        self.frames: npt.NDArray[np.uint8] = np.zeros((batch, capacity_bytes), np.uint8)
        self.lengths: npt.NDArray[np.int32] = np.zeros(batch, np.int32)
        self.ports: npt.NDArray[np.uint16] = np.zeros(batch, np.uint16)

    def _open(self, ports: Sequence[tuple[int, int]], host: str) -> None:
        self._sockets: list[socket.socket] = []
        self._longest_run = _LONGEST_RUN
        self._poller = self._resources.enter_context(select.epoll())
        self._waker = os.eventfd(0, os.EFD_NONBLOCK)
        self._resources.callback(os.close, self._waker)
        self._poller.register(self._waker, select.EPOLLIN)
        for number, udp_port in ports:
            opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            self._sockets.append(self._resources.enter_context(opened))
            try:
                opened.bind((host, udp_port))
            except OSError as fault:
                raise _unavailable(number, host, udp_port, fault) from None
            _enlarge(opened)
            self._longest_run = min(self._longest_run, _offload(opened))
            self._poller.register(opened, select.EPOLLIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the sockets; nobody may be in `receive` or `transmit`."""
        self._resources.close()

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        """The (address, UDP port) of each switch port."""
        return {int(n): each.getsockname() for n, each in zip(self._numbers, self._sockets, strict=True)}

    def receive(self, timeout_ms: int) -> int:
        """Wait for datagrams and make frames of them.

        Parameters
        ----------
        timeout_ms
            How long to wait when nothing is there.

        Returns
        -------
        int
            How many frames now begin `frames`, `lengths` and `ports`; they stay until the next call. 0 when
            time ran out or `wake` was called.
        """
        return self._receive(timeout_ms, self._position_of_descriptor)

    def _receive(self, timeout_ms: int, positions: npt.NDArray[np.int32]) -> int:
        return int(
            receive(
                self._poller.fileno(),
                self._events,
                timeout_ms,
                positions,
                self._numbers,
                self._own_ip,
                self._shown_port,
                self._in.messages,
                self._in.controls,
                self._in.addresses,
                self._arrivals,
                self._owners,
                self._cursor,
                self.frames,
                self.lengths,
                self.ports,
                self._draws_in,
                self._drop_ppm,
                self._counts,
            )
        )

    def warm_up(self) -> None:
        """Compile what moves packets, or load it from Numba's cache; datagrams stay where they are."""
        self._receive(0, np.full(1, -1, np.int32))
        self.transmit(self.ports[:0], self.lengths[:0], self.frames[:0])

    def wake(self) -> None:
        """Make the present and all later calls of `receive` return at once; from any thread."""
        os.eventfd_write(self._waker, 1)

    def transmit(
        self, ports: npt.NDArray[np.uint16], lengths: npt.NDArray[np.int32], frames: npt.NDArray[np.uint8]
    ) -> int:
        """Send the datagrams of frames that left the switch.

        Parameters
        ----------
        ports, lengths, frames
            Switch port (n,), length (n,) and bytes (n, capacity) of each frame.

        Returns
        -------
        int
            Frames for ports that have no socket; they are not sent.
        """
        return int(
            transmit(
                ports,
                lengths,
                frames,
                self._position_of_port,
                self._descriptors,
                self._out.messages,
                self._out.controls,
                self._out.vectors,
                self._out.addresses,
                self._places,
                self._targets,
                self._starts,
                self._longest_run,
                self._draws_out,
                self._drop_ppm,
                self._counts,
            )
        )

    def statistics(self) -> dict[int, dict[str, int]]:
        """Count what passed each switch port.

        Returns
        -------
        dict
            By switch port: `received` and `received_bytes` datagrams, of which `dropped_in` were lost on
            purpose; `oversized` ones, longer than a frame can be; `overrun` ones, which the system dropped
            because the switch did not fetch them in time; `sent` and `sent_bytes`; `dropped_out`, lost on
            purpose; `not_udp` frames, which no socket can send; `refused` ones, which the system would not
            send.
        """
        table = {}
        for number, each, row in zip(self._numbers, self._sockets, self._counts, strict=True):
            table[int(number)] = dict(zip(STATISTICS, map(int, row), strict=True)) | {
                "overrun": _overrun(each)
            }
        return table


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
        self.messages["name"] = _places_of(self.addresses)
        self.messages["name_length"] = ADDRESS_BYTES
        self.messages["vectors"] = _places_of(self.vectors)
        self.messages["vector_count"] = 1
        self.messages["control"] = _places_of(self.controls)

    def point_at(self, rows: npt.NDArray[np.uint8]) -> None:
        """Let message i be received into row i."""
        self.vectors["base"] = _places_of(rows)
        self.vectors["length"] = _MESSAGE_BYTES


def _places_of(array: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Where in memory each element along the first axis begins."""
    return np.uint64(array.ctypes.data) + np.arange(len(array), dtype=np.uint64) * np.uint64(array.strides[0])


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


def _enlarge(opened: socket.socket) -> None:
    """Ask for a large receive buffer: beyond the system's limit where that is permitted, else up to it."""
    try:
        opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
    except PermissionError:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)


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
