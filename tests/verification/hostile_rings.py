"""Real communicators on shared memory, with somebody between their rings and the switch's who changes what passes.

A relay listens where the workers look for the switch, gives each of them rings of its own, and has the switch's: as a host on
the way could. Threads, sockets and times are real.
"""

import mmap
import os
import select
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest

from host_agent.communicator import Communicator
from host_agent.schedule import Outcome
from host_agent.statistics import Statistics
from host_agent.verification.trust import Trust
from host_agent.wire import Admission
from host_agent.wire.header import HEADER_WORDS
from netsum_common.rings import (
    DOWN_HEAD,
    DOWN_TAIL,
    FOR_DATAGRAMS,
    SWITCH_SLEEPS,
    UP_HEAD,
    UP_TAIL,
    WORKER_SLEEPS,
    Grant,
    RingShape,
    answer,
    attach,
    make_grant,
    name_of,
    receive_message,
    shape_requested,
)
from tests.integration.simulated.loopback import LoopbackSwitch
from tests.verification.hostile import Datagrams, Tamper

VERIFIED: Final = Trust(verify=True)
TIMEOUT_S: Final = 1.5
_ATTACH_S: Final = 10.0
_LOOK_S: Final = 0.002  # Between looks, where no bell rings.


class _Memory:
    """One side's rings of a worker."""

    def __init__(self, grant: Grant, shape: RingShape) -> None:
        self.grant, self._shape = grant, shape
        memory = mmap.mmap(grant.memory, shape.total)
        self.words = np.frombuffer(memory, np.uint32)

        def ring(lengths: int, rows: int) -> tuple[Any, Any]:
            size = shape.rows * shape.row_bytes
            each = np.frombuffer(memory, np.uint8, size, rows).reshape(shape.rows, shape.row_bytes)
            return np.frombuffer(memory, np.int32, shape.rows, lengths), each

        self.up = ring(shape.up_lengths, shape.up_rows)
        self.down = ring(shape.down_lengths, shape.down_rows)

    def take(self, ring: tuple[Any, Any], head: int, tail: int) -> list[bytes]:
        """Return the datagrams that the other side has written."""
        lengths, rows = ring
        first, last = int(self.words[tail // 4]), int(self.words[head // 4])
        count = (last - first) % (1 << 32)
        places = [(first + n) % self._shape.rows for n in range(count)]
        taken = [rows[at, : lengths[at]].tobytes() for at in places if lengths[at] > 0]
        self.words[tail // 4] = last
        return taken

    def put(self, ring: tuple[Any, Any], head: int, tail: int, datagrams: Sequence[bytes]) -> None:
        """Write datagrams; those for which there is no room are lost."""
        lengths, rows = ring
        at = int(self.words[head // 4])
        room = self._shape.rows - (at - int(self.words[tail // 4])) % (1 << 32)
        for datagram in datagrams[:room]:
            lengths[at % self._shape.rows] = len(datagram)
            rows[at % self._shape.rows, : len(datagram)] = np.frombuffer(datagram, np.uint8)
            at = (at + 1) % (1 << 32)
        self.words[head // 4] = at

    def wake(self, sleeps: int, bell: int) -> None:
        """Wake the other side if it sleeps."""
        if self.words[sleeps // 4]:
            self.words[sleeps // 4] = 0
            os.eventfd_write(bell, 1)


class _Pair:
    """A worker's rings at the relay, and the relay's at the switch."""

    def __init__(self, connection: socket.socket, switch: tuple[str, int]) -> None:
        connection.settimeout(_ATTACH_S)
        message, (descriptor,) = receive_message(connection)
        shape = shape_requested(message)
        assert shape is not None
        with socket.socket(fileno=descriptor) as theirs:
            self._upstream, far = attach(switch, theirs, shape, _ATTACH_S)
        near = make_grant(shape)
        answer(connection, near)
        connection.setblocking(False)
        self._connection = connection
        self.near, self.far = _Memory(near, shape), _Memory(far, shape)

    def close(self) -> None:
        self._connection.close()
        self._upstream.close()
        for each in (self.near, self.far):
            each.grant.close()


class HostileRings:
    """A switch on this machine and a relay before it, while the context lasts."""

    def __init__(self, lanes: int = 64, workers: int = 3) -> None:
        self.workers = workers
        self._switch = LoopbackSwitch(lanes, workers)
        self._row_words = HEADER_WORDS + lanes + 1
        self._pairs: list[_Pair] = []
        self._tamper: Tamper | None = None
        self._listeners: list[socket.socket] = []
        self._addresses = [("127.99.0.1", 1 + os.getpid() % 60_000 + port) for port in range(workers)]
        for address in self._addresses:
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            listener.bind(name_of(address))
            listener.listen(4)
            self._listeners.append(listener)

    def __enter__(self) -> "HostileRings":
        self._switch.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._switch.kill()
        for each in self._listeners:
            each.close()

    def run(
        self, requests: Sequence[Any], tamper: Tamper | None = None, trust: Trust = VERIFIED
    ) -> list[Outcome]:
        """Run each worker's request at a communicator of its own; returns the outcomes by worker."""
        self._tamper = tamper
        job = self._switch.start_job(slots=4)
        with ThreadPoolExecutor(len(job)) as pool, pytest.MonkeyPatch.context() as patch:
            patch.setenv("NETSUM_LINK", "memory")
            made = [
                pool.submit(self._communicator, replace(admission, switch=address), bind, trust)
                for (admission, bind), address in zip(job, self._addresses, strict=True)
            ]
            pairs = [
                _Pair(listener.accept()[0], admission.switch)
                for listener, (admission, _) in zip(self._listeners, job, strict=True)
            ]
            communicators = [each.result() for each in made]
            patch.undo()
            stop = threading.Event()
            relay = threading.Thread(target=self._relay, args=(pairs, stop))
            relay.start()
            try:
                return list(pool.map(_outcome, communicators, requests))
            finally:
                stop.set()
                relay.join()
                for communicator in communicators:
                    communicator.close()
                for pair in pairs:
                    pair.close()

    @staticmethod
    def _communicator(admission: Admission, bind: tuple[str, int], trust: Trust) -> Communicator:
        return Communicator(admission, bind=bind, timeout_s=TIMEOUT_S, trust=trust)

    def _relay(self, pairs: Sequence[_Pair], stop: threading.Event) -> None:
        poller = select.poll()
        bells = [bell for each in pairs for bell in (each.near.grant.switch_bell, each.far.grant.worker_bell)]
        for bell in bells:
            poller.register(bell, select.POLLIN)
        while not stop.is_set():
            for each in pairs:
                each.near.words[SWITCH_SLEEPS // 4] = each.far.words[WORKER_SLEEPS // 4] = FOR_DATAGRAMS
            up = [each.near.take(each.near.up, UP_HEAD, UP_TAIL) for each in pairs]
            for each, kept in zip(pairs, self._tampered(up, "up"), strict=True):
                each.far.put(each.far.up, UP_HEAD, UP_TAIL, kept)
                each.far.wake(SWITCH_SLEEPS, each.far.grant.switch_bell)
            down = [each.far.take(each.far.down, DOWN_HEAD, DOWN_TAIL) for each in pairs]
            for each, kept in zip(pairs, self._tampered(down, "down"), strict=True):
                each.near.put(each.near.down, DOWN_HEAD, DOWN_TAIL, kept)
                each.near.wake(WORKER_SLEEPS, each.near.grant.worker_bell)
            if not any(up) and not any(down):
                poller.poll(_LOOK_S * 1e3)
                for bell in bells:
                    with suppress(BlockingIOError):
                        os.eventfd_read(bell)

    def _tampered(self, passing: Sequence[Sequence[bytes]], way: str) -> list[list[bytes]]:
        """Show datagrams to the hook; returns those that are left of each worker."""
        if self._tamper is None or not any(passing):
            return [list(each) for each in passing]
        owners = [(worker, datagram) for worker, each in enumerate(passing) for datagram in each]
        rows = np.zeros((len(owners), 4 * self._row_words), np.uint8)
        for row, (_, datagram) in zip(rows, owners, strict=True):
            row[: len(datagram)] = np.frombuffer(datagram, np.uint8)
        lengths = np.array([len(datagram) for _, datagram in owners], np.int32)
        workers = np.array([worker for worker, _ in owners], np.int64)
        self._tamper(Datagrams(rows.view(">u4"), lengths, workers), way)
        kept: list[list[bytes]] = [[] for _ in passing]
        for row, length, worker in zip(rows, lengths, workers, strict=True):
            if length:
                kept[worker].append(row[:length].tobytes())
        return kept


def _outcome(communicator: Communicator, request: Any) -> Outcome:
    """Run a request as the methods of a communicator do."""
    result = error = None
    try:
        result = communicator._run(request, "", None)
    except Exception as raised:
        error = raised
    return Outcome(None, Statistics(), result, error)  # type: ignore[arg-type]
