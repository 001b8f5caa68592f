"""A job that runs a trace: its nodes become messages that wait for each other, whatever carries its collectives.

Computing and messages between two ranks are the same for all contenders. All-reduces are the contender's own; netsum's switch
carries what `switch_group.CARRIED` lists. What else there is goes beside the switch on flows, as with the peers
(`sim.peers.collectives`).
The collectives of the same ranks begin in one order everywhere: one of netsum when the one before has begun, one on flows when
the one before has ended at this worker, as in PyTorch.
"""

from collections import defaultdict
from dataclasses import replace
from functools import partial

from sim.errors import SettingError
from sim.experiments.experiment import Point
from sim.experiments.peer_job import PeerJob
from sim.experiments.scenario import Scenario
from sim.experiments.switch_group import CARRIED, SwitchGroup, parts_of
from sim.experiments.work import Bucket, Work, slowness
from sim.peers.collectives import COLLECTIVES
from sim.peers.group import Tokens
from sim.peers.table import PEERS
from sim.traces.graph import GraphStep, Trace
from sim.traces.reading import read_trace

Ranks = tuple[int, ...]


class TraceJob(PeerJob):
    """The hosts of a job that runs a trace, iteration after iteration.

    The time of an iteration's only bucket is that of the iteration.
    """

    def __init__(self, point: Point, number: int, scenario: Scenario, work: Work) -> None:
        job = point.settings.job[number]
        self._trace: Trace = read_trace(job.workload, job.workers)
        self._groups: dict[Ranks, SwitchGroup] = {}
        self._parts_begun: defaultdict[Ranks, int] = defaultdict(int)
        if job.contender == "netsum":
            if any(event.action == "switch-restart" for event in point.settings.event):
                raise SettingError(
                    f"job {job.name}: expected no switch that restarts under a job with a workload"
                )
            parts: defaultdict[Ranks, list[Bucket]] = defaultdict(list)
            for step in self._trace.steps:
                if step.node.kind in CARRIED:
                    parts[step.ranks] += parts_of(step)
            for ranks, those in parts.items():
                self._groups[ranks] = SwitchGroup(point, number, scenario, ranks, work.iterations, those)
        self._places: dict[tuple[int, str], int] = {}
        super().__init__(point, number, scenario, work)
        self.groups = list(self._groups.values())

    def _add_iteration(self, point: Point, work: Work, iteration: int, begin: Tokens) -> Tokens:
        messages, hosts, job = self._messages, self._group.workers, self.settings
        begun = self._started[iteration, 0] = self._begin(point, iteration, begin)
        done = [0] * self._trace.nodes  # For each node, the message that is there when it has ended.
        last: Tokens = [[each] for each in begun]
        before: dict[Ranks, Tokens] = {}  # Tokens that the next collective of the same ranks waits for.
        for step in self._trace.steps:
            ready = [
                [begun[rank], *(done[each] for each in after)]
                for rank, after in zip(step.ranks, step.after, strict=True)
            ]
            node, (rank, *_) = step.node, step.ranks
            place, free = (self._place(rank, name) if name else 0 for name in (node.place, node.free))
            if node.kind == "turn" or free:
                # Computing waits for an event more, so that messages that are ready at the same time come first.
                waits = ready[0] if free else [messages.wait(hosts[rank], ready[0])]
                ended = [messages.acquire(place, free, waits)]
            elif node.kind in ("compute", "receive"):
                took_ns = round(node.duration_ns * job.batch * slowness(job, rank))
                ended = [messages.wait(hosts[rank], ready[0], took_ns, place)]
            elif node.kind == "send":
                ended = [messages.send(hosts[rank], hosts[node.ranks[1]], node.size, ready[0], place=place)]
            else:
                for tokens, earlier in zip(ready, before.get(step.ranks, ()), strict=False):
                    tokens += earlier
                ended, before[step.ranks] = self._add_collective(step, ready)
            for rank, member, token in zip(step.ranks, step.members, ended, strict=True):
                done[member] = token
                last[rank].append(token)
        finished = [[messages.wait(host, last[at])] for at, host in enumerate(hosts)]
        self._ended.append([finished])
        return finished

    def _place(self, rank: int, name: str) -> int:
        """Return the number of a rank's place; "": that of the line of all of them."""
        if (rank, name) not in self._places:
            line = self._place(rank, "") if name else 0
            self._places[rank, name] = self._messages.add_place(line)
        return self._places[rank, name]

    def _add_collective(self, step: GraphStep, ready: Tokens) -> tuple[list[int], Tokens]:
        """Add a collective; returns for each rank when it has ended, and when the next one of these ranks may begin."""
        messages, node = self._messages, step.node
        if node.kind in CARRIED and step.ranks in self._groups:
            first = self._parts_begun[step.ranks]
            parts = range(first, first + len(parts_of(step)))
            self._parts_begun[step.ranks] = parts.stop
            ended = [messages.promise() for _ in step.ranks]
            start = self._groups[step.ranks].start
            return ended, [
                [messages.call(tokens, start, at, parts, partial(messages.keep, ended[at]))]
                for at, tokens in enumerate(ready)
            ]
        hosts = [self._group.workers[rank] for rank in step.ranks]
        servers = hosts if self._group.servers is self._group.workers else self._group.servers
        group = replace(
            self._group, workers=hosts, servers=servers, density=node.density, common=node.density < 1
        )
        carry = COLLECTIVES.get(node.kind) or PEERS[self.settings.contender]
        done = carry(group, node.size, ready)
        ended = [messages.wait(host, tokens) for host, tokens in zip(hosts, done, strict=True)]
        return ended, [[each] for each in ended]
