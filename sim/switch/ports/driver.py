"""Common parts of all kinds of ports: rows for frames, counts, and the way into the compiled loop."""

import os
import select
import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt

from netsum_common.closing import Closing
from netsum_common.errors import NetsumError
from sim.switch.ports.attaching import Attachments
from sim.switch.ports.frames import STATISTICS, PortRecord
from sim.switch.ports.lending import Lender
from sim.switch.ports.loop import Engine, forward, receive_alone, transmit_alone
from sim.switch.ports.shared_memory import MemoryInbox, MemoryOutbox

PORT_NUMBERS = 512  # v1model's port numbers have 9 bits.


class PortUnavailableError(NetsumError, OSError):
    """A port of the switch could not be opened."""


class PortDriver(Closing, ABC):
    """A set of switch ports; a context manager that opens them and closes them at the end.

    One thread may call `receive` and `forward` while another calls `transmit`; each alone is for one thread at a time.

    `batch`: most frames a call to `receive` returns. `drop_ppm`: how many of a million packets are lost, each way and chosen
    independently. Raises ValueError if a switch port is given twice or is none of v1model's, or `drop_ppm` is not in
    0…1,000,000.
    """

    _inbox: Any
    _outbox: Any
    record: PortRecord  # `receive` puts the frames that it found into the rows.

    def __init__(self, numbers: Sequence[int], batch: int, drop_ppm: int, seed: int) -> None:
        if len(set(numbers)) != len(numbers) or not all(0 <= number < PORT_NUMBERS for number in numbers):
            raise ValueError(
                f"expected different switch ports between 0 and {PORT_NUMBERS - 1}, not {list(numbers)}"
            )
        if not 0 <= drop_ppm <= 1_000_000:
            raise ValueError(f"expected a loss between 0 and 1,000,000 packets per million, not {drop_ppm}")
        count = len(numbers)
        self._numbers = np.array(numbers, np.uint16)
        self._position_of_port = np.full(1 << 16, -1, np.int32)
        self._position_of_port[numbers] = np.arange(count)
        # Every direction of every port draws from a stream of its own, so that the losses of one port do not
        # depend on how its packets fall among those of the others. xorshift must not start at 0.
        states = np.random.SeedSequence(seed).generate_state(2 * count, np.uint64) | np.uint64(1)
        self.record = PortRecord(
            frames=np.zeros((batch, 0), np.uint8),  # A driver has its own.
            lengths=np.zeros(batch, np.int32),
            ports=np.zeros(batch, np.uint16),
            times=np.zeros(batch, np.int64),
            draws_in=states[:count],
            draws_out=states[count:],
            drop_ppm=drop_ppm,
            statistics=np.zeros((count, len(STATISTICS)), np.int64),
            work=np.zeros(2, np.int64),
        )
        self._attachments: Attachments | None = None
        self.lender: Lender | None = (
            None  # Lends the program to workers that attach; None without shared memory.
        )
        self._resources = ExitStack()
        self._poller = self._resources.enter_context(select.epoll())
        self._waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._resources.callback(os.close, self._waker)
        self._poller.register(self._waker, select.EPOLLIN)

    def close(self) -> None:
        """Close the ports; no thread may be in `receive`, `forward` or `transmit`."""
        self._resources.close()

    @property
    @abstractmethod
    def names(self) -> dict[int, str]:
        """Destination of each switch port, for people."""

    @abstractmethod
    def is_up(self, number: int) -> bool:
        """Whether packets can pass a switch port."""

    @abstractmethod
    def overruns(self) -> list[int]:
        """How many packets the system dropped of each port because the switch did not fetch them in time."""

    @abstractmethod
    def mend(self) -> None:
        """Bring ports back that had gone and can be had again; to be called now and then where `receive` is."""

    def share_memory(self, addresses: Mapping[int, tuple[str, int]], shown_port: int) -> None:
        """Let workers of this machine attach by shared memory, beside the ports.

        `addresses`: the address and UDP port at which the workers of each port reach the switch. `shown_port`: destination
        UDP port that programs see. Raises PortUnavailableError if another switch shares memory at such an address.
        """
        positions = {number: int(self._position_of_port[number]) for number in addresses}
        own_ip = int.from_bytes(socket.inet_aton(next(iter(addresses.values()))[0]), "big")
        self.lender = Lender(own_ip, shown_port, self.record.drop_ppm)
        try:
            shared = self._attachments = Attachments(addresses, positions, self._poller, self.lender)
        except OSError as fault:
            raise PortUnavailableError(f"cannot share memory with workers: {fault.strerror}") from None
        self._resources.callback(shared.close)
        one = np.ones(1, np.int64)
        self._inbox = MemoryInbox(
            below=self._inbox,
            rings=shared.rings,
            used=shared.used,
            cursor=np.zeros(3, np.int64),
            one=one,
            own_ip=own_ip,
            own_port=shown_port,
            spin_ns=shared.spin_ns,
            record=self.record,
        )
        self._outbox = MemoryOutbox(
            below=self._outbox,
            rings=shared.rings,
            used=shared.used,
            one=one,
            record=self.record,
        )

    def poll(self) -> None:
        """Bring ports back, and take the memory back of workers that have gone; while no packets are moved."""
        self.mend()
        if self._attachments is not None:
            self._attachments.tidy()

    def receive(self, timeout_ms: int) -> int:
        """Wait for packets and make frames of them.

        Returns how many frames now begin `frames`, `lengths`, `ports` and `times` of `record`; they stay until the next call.
        0 when time ran out or `wake` was called.
        """
        return int(receive_alone(self._inbox, timeout_ms))

    def transmit(
        self, ports: npt.NDArray[np.uint16], lengths: npt.NDArray[np.int32], frames: npt.NDArray[np.uint8]
    ) -> int:
        """Send frames that left the switch.

        `ports`, `lengths`, `frames`: switch port (n,), length (n,) and bytes (n, capacity) of each frame. Returns frames for
        ports that the driver does not have; they are not sent.
        """
        return int(transmit_alone(self._outbox, ports, lengths, frames))

    def forward(
        self,
        engine: Engine,
        asked: npt.NDArray[np.int64],
        epoch_ns: int,
        timeout_ms: int,
        once: bool,
        outcome: npt.NDArray[np.int64],
    ) -> int:
        """Move packets through a program; see `loop.forward`."""
        return int(forward(engine, self._inbox, self._outbox, asked, epoch_ns, timeout_ms, once, outcome))

    def warm_up(self) -> None:
        """Compile what moves packets, or load it from Numba's cache; packets stay where they are."""
        none = np.zeros(8, np.int64)
        frames, lengths, ports = self.record.frames, self.record.lengths, self.record.ports
        self.forward(
            Engine(0, 0, none, 0, 0, 0, 0, ports, lengths, frames), np.ones(1, np.int64), 0, 1, False, none
        )
        self.transmit(ports[:0], lengths[:0], frames[:0])

    def wake(self) -> None:
        """End the present or the next wait for packets; from any thread."""
        os.eventfd_write(self._waker, 1)

    def statistics(self) -> dict[int, dict[str, int]]:
        """Count what passed each switch port.

        Counters by switch port. In: `received` and `received_bytes`, of which `dropped_in` were lost on purpose,
        `oversized` were longer than the switch takes, and `merged` were several packets that an offload had made one;
        `overrun` were dropped by the system because the switch did not fetch them in time. Out: `sent` and `sent_bytes`;
        `dropped_out`, lost on purpose; `queue_full`, for which the interface's queue had no room; `port_down`, for an
        interface that is down or gone; `not_udp`, which a UDP port cannot send; `refused`, which the system would not send.
        """
        table = {}
        for number, row, overrun in zip(self._numbers, self.record.statistics, self.overruns(), strict=True):
            table[int(number)] = dict(zip(STATISTICS, map(int, row), strict=True)) | {"overrun": overrun}
        return table
