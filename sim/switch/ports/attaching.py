"""Workers of this machine that attach to a switch by shared memory: who may, and when they have gone."""

import errno
import logging
import mmap
import os
import select
import selectors
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress

import numpy as np

from netsum_common.lent_program import READY, WITHDRAWN, LendingRequest, lending_requested
from netsum_common.rings import (
    Grant,
    answer,
    is_trusted,
    make_grant,
    name_of,
    peer_of,
    receive_message,
    shape_requested,
)
from sim.switch.ports.lending import Lender, Loan
from sim.switch.ports.shared_memory import ATTACHED, BROKEN, FREE, LEFT, RINGS, SHARE

MOST_RINGS = 128  # How many workers can be attached at a time; those beyond use the ports themselves.
SPIN_NS = 20_000
"""How long an idle switch looks at the rings before it sleeps; it yields its processor between looks."""
_STOP_TIMEOUT_S = 5.0
_TIDY_TIMEOUT_S = 2.0
_PAUSE_S = 0.1

_LOG = logging.getLogger(__name__)


class Attachments:
    """Sockets at which workers ask for rings, and the rings of those who did; a thread of its own serves them.

    `addresses`: the address and UDP port of each switch port, beside which its workers ask. `positions`: the position of
    each switch port among the driver's. `lender`: lends the switch's program. Raises OSError if another process has such
    a socket.
    """

    def __init__(
        self,
        addresses: Mapping[int, tuple[str, int]],
        positions: Mapping[int, int],
        poller: select.epoll,
        lender: Lender,
    ) -> None:
        # rings, used, spin_ns: as in `shared_memory.MemoryInbox`. A record is written before its state says that it is
        # attached, and again when `tidy` has taken it back.
        self.rings = np.zeros(MOST_RINGS, RINGS)
        self.used = np.zeros(1, np.int64)
        self.spin_ns = np.zeros(2, np.int64)
        self._positions = positions
        self._poller = poller
        self._lender = lender
        self._borrowers: dict[socket.socket, tuple[Loan, int]] = {}
        self._held: dict[int, tuple[Grant, mmap.mmap]] = {}
        self._freed = threading.Event()
        self._connections: dict[socket.socket, int | None] = {}
        self._ports: dict[socket.socket, int] = {}
        self._selector = selectors.DefaultSelector()
        with ExitStack() as opened:
            for port, address in addresses.items():
                listener = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                listener.setblocking(False)
                _bind(listener, name_of(address))
                listener.listen(MOST_RINGS)
                self._ports[listener] = port
                self._selector.register(listener, selectors.EVENT_READ)
            opened.pop_all()
        self._stop, stopped = socket.socketpair()
        self._selector.register(stopped, selectors.EVENT_READ)
        self._stopped = stopped
        self._thread = threading.Thread(target=self._run, name="attachments", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Refuse further workers, and notify those that are attached; no thread may move packets."""
        self._stop.close()
        self._thread.join(_STOP_TIMEOUT_S)
        for opened in [*self._connections, *self._ports, self._stopped]:
            opened.close()
        self._selector.close()
        self._lender.close()
        for at in list(self._held):
            self._free(at)

    def tidy(self) -> None:
        """Take back the memory of workers that have left; while no packets are moved."""
        for at in list(self._held):
            state = self.rings[at]["state"]
            if state == LEFT or (state == BROKEN and not self._drop(at)):
                self._free(at)

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                opened = key.fileobj
                if opened is self._stopped:
                    return
                assert isinstance(opened, socket.socket)
                try:
                    if opened in self._ports:
                        self._accept(opened)
                    else:
                        self._hear(opened)
                except OSError as fault:
                    _LOG.warning("a worker could not attach: %s", fault)
                    time.sleep(_PAUSE_S)  # A worker that cannot be accepted is there at once again.

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        connection.setblocking(False)
        if not is_trusted(connection) or len(self._connections) >= 2 * MOST_RINGS:
            connection.close()
            return
        self._connections[connection] = None
        self._selector.register(connection, selectors.EVENT_READ, self._ports[listener])

    def _hear(self, connection: socket.socket) -> None:
        """Take a worker's request; anything else that comes is the end of it."""
        port = self._selector.get_key(connection).data
        try:
            message, descriptors = receive_message(connection)
        except BlockingIOError:
            return
        except OSError:
            message, descriptors = b"", []
        try:
            if connection in self._borrowers and self._decides(connection, message):
                return
            fresh = self._connections[connection] is None and connection not in self._borrowers
            if fresh and message and len(descriptors) == 1:
                self._attach(connection, port, message, descriptors[0])
                return
        finally:
            for each in descriptors:
                os.close(each)
        self._leave(connection)

    def _decides(self, connection: socket.socket, message: bytes) -> bool:
        """Take a borrower's part in the decision; returns whether the message is that."""
        loan, member = self._borrowers[connection]
        if message == READY:
            self._lender.ready(loan, member)
        elif message.startswith(WITHDRAWN):
            self._lender.refuse(loan, message.removeprefix(WITHDRAWN).decode(errors="replace"))
        else:
            return False
        return True

    def _attach(self, connection: socket.socket, port: int, message: bytes, descriptor: int) -> None:
        shape, borrowing = shape_requested(message), lending_requested(message)
        try:
            # The address to which the kernel says a socket is bound is the worker's: no other socket can have it.
            with socket.socket(fileno=os.dup(descriptor)) as theirs:
                host, udp_port = theirs.getsockname()
                bound = theirs.family == socket.AF_INET and theirs.type == socket.SOCK_DGRAM and udp_port != 0
                ip = int.from_bytes(socket.inet_aton(host), "big")
        except (OSError, ValueError, TypeError):
            bound = False
        if borrowing is not None and bound:
            self._lend(connection, borrowing, port, ip, udp_port)
            return
        free = self._free_rings()
        if shape is None or not bound or free is None:
            reason = (
                "it has no rings left" if shape is not None and bound else "the request is none that it knows"
            )
            answer(connection, None, reason)
            self._leave(connection)
            return
        grant = make_grant(shape)
        memory = mmap.mmap(grant.memory, shape.total)
        base = np.frombuffer(memory, np.uint8).ctypes.data
        ring = self.rings[free]
        ring["base"], ring["rows"], ring["row_bytes"] = base, *shape
        ring["up_lengths"], ring["up_rows"] = base + shape.up_lengths, base + shape.up_rows
        ring["down_lengths"], ring["down_rows"] = base + shape.down_lengths, base + shape.down_rows
        ring["up_tail"] = ring["down_head"] = ring["down_tail"] = ring["unpublished"] = 0
        ring["bell"], ring["port"], ring["position"] = grant.worker_bell, port, self._positions[port]
        ring["ip"], ring["udp_port"] = ip, udp_port
        self._held[free] = grant, memory
        self._connections[connection] = free
        # Every write to an eventfd wakes an edge-triggered poll; so it need not be read.
        self._poller.register(grant.switch_bell, select.EPOLLIN | select.EPOLLET)
        self.used[0] = max(self.used[0], free + 1)
        ring["state"] = ATTACHED
        self._set_spinning()
        os.eventfd_write(grant.switch_bell, 1)  # A switch that sleeps has not said so in this memory.
        try:
            answer(connection, grant)
        except OSError:
            self._leave(connection)

    def _lend(
        self, connection: socket.socket, request: LendingRequest, port: int, ip: int, udp_port: int
    ) -> None:
        loan = self._lender.enter(request, connection, port, ip, udp_port)
        if isinstance(loan, str):
            answer(connection, None, loan)
            self._leave(connection)
            return
        self._borrowers[connection] = loan, request.member
        try:
            answer(connection, [loan.descriptor, *loan.bells])
        except OSError:
            self._leave(connection)

    def _free_rings(self) -> int | None:
        """Return rings that are free, if need be once `tidy` has taken back those of workers that have left."""
        until = time.monotonic() + _TIDY_TIMEOUT_S
        while True:
            self._freed.clear()
            states = self.rings["state"]
            if (states == FREE).any():
                return int(np.argmax(states == FREE))
            if not (states == LEFT).any() or not self._freed.wait(max(0.0, until - time.monotonic())):
                return None

    def _leave(self, connection: socket.socket) -> None:
        """End a connection; its rings are not used from now on."""
        at = self._connections.pop(connection)
        self._selector.unregister(connection)
        connection.close()
        if connection in self._borrowers:
            self._lender.leave(*self._borrowers.pop(connection))
        if at is not None:
            self.rings[at]["state"] = LEFT
            self._set_spinning()

    def _drop(self, at: int) -> bool:
        """End the connection of rings that failed, which the thread then closes; returns whether there is one."""
        found = [connection for connection, its in list(self._connections.items()) if its == at]
        for connection in found:
            _LOG.warning("the worker at port %d wrote impossible indices: detached", self.rings[at]["port"])
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        return bool(found)

    def _free(self, at: int) -> None:
        grant, memory = self._held.pop(at)
        with suppress(OSError):
            self._poller.unregister(grant.switch_bell)
        memory.close()
        grant.close()
        self.rings[at]["state"] = FREE
        self._freed.set()

    def _set_spinning(self) -> None:
        """Let the switch spin while workers are attached, after larger batches if there is not a processor for each."""
        attached = sum(at is not None for at in self._connections.values())
        crowded = attached >= len(os.sched_getaffinity(0)) > 1
        self.spin_ns[:] = SPIN_NS if attached else 0, SHARE if crowded else 0


def _bind(listener: socket.socket, name: str) -> None:
    """Give a socket its name, which every user of the machine can have; OSError says who has it."""
    try:
        listener.bind(name)
    except OSError as fault:
        if fault.errno != errno.EADDRINUSE:
            raise
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
            other.settimeout(_TIDY_TIMEOUT_S)
            try:
                other.connect(name)
                process, user = peer_of(other)
                holder = f"process {process} of user {user}"
            except OSError:
                holder = "another process"
        raise OSError(
            fault.errno,
            f"{holder} holds the abstract Unix socket {name[1:]}; end it, choose another address or UDP port, or serve without "
            "shared memory",
        ) from None
