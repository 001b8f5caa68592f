"""Places for corruptions: jobs on the embedded engine, on the kernel's, on BMv2, on trees of switches, with quorums, and
over shared memory."""

import atexit
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np

from controller.p4runtime_writer import P4RuntimeWriter
from controller.program import CompiledFiles
from controller.session import P4RuntimeSession
from controller.switch_tables import SwitchTables
from host_agent.collectives import AllReduceRequest
from host_agent.collectives.quorum import Offer, RoundRequest
from netsum_common.targets import read_capabilities
from sim.network.programming import DEFAULT_IP, DEFAULT_MAC, tokens
from sim.programming import InProcessWriter
from sim.switch import Packets, load_program
from sim.switch.bpf.switch import XdpSwitch
from tests.cabled_bmv2 import DEVICE_ID
from tests.controller.one_switch import OneSwitch
from tests.dataplane.dataplane.bmv2 import Bmv2Target
from tests.dataplane.dataplane.target import program_files
from tests.integration.simulated.star import StarSwitch, program_file, star_switch
from tests.integration.simulated.tree import fabric
from tests.verification.corruptions import REQUESTS, values
from tests.verification.hostile import Datagrams, HostileNetwork, HostileStar, HostileTree, Planned, Tamper
from tests.verification.hostile_rings import HostileRings

LANES: Final = 64
QUORUM: Final = 2
SESSION_TIMEOUT_S: Final = 60.0


class KernelSwitch(StarSwitch):
    """A switch whose program runs in the kernel, by the kernel's test runs."""

    def __init__(self, lanes: int) -> None:
        program = program_file(lanes)
        self.engine = XdpSwitch(load_program(program))  # type: ignore[assignment]
        writer = InProcessWriter(self.engine)
        OneSwitch.__init__(
            self,
            SwitchTables(writer),
            read_capabilities(program),
            new_token=tokens(0),
            unix_seconds=lambda: 1,
        )
        self.set_switch_address(DEFAULT_IP, DEFAULT_MAC)


class Bmv2Engine(Bmv2Target):
    """BMv2 as an engine: packets leave in the order of ports, whatever its threads do."""

    def inject(self, packets: Packets, now_ns: int) -> Packets:
        del now_ns
        rows = zip(packets.ports, packets.frames, packets.lengths, strict=True)
        out = self.send([(int(port), frame[:length].tobytes()) for port, frame, length in rows])
        return Packets.of(sorted(out, key=lambda packet: packet[0]))


class Bmv2Switch(StarSwitch):
    """BMv2 with the controller's own session."""

    def __init__(self, lanes: int) -> None:
        engine = Bmv2Engine(lanes)
        atexit.register(engine.close)
        self.engine = engine  # type: ignore[assignment]
        files = CompiledFiles(*program_files(lanes))
        session = P4RuntimeSession(engine.address, DEVICE_ID, 2, SESSION_TIMEOUT_S)
        atexit.register(session.tear_down)
        tables = SwitchTables(P4RuntimeWriter(session, files))
        OneSwitch.__init__(self, tables, files.capabilities, new_token=tokens(0), unix_seconds=lambda: 1)
        self.set_switch_address(DEFAULT_IP, DEFAULT_MAC)


@cache
def bmv2_switch() -> Bmv2Switch:
    """The switch that all runs of a process share."""
    return Bmv2Switch(LANES)


@cache
def kernel_switch() -> KernelSwitch:
    """The switch that all runs of a process share."""
    return KernelSwitch(LANES)


@cache
def hostile_rings() -> HostileRings:
    """The switch and relay that all runs of a process share."""
    rings = HostileRings(LANES)
    rings.__enter__()
    atexit.register(rings.__exit__)
    return rings


@dataclass(frozen=True)
class Site:
    """A network with a job on it. `start`: makes the job anew. `requests`: those of its workers."""

    workers: int
    start: Callable[[], HostileNetwork | HostileRings]
    requests: Any = None


def _round(dtype: str, op: Any, size: int) -> Callable[[int, int, int], Planned]:
    def request(rank: int, ranks: int, seed: int) -> Planned:
        array = values(rank, size, seed, dtype)
        offer = Offer(array.shape, array.dtype)
        offer.make(array)
        return RoundRequest(offer, op)

    return request


ROUNDS: Final[dict[str, Callable[[int, int, int], Planned]]] = {
    "float32 round": _round("float32", "sum", 300),
    "float32 mean of a round": _round("float32", "mean", 200),
    "int32 round": _round("int32", "sum", 150),
}


def of_members(name: str, seed: int, ranks: Sequence[int], workers: int) -> list[Planned]:
    """Return requests that reduce what these ranks contribute to a round."""

    def request(rank: int) -> Planned:
        one = ROUNDS[name](rank, workers, seed)
        assert isinstance(one, RoundRequest)
        array: Any = one.offer.array
        return AllReduceRequest(array if rank in ranks else np.zeros_like(array), one.op, divisor=QUORUM)

    return [request(rank) for rank in range(workers)]


class Late:
    """A worker whose first packets are lost, so that others are the quorum."""

    def __init__(self, tamper: Tamper, worker: int, packets: int) -> None:
        self._tamper, self._worker, self._left = tamper, worker, packets

    def __call__(self, datagrams: Datagrams, way: str) -> None:
        if way == "up":
            rows = np.flatnonzero(datagrams.workers == self._worker)[: self._left]
            datagrams.lengths[rows] = 0
            self._left -= rows.size
        self._tamper(datagrams, way)


SITES: Final = {
    "embedded": Site(3, lambda: HostileStar(star_switch(LANES), 3), REQUESTS),
    "kernel": Site(3, lambda: HostileStar(kernel_switch(), 3), REQUESTS),
    "bmv2": Site(3, lambda: HostileStar(bmv2_switch(), 3), REQUESTS),
    "tree": Site(4, lambda: HostileTree(fabric((2, 2), LANES)), REQUESTS),
    "deep tree": Site(4, lambda: HostileTree(fabric(((2,), (1, 1)), LANES)), REQUESTS),
    "memory": Site(3, hostile_rings, REQUESTS),
    "quorum": Site(3, lambda: HostileStar(star_switch(LANES), 3, quorum=QUORUM), ROUNDS),
}
