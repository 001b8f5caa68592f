"""Equal jobs, of which one is run: each has a pod of its own, and nothing there is drawn at random.

What happens to a job follows from its settings and its part of the network. Where these are the same for several jobs, and no
packets of others pass, their times and counters are the same, too: values, addresses, tokens and job numbers decide nothing
(docs/simulator.md). So one of them is run in a network of one pod, and what links and switches have counted there is copied to
the pods of all.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final

import numpy as np

from host_agent.wire.constants import MAX_JOB_ID
from sim.experiments.scenario import Scenario, topology_of
from sim.experiments.settings import JobTable, Settings, TopologyTable
from sim.experiments.work import work_of
from sim.network.engine.engine_records import COUNTS
from sim.peers.table import server_count

_SWITCH_COUNTS: Final = ("packets", "lost_in_queue", "unreachable", "busy_total_ps", "longest_wait_ps")


def equal_jobs(settings: Settings) -> tuple[int, ...]:
    """Return the numbers of jobs of which one is run, in ascending order; none, where fewer than two are equal.

    Raises SettingError: the settings do not fit together.
    """
    table, run = settings.topology, settings.run
    outside = settings.event or settings.script or settings.background or run.series
    if table.kind != "pods" or table.spines != 1 or not run.fast_forward or outside:
        return ()
    pods = [_pods_of(job, table) for job in settings.job]
    jobs_in = Counter(pod for each in pods for pod in each)
    found: defaultdict[JobTable, list[int]] = defaultdict(list)
    for number, job in enumerate(settings.job):
        if len(pods[number]) == 1 and jobs_in[min(pods[number])] == 1 and _repeats(job, table):
            found[replace(job, name="", first_host=1)].append(number)
    largest = max(found.values(), key=len, default=[])
    if len(largest) < 2 or len(settings.job) > MAX_JOB_ID:
        return ()
    regular = _pods_without_faults(settings)
    kept = tuple(number for number in largest if pods[number] <= regular)
    return kept if len(kept) > 1 else ()


def alone(settings: Settings, number: int) -> Settings:
    """Return the settings of a job in a network of one pod."""
    topology = replace(settings.topology, pods=1, hosts=0)
    return replace(settings, topology=topology, job=(replace(settings.job[number], first_host=1),), fault=())


def copy_counters(scenario: Scenario, once: Scenario, settings: Settings, equal: Sequence[int]) -> None:
    """Let links and switches of the pods of equal jobs have counted what those of one pod have."""
    table, network, ran = settings.topology, scenario.network, once.network
    links, switches = 2 * _edges_of_a_pod(table), table.leaves + table.spines
    numbers, those = (np.fromiter(each.network.link_numbers.values(), np.int64) for each in (scenario, once))
    core = table.spines * table.cores  # Switches that are in no pod.
    for number in equal:
        (pod,) = _pods_of(settings.job[number], table)
        for name in COUNTS:
            at = numbers[pod * links : (pod + 1) * links]
            network.link_records[name][at] = ran.link_records[name][those]
        first = core + pod * switches
        for name in _SWITCH_COUNTS:
            network.switch_records[name][first : first + switches] = ran.switch_records[name][core:]
    network.world["events"] += len(equal) * ran.events_run


def _pods_of(job: JobTable, table: TopologyTable) -> set[int]:
    """Return the pods that hosts of a job are in, and the switch that adds for it."""
    size = table.leaves * table.rack
    last = job.first_host - 1 + job.workers + server_count(job.contender, job.servers, job.workers) - 1
    adds = re.fullmatch(r"(?:agg|edge)(\d+)x\d+", job.switch)
    return {*range((job.first_host - 1) // size, last // size + 1), *map(int, adds.groups() if adds else ())}


def _edges_of_a_pod(table: TopologyTable) -> int:
    return table.spines * (table.leaves + table.cores) + table.leaves * table.rack


def _repeats(job: JobTable, table: TopologyTable) -> bool:
    """Whether a job begins with a pod, and goes through its switches with blocks that all travel alike."""
    at_start = (job.first_host - 1) % (table.leaves * table.rack) == 0
    own = job.contender == "netsum" and job.tree and not job.workload and not job.quorum
    return at_start and own and all(bucket.density == 1 for bucket in work_of(job).buckets)


def _pods_without_faults(settings: Settings) -> set[int]:
    """Return the numbers of pods with no link that may lose, delay or repeat packets."""
    table, topology = settings.topology, topology_of(settings)
    edges = _edges_of_a_pod(table)

    def regular(pod: int) -> bool:
        return not any(
            fnmatchcase(name, fault.links)
            for link in topology.links[pod * edges : (pod + 1) * edges]
            for name in link.names
            for fault in settings.fault
        )

    return {pod for pod in range(len(topology.hosts) // (table.leaves * table.rack)) if regular(pod)}
