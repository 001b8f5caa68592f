"""All workers of a group on one simulated switch, as what carries out the rounds of compressors."""

from collections.abc import Sequence
from typing import Any, Final

import torch

from host_agent.collectives import AllReduceRequest, BroadcastRequest, Collective
from host_agent.compression.exchange import concatenated, gathering, in_lockstep, split_like
from host_agent.compression.reducer import CompressedRound
from host_agent.wire import Admission
from host_agent.wire.lengths import FRAME_HEADERS_BYTES
from netsum.programs import compiled_program
from sim.network.network import Network
from sim.network.parameters import Faults, LinkParameters
from sim.network.worker import Plan
from tests.sim.network.switch_with_jobs import SwitchWithJobs
from topologies.generated import star

_SLOTS: Final = 64
_MAX_EVENTS: Final = 10_000_000
_RATE_BPS: Final = 10**9
_LATENCY_NS: Final = 10_000


class SimulatedStar:
    """Hosts on one switch, in virtual time: the P4 program and the worker core, all else simulated.

    Use it as the `combine` of `host_agent.compression.exchange.reduce_in_process`.

    `workers`: 1 to 32. `loss`: probability that a packet is lost, on each link and way.
    """

    def __init__(self, workers: int, *, loss: float = 0.0, lanes: int = 256, seed: int = 1) -> None:
        switch = SwitchWithJobs(compiled_program(lanes).json)
        self.network = Network(seed, lanes=lanes)
        link = LinkParameters(rate_bps=_RATE_BPS, latency_ns=_LATENCY_NS, faults=Faults(loss=loss))
        self.network.add_topology(star(workers), link, programmed={"s1": switch})
        hub, *hosts = self.network.nodes
        self.links = [(2 * rank, 2 * rank + 1) for rank in range(workers)]
        """Numbers of each worker's links to the switch and back."""
        job = switch.create_job("group", self.network.endpoints(hosts, hub), _SLOTS)
        self._workers = self.network.add_job(job, hosts, hub, lambda worker: ())
        self.network.run()
        self._packets_sent = 0
        self._bytes_sent = 0

    def __call__(self, rounds: Sequence[CompressedRound]) -> Any:
        """Carry out a round of all workers."""
        first = rounds[0]
        if first.op == "gather":
            generators = [gathering(each.tensors, rank, len(rounds)) for rank, each in enumerate(rounds)]
            return in_lockstep(generators, self)[0]
        for worker, each in zip(self._workers, rounds, strict=True):
            worker.submit(_plan(each))
        self.network.run(max_events=self.network.events_run + _MAX_EVENTS)
        results: list[Any] = []
        for worker in self._workers:
            outcome = worker.outcomes[-1]
            if outcome.error is not None:
                raise outcome.error
            self._packets_sent += outcome.statistics.packets_sent
            self._bytes_sent += outcome.statistics.bytes_sent
            results.append(outcome.result)
        # By bytes: NaN must be alike, too.
        if any(each.tobytes() != results[0].tobytes() for each in results):
            raise AssertionError("the workers got different results")
        return split_like(torch.from_numpy(results[0]), first.tensors)

    @property
    def wire_bytes(self) -> int:
        """Bytes of the Ethernet frames that all workers have sent, headers and retransmissions included."""
        return self._bytes_sent + FRAME_HEADERS_BYTES * self._packets_sent

    @property
    def lost(self) -> int:
        """Packets that links have lost, both ways."""
        return int(self.network.link_records["lost"].sum())


def _plan(request: CompressedRound) -> Plan:
    values = concatenated(request.tensors).numpy()

    def plan(admission: Admission, sequence: int) -> Collective[Any]:
        if request.op == "broadcast":
            return BroadcastRequest(values, request.root).plan(admission, sequence)
        assert request.op != "gather"
        return AllReduceRequest(values, request.op).plan(admission, sequence)

    return plan
