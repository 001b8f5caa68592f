"""A worker core's UDP socket."""

import ipaddress
import logging
import os
import socket
from typing import Final

import numpy as np

from host_agent.environment import CONGESTION_WINDOW, is_on
from host_agent.errors import MisuseError
from host_agent.protocol.core import WorkerCore
from host_agent.transport.link import Link
from host_agent.transport.messages import LARGEST_MESSAGE_BYTES, LINK, UdpSocket, make_inbox, make_outbox
from host_agent.transport.segmentation import MOST_SEGMENTS, segments_towards
from host_agent.transport.system_calls import POLLFD, POLLIN
from host_agent.wire.header import ECT
from host_agent.wire.lengths import packet_bytes
from netsum_common.sockets import SOL_UDP, UDP_GRO, enlarge

BURST_BYTES: Final = 12_000
"""The most bytes of a message of several datagrams on a network: a link of 100 Mbit/s carries it in a millisecond."""
_KERNEL_OVERHEAD_BYTES: Final = 1280  # Rough cost of a datagram in a socket buffer beside its bytes.
_IP_MTU_DISCOVER: Final = 10
_IP_PMTUDISC_DO: Final = 2
_IP_MTU: Final = 14

Bind = tuple[str, int] | socket.socket

_log = logging.getLogger(__name__)


class UdpLink(Link):
    """A connected UDP socket and the buffers between it and a worker core.

    `bind`: local IPv4 address and port, of which port 0 lets the system choose; or a socket that is bound, which is closed with
    the link. Raises MisuseError if the address cannot be bound or the switch's cannot be reached at all.
    """

    def __init__(self, core: WorkerCore, bind: Bind) -> None:
        if isinstance(bind, socket.socket):
            self._socket, address = bind, (str(bind.getsockname()[0]), int(bind.getsockname()[1]))
        else:
            self._socket, address = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), bind
        super().__init__(core)
        switch = core.admission.switch
        try:
            self._socket.setblocking(False)
            self._enlarge_buffers()
            # The switch drops fragments, so a packet that is too long for the path is refused here.
            self._socket.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
            if not isinstance(bind, socket.socket):
                self._socket.bind(bind)
            # Connected, the kernel drops what others send and reports when nothing listens on the switch's port.
            self._socket.connect(switch)
            self._check_mtu(core)
            self._drain()
        except OSError as error:
            self.close()
            raise MisuseError(
                f"cannot open a UDP socket from {address} to the switch at {switch}: {error}"
            ) from error
        self.link = np.zeros(1, LINK)
        self.link["fd"] = self._socket.fileno()
        merged = self._allow_segments()
        self._give_window()
        poll_fds = np.zeros(2, POLLFD)
        poll_fds["fd"] = [self._socket.fileno(), self._wake_fd]
        poll_fds["events"] = POLLIN
        self.ends = UdpSocket(
            self._wake,
            self.link,
            make_inbox(core.row_bytes, merged),
            make_outbox(core.row_bytes),
            poll_fds,
            np.zeros(2, np.int64),
        )

    @property
    def address(self) -> tuple[str, int]:
        """Local address and port."""
        host, port = self._socket.getsockname()
        return host, port

    @property
    def kind(self) -> str:
        """The way that datagrams take; see `Link.kind`."""
        return "udp"

    def enter(self, core: WorkerCore) -> None:
        """Carry the datagrams of another core from now on; see `Link.enter`."""
        self._core = core
        self._enlarge_buffers()
        self._give_window()
        try:
            self._socket.connect(core.admission.switch)
            self._check_mtu(core)
        except OSError as error:
            raise MisuseError(f"cannot send to the switch at {core.admission.switch}: {error}") from error
        # Waiting datagrams belong to the last epoch: the switch would not admit them.
        self.link["messages_sent"] = self.link["messages"]

    def _check_mtu(self, core: WorkerCore) -> None:
        """Raise OSError if the longest packets of a core are longer than the route to its switch allows."""
        lanes = core.admission.lanes
        mtu = self._socket.getsockopt(socket.IPPROTO_IP, _IP_MTU)
        needed = packet_bytes(lanes)
        if needed > mtu:
            raise OSError(
                f"its packets with {lanes} lanes have {needed:,} bytes, and the MTU there is {mtu:,}: raise it on this host "
                "and on the links behind it, or give the switch a program with fewer lanes"
            )

    def trouble(self) -> str:
        """Return the error that the system reported about the path to the switch; empty if none."""
        host, port = self._core.admission.switch
        found = []
        if self.link["refused"][0]:
            found.append(f"nothing listens on UDP port {port} of {host} (connection refused)")
        if self.link["send_errors"][0]:
            reason = os.strerror(int(self.link["send_errno"][0]))
            found.append(f"{self.link['send_errors'][0]} packets could not be sent ({reason})")
        waiting = int(self.link["messages"][0] - self.link["messages_sent"][0])
        if waiting:
            found.append(
                f"the send buffer is full and {waiting} messages wait: the network interface sends nothing"
            )
        return "; ".join(found)

    def clear_trouble(self) -> None:
        """Start `trouble` anew."""
        self.link["refused"] = 0
        self.link["send_errors"] = 0

    def close(self) -> None:
        """Close the socket; `exchange` must not be running."""
        self._socket.close()
        super().close()

    def _allow_segments(self) -> bool:
        """Let messages hold several datagrams if the path accepts them; returns whether they also arrive that way."""
        host, _ = self.address
        if not ipaddress.ip_address(host).is_loopback:
            self.link["segments"] = segments_towards(host)
            self.link["message_bytes"] = BURST_BYTES
            # On loopback datagrams come merged, and processes wait for each other: paces gain nothing there.
            self.link["paces"] = 1
            return False
        self.link["message_bytes"] = LARGEST_MESSAGE_BYTES
        try:
            self._socket.setsockopt(SOL_UDP, UDP_GRO, 1)
        except OSError:
            self.link["segments"] = 1
            return False
        self.link["segments"] = MOST_SEGMENTS
        return True

    def _give_window(self) -> None:
        """Give the core a congestion window on a network; loopback and shared memory have no queues that others need."""
        if is_on(CONGESTION_WINDOW) and self.link["paces"][0] != 0:
            self._core.state["congestion"] = 1
            self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ECT)
            self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)

    def _drain(self) -> None:
        """Discard what came before the socket was connected, from anyone, and errors about another switch."""
        while True:
            try:
                self._socket.recv(1)
            except BlockingIOError:
                return
            except OSError as error:
                _log.debug("before the socket was connected: %s", error)

    def _enlarge_buffers(self) -> None:
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            enlarge(self._socket, option)
        granted = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        needed = self._core.admission.slot_count * (self._core.row_bytes + _KERNEL_OVERHEAD_BYTES)
        if granted < needed:
            _log.warning(
                "the receive buffer holds %d bytes, %d slots in flight may need %d: expect retransmissions, or raise "
                "net.core.rmem_max",
                granted,
                self._core.admission.slot_count,
                needed,
            )
