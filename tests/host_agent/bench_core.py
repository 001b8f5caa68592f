"""A worker core on the bench: datagrams by hand, time by hand."""

from typing import Any

import numpy as np
import numpy.typing as npt

from host_agent.codecs.block_float import FLOAT32
from host_agent.codecs.codec import Codec
from host_agent.codecs.raw import WORDS_MAX
from host_agent.protocol.core import WorkerCore
from host_agent.protocol.passes import Pass
from host_agent.wire import Admission, Header
from host_agent.wire.constants import (
    COMPLETER_UNKNOWN,
    FLAG_LANES,
    HEADER_BYTES,
    KIND_RESULT,
    KIND_STATUS,
    OP_MAX,
    OP_SUM,
)
from host_agent.wire.path import Path

MARK = 0xA00ABCD
TOKEN = 0x1234_5678
MS = 1_000_000


class BenchCore:
    """A core whose arrivals and time a test decides.

    RESULTs are made of contributions: in a job of one worker they are the switch's answers.
    """

    def __init__(
        self,
        workers: int = 1,
        slots: int = 4,
        timeout_ns: int = 10**12,
        first_chunk: int = 0,
        path: Path = (),
        quorum: int = 0,
    ) -> None:
        worker_id, children = (path[0].worker_id, len(path[0].children)) if path else (0, workers)
        self.admission = Admission(1, TOKEN, 9, worker_id, children, slots, 64, path=path, quorum=quorum)
        self.core = WorkerCore(self.admission, timeout_ns, first_chunk)
        self.now_ns = 10**9
        self.rows = np.zeros((64, self.core.row_bytes), np.uint8)
        self.lengths = np.zeros(64, np.int32)

    @property
    def state(self) -> Any:
        return self.core.state[0]

    def begin(self, elements: int, codec: Codec = WORDS_MAX) -> Pass:
        dtype = np.float32 if codec is FLOAT32 else np.int32
        source = np.arange(elements).astype(dtype)
        op = OP_SUM if codec is FLOAT32 else OP_MAX
        work = Pass(codec, op, MARK, source, np.full(elements, -7, dtype))
        self.core.begin(work, self.now_ns)
        return work

    def send(self) -> list[bytes]:
        """All that is to be sent now."""
        sent = []
        while count := self.core.transmit(self.now_ns, self.rows, self.lengths):
            sent += [
                row[:length].tobytes()
                for row, length in zip(self.rows[:count], self.lengths[:count], strict=True)
            ]
        return sent

    def chunks(self) -> list[int]:
        """The chunks of all that is to be sent now."""
        return [Header.from_bytes(datagram).chunk for datagram in self.send()]

    def receive(self, *datagrams: bytes) -> None:
        for datagram in datagrams:
            self.core.on_datagram(np.frombuffer(datagram, np.uint8), self.now_ns)

    def wait(self, ns: int) -> None:
        self.now_ns += ns


def repeated(contribution: bytes) -> bytes:
    """The same contribution sent again, which does not say by whom."""
    header = Header.from_bytes(contribution)._replace(completer=COMPLETER_UNKNOWN)
    return header.to_bytes() + contribution[HEADER_BYTES:]


def result(contribution: bytes, workers: int = 1, **changes: Any) -> bytes:
    """A switch's answer to a contribution of the only worker; the last of several."""
    header = Header.from_bytes(contribution)._replace(kind=KIND_RESULT, num_workers=workers)
    return header._replace(**changes).to_bytes() + contribution[HEADER_BYTES:]


def status(
    contribution: bytes, seen: int, workers: int = 1, slot_chunk: int | None = None, **changes: Any
) -> bytes:
    """A switch's STATUS about the slot of a contribution."""
    header = Header.from_bytes(contribution)._replace(kind=KIND_STATUS, num_workers=workers, flags=0)
    held = header.chunk if slot_chunk is None else slot_chunk
    return header._replace(**changes).to_bytes() + seen.to_bytes(4, "big") + held.to_bytes(4, "big")


def has_lanes(datagram: bytes) -> bool:
    return bool(Header.from_bytes(datagram).flags & FLAG_LANES)


def lanes(datagram: bytes) -> npt.NDArray[np.int32]:
    return np.frombuffer(datagram, ">i4", offset=HEADER_BYTES).astype(np.int32)
