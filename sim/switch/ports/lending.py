"""Programs lent to the workers of jobs on this machine (`netsum_common.lent_program`): their memory, and who has it."""

import contextlib
import mmap
import os
import socket
from collections.abc import Callable
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from netsum_common.errors import NetsumError
from netsum_common.lent_program import (
    ADDRESS,
    AWAITED,
    BOX_BYTES,
    GONE,
    LENT,
    LOCK_BYTES,
    PRESENT,
    REFUSED,
    RUN,
    SIGNAL_BYTES,
    LendingRequest,
)
from netsum_common.rings import make_bell, make_memory
from sim.switch.lending import Lending

MOST_REFUSED: Final = 1024


class LendError(NetsumError):
    """A switch lends no program; the message says why."""


class Places:
    """Offsets in memory, given out one after the other, each on a cache line."""

    def __init__(self) -> None:
        self.end = 0

    def take(self, size: int, align: int = 64) -> int:
        """Return where the next `size` bytes are."""
        at = -(-self.end // align) * align
        self.end = at + size
        return at


class Loan:
    """The memory of one job's epoch, and the eventfds of its workers."""

    def __init__(
        self, lending: Lending, request: LendingRequest, own_ip: int, own_port: int, drop_ppm: int
    ) -> None:
        self.request = request
        self.connections: dict[int, socket.socket] = {}  # The sockets by which its workers asked.
        self.ready: set[int] = set()
        self.is_decided = False
        self.bells: list[int] = []
        lent, places = np.zeros(1, LENT), Places()
        places.take(LENT.itemsize)
        shared: list[tuple[NDArray[Any], int]] = [
            (each, places.take(max(each.nbytes, 1), mmap.PAGESIZE)) for each in lending.shared
        ]
        registers = [(each, places.take(each.nbytes, mmap.PAGESIZE)) for each in lending.registers]
        private = Places()
        private.take(lending.words.nbytes)
        changed = [*lending.own, *(each.array for each in lending.counts)]
        own = [(each, private.take(max(each.nbytes, 1))) for each in changed]
        pairs = {
            "shared": _pointers(lending.words, [*shared, *registers]),
            "private": _pointers(lending.words, own),
        }
        count, indices = request.members, 2 * request.slots
        words = lending.layout.words
        lent["members"], lent["slots"], lent["row_bytes"] = count, request.slots, request.row_bytes
        lent["own_ip"], lent["own_port"], lent["drop_ppm"] = own_ip, own_port, drop_ppm
        lent["code"], lent["code_bytes"] = places.take(len(lending.code)), len(lending.code)
        for name, found in pairs.items():
            lent[f"{name}_words"], lent[f"{name}_count"] = places.take(found.nbytes), len(found)
        lent["private_bytes"] = -(-private.end // mmap.PAGESIZE) * mmap.PAGESIZE
        lent["private"] = places.take(count * int(lent["private_bytes"][0]), mmap.PAGESIZE)
        lent["context_words"] = lending.words.size
        for name in ("in_frames", "out_frames", "out_count", "now_us"):
            lent[name] = words[name]
        lent["addresses"] = places.take(count * ADDRESS.itemsize)
        lent["locks"] = places.take(request.slots * LOCK_BYTES)
        lent["signals"] = places.take(count * SIGNAL_BYTES)
        lent["boxes"] = places.take(count * 2 * indices * BOX_BYTES, mmap.PAGESIZE)
        lent["lanes"] = places.take(indices * request.row_bytes, mmap.PAGESIZE)
        with contextlib.ExitStack() as opened:
            self.descriptor = make_memory("netsum-lent", places.end)
            opened.callback(os.close, self.descriptor)
            self._memory = mmap.mmap(self.descriptor, places.end)
            for _ in range(request.members):
                self.bells.append(make_bell())
                opened.callback(os.close, self.bells[-1])
            opened.pop_all()
        whole = np.frombuffer(self._memory, np.uint8)
        _put(whole, 0, lent)
        _put(whole, int(lent["code"][0]), np.frombuffer(lending.code, np.uint8))
        for name, found in pairs.items():
            _put(whole, int(lent[f"{name}_words"][0]), found)
        for array, at in shared:
            _put(whole, at, array)
        for member in range(count):
            begin = int(lent["private"][0]) + member * int(lent["private_bytes"][0])
            _put(whole, begin, lending.words)
            for array, at in own[: len(lending.own)]:  # Counts begin at 0.
                _put(whole, begin + at, array)
        self.counts = lending.counts
        for each, (array, at) in zip(self.counts, own[len(lending.own) :], strict=True):
            begins = (int(lent["private"][0]) + n * int(lent["private_bytes"][0]) + at for n in range(count))
            each.copies = [
                np.frombuffer(self._memory, np.uint64, array.size, begin).reshape(array.shape)
                for begin in begins
            ]
        self.addresses: NDArray[np.void] = np.frombuffer(
            self._memory, ADDRESS, count, int(lent["addresses"][0])
        )

    def enter(self, member: int, port: int, ip: int, udp_port: int) -> bool:
        """Let a worker in that is awaited; returns whether it was."""
        place = self.addresses[member]
        if place["state"] != AWAITED:
            return False
        place["port"], place["ip"], place["udp_port"] = port, ip, udp_port
        place["state"] = PRESENT
        return True

    def leave(self, member: int) -> bool:
        """Note that a worker's connection has ended; returns whether no worker is left."""
        self.addresses[member]["state"] = GONE
        return not (self.addresses["state"] == PRESENT).any()

    def decide(self, message: bytes) -> None:
        """Tell all workers that are there."""
        self.is_decided = True
        for connection in self.connections.values():
            try:
                connection.send(message)
            except OSError:  # The worker has ended, or reads nothing.
                _end(connection)

    def revoke(self) -> None:
        """End the connections of all workers."""
        for connection in list(self.connections.values()):
            _end(connection)

    def close(self) -> None:
        """Give the switch's part of the memory back; workers keep what they have mapped."""
        del self.addresses
        for each in self.counts:
            each.copies = []
        self._memory.close()
        for descriptor in (self.descriptor, *self.bells):
            os.close(descriptor)


class Owner(Protocol):
    """The owner of a program that is lent."""

    def lend(self, make: Callable[[Lending], Loan], frame_bytes: int) -> Loan:
        """Make a loan of the program, for frames of that many bytes; raises LendError."""

    def end_loan(self, loan: Loan) -> None:
        """Take the counts of a loan; nobody runs the program any more."""


class Lender:
    """The loans of a switch."""

    def __init__(self, own_ip: int, own_port: int, drop_ppm: int) -> None:
        self.owner: Owner | None = None  # Set once there is one.
        self._own = own_ip, own_port, drop_ppm
        self._loans: dict[int, Loan] = {}
        self._refused: dict[int, str] = {}  # Why nothing is lent any more, by key; the latest of them.

    def enter(
        self, request: LendingRequest, connection: socket.socket, port: int, ip: int, udp_port: int
    ) -> Loan | str:
        """Let a worker into its job's loan, which the first one's request makes; a refusal says why.

        A refusal is that of all workers, unless they run the program already.
        """
        if request.key in self._refused:
            return self._refused[request.key]
        loan = self._loans.get(request.key)
        if loan is None:
            made = self._make(request)
            if isinstance(made, str):
                self._note(request.key, made)
                return made
            self._loans[request.key] = loan = made
        refusal = ""
        if loan.is_decided:
            refusal = "the job's workers have begun without this one"
        elif loan.request[2:] != request[2:]:
            refusal = "the job's workers ask for memory of different sizes"
        elif not loan.enter(request.member, port, ip, udp_port):
            refusal = f"worker {request.member} of the job has its memory already, or had it"
        if refusal:
            self.refuse(loan, refusal)
            return refusal
        loan.connections[request.member] = connection
        return loan

    def _make(self, request: LendingRequest) -> Loan | str:
        if self.owner is None:
            return "it lends no program"
        try:
            return self.owner.lend(lambda lending: Loan(lending, request, *self._own), request.row_bytes)
        except LendError as refusal:
            return str(refusal)
        except OSError as fault:
            return f"it has no room for the job's memory ({fault.strerror})"

    def ready(self, loan: Loan, member: int) -> None:
        """Note that a worker can run the program; once all can, they do."""
        loan.ready.add(member)
        if not loan.is_decided and len(loan.ready) == loan.request.members:
            loan.decide(RUN)

    def refuse(self, loan: Loan, reason: str) -> None:
        """Tell all workers of a loan that none of them is to run the program, unless they do already."""
        if not loan.is_decided:
            self._note(loan.request.key, reason)
            loan.decide(REFUSED + reason.encode())

    def _note(self, key: int, reason: str) -> None:
        self._refused[key] = reason
        if len(self._refused) > MOST_REFUSED:
            del self._refused[next(iter(self._refused))]

    def leave(self, loan: Loan, member: int) -> None:
        """End a worker's part in a loan, and the loan with its last one."""
        del loan.connections[member]
        self.refuse(loan, f"worker {member} of the job left before all of its workers were there")
        if loan.leave(member):
            key = loan.request.key
            self._note(key, self._refused.get(key, "the job's epoch has ended"))
            del self._loans[key]
            if self.owner is not None:
                self.owner.end_loan(loan)
            loan.close()

    def revoke(self) -> None:
        """End the connections of all workers, which then send nothing."""
        for loan in list(self._loans.values()):
            loan.revoke()

    def close(self) -> None:
        """End all loans."""
        for loan in self._loans.values():
            loan.close()
        self._loans.clear()


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # The worker was first.
        connection.shutdown(socket.SHUT_RDWR)


def _pointers(words: NDArray[np.int64], placed: list[tuple[NDArray[Any], int]]) -> NDArray[np.int64]:
    """Return which words of a context point at arrays, and the offset of each one's place."""
    places = {int(array.ctypes.data): at for array, at in placed}
    found = [(word, places[value]) for word, value in enumerate(words.tolist()) if value in places]
    return np.array(found, np.int64).reshape(-1, 2)


def _put(whole: NDArray[np.uint8], at: int, array: NDArray[Any]) -> None:
    """Copy an array; pages of zeros stay untouched, and so take no memory."""
    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    for begin in range(0, content.size, mmap.PAGESIZE):
        page = content[begin : begin + mmap.PAGESIZE]
        if page.any():
            whole[at + begin : at + begin + page.size] = page
