"""The states that the explorer has found, and which of them a sentence of the proof does not hold in."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from host_agent.wire.constants import FLAG_LANES, HEADER_BYTES, KIND_RESULT
from host_agent.wire.header import Header
from sim.explore.engine import world as w
from sim.explore.engine.found_states import RECORD_BYTES
from sim.explore.search import Search
from sim.frames import HEADERS_BYTES
from tests.proof.invariant import Invariant
from tests.proof.logic import State

Array = npt.NDArray[Any]
_MARK_LANES = 1


@dataclass(frozen=True)
class Missing:
    """A sentence that does not hold in a state: the first that was found, and the steps that lead to it."""

    sentence: str
    state: int
    way: tuple[int, ...]


class Explored:
    """The states of a search that has ended, with packets that never cease and without permutations."""

    def __init__(self, search: Search) -> None:
        self.search, self.system = search, search.system
        self.scenario, self.world = search.system.scenario, search.system.world
        assert search.record["subsume"][0], "packets are counted: not every state is kept"
        assert self.world.get("permutations") == 1, "states stand for others"
        self.fixed_bytes, self.first_chunk = self.world.get("fixed_bytes"), self.world.get("first_chunk")
        self.places = self.system._places()
        self.states, self._of_state, self._packets = self._read()
        self.count = len(self.states)

    def _read(self) -> tuple[Array, Array, Array]:
        """Return the fixed parts of all states by number, and pairs of a state and the number of a packet in flight there."""
        arena = self.search.arrays["arena"]
        words = arena.view(np.uint32)
        count, tail = self.search._get("states"), self.search._get("tail")
        fixed = np.zeros((count, self.fixed_bytes), np.uint8)
        owners, entries = [], []
        at = 0
        while at < tail:
            size, held, number = (int(words[at // 4 + each]) for each in range(3))
            begin = at + RECORD_BYTES
            fixed[number] = arena[begin : begin + self.fixed_bytes]
            first = (begin + self.fixed_bytes) // 4
            entries.append(words[first : first + held] >> w.PACKET_SHIFT)
            owners.append(np.full(held, number))
            at += size
        return fixed, np.concatenate(owners), np.concatenate(entries)

    def register(self, job: int, index: int, name: str, kind: str, switch: int = 0) -> Array:
        """Return a register's cell in every state."""
        at = self.places[job, index, name] + switch * self.world.get("one_switch_bytes")
        return self.states[:, at : at + np.dtype(kind).itemsize].copy().view(kind)[:, 0].astype(np.int64)

    def block(self, host: int, at: int) -> Array:
        """Return a byte of a worker's block in every state."""
        begin = w.HEAD_BYTES + self.world.get("switch_bytes") + host * self.world.get("host_bytes")
        return self.states[:, begin + at].astype(np.int64)

    def held(self, host: int, slot: int) -> tuple[Array, Array]:
        """Return the newest chunk of a worker's slot, from 0 on, or -1, and whether it waits for its RESULT."""
        at = w.HOST_BYTES + slot * w.SLOT_BYTES
        return self.block(host, at + w.AT_CHUNK) - 1, self.block(host, at + w.AT_BITS) & 1 == 1

    @cached_property
    def passes(self) -> list[tuple[int, int]]:
        """The number of the pass of each chunk, and of the chunk in its pass."""
        chunks = self.world.arrays["works"]["chunks"][0]
        return [(number, index) for number, count in enumerate(chunks) for index in range(count)]

    def slot_of(self, chunk: int) -> tuple[int, int]:
        """Return the slot of a chunk, counted from 0, and its round."""
        first = self.first_chunk & (self.scenario.slots - 1)
        return (first + chunk) % self.scenario.slots, (first + chunk) // self.scenario.slots

    def collective(self, pass_number: int, owner: int) -> int:
        """Return op and fingerprint, with the mark of a quorum chunk, as a slot stores them."""
        work = self.world.arrays["works"][owner, pass_number]
        return int(work["quorum"]) << 31 | int(work["op"]) << 28 | int(work["fingerprint"])

    @cached_property
    def results(self) -> list[tuple[int, int, int, int, tuple[int, ...]]]:
        """Every RESULT for a worker: number of the packet, owner, chunk, collective, and exponent with lanes, if any."""
        found = []
        arrays = self.world.arrays
        for number in range(self.world.get("packet_count")):
            about = arrays["about"][number]
            owner = int(about["owner"])
            if about["to"] != w.TO_WORKER or not 0 <= owner < self.world.get("owners"):
                continue
            datagram = arrays["packets"][number][HEADERS_BYTES : about["length"]].tobytes()
            header = Header.from_bytes(datagram)
            if header.kind != KIND_RESULT:
                continue
            asked = header.quorum << 31 | header.op << 28 | header.fingerprint
            chunk = (header.chunk - self.first_chunk) & 0xFFFFFFFF
            found.append((number, owner, chunk, asked, self.content(header, datagram)))
        return found

    def content(self, header: Header, datagram: bytes) -> tuple[int, ...]:
        """Return the exponent of a RESULT and its lanes, if it has any."""
        lanes: list[int] = []
        if header.flags & FLAG_LANES:
            lanes = np.frombuffer(datagram, ">u4", w.ELEMENTS, HEADER_BYTES).tolist()
        return header.exponent, *lanes

    def holds(self, job: int, index: int, content: tuple[int, ...], switch: int = 0) -> Array:
        """Return in which states a slot has the exponent and the lanes of a RESULT."""
        has_lanes = self.register(job, index, "marks", "u1", switch) & _MARK_LANES != 0
        same = (self.register(job, index, "exponent", "u2", switch) == content[0]) & (
            has_lanes == (len(content) > 1)
        )
        for lane, word in enumerate(content[1:]):
            same &= self.register(job, index, str(lane), "u4", switch) == word
        return np.asarray(same)

    def remember(self, current: Array, sent: Array, got: Array, first: int = 0) -> None:
        """Keep what a worker had sent and got before it joined the second epoch, by the state that a state came from.

        `sent`, `got`: of the first epoch, by state and worker, the first of which has the index `first`.
        """
        parents = self.search.arrays["parents"]
        for number in np.flatnonzero(current.any(axis=1)):
            for host in np.flatnonzero(current[number]) + first:
                sent[number, host], got[number, host] = (f[parents[number], host] for f in (sent, got))

    def in_flight(self, numbers: list[int]) -> Array:
        """Return in which states one of some packets is in flight."""
        is_one = np.zeros(w.MAX_PACKETS, bool)
        is_one[numbers] = True
        found = np.zeros(self.count, bool)
        found[self._of_state[is_one[self._packets]]] = True
        return found

    def missing(self, m: Any, state: State, invariants: list[Invariant]) -> list[Missing]:
        """Return the sentences that some state does not have."""
        found = []
        for invariant in invariants:
            holds = m.forall(invariant.sorts, lambda *c, i=invariant: i.body(m, state, *c))
            if holds is not True and not np.all(holds):
                number = int(np.argmin(holds))
                self.search.record["found_state"], self.search.record["found_code"] = number, 0
                found.append(Missing(invariant.name, number, self.search.way()))
        return found
