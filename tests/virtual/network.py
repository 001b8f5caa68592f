"""How long communication takes on a star of hosts: collectives from the simulator, messages by the rate of the links."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from controller.ledger import DEFAULT_SLOTS
from sim.experiments.experiment import parse_experiment
from sim.experiments.sweeping import Finished, Swept
from sim.network.parameters import ETHERNET_FRAMING_BYTES

LANES: Final = 256
_CHUNK: Final = 4 * LANES  # Bytes of an array that a packet carries.
_SEGMENT: Final = 1448
_TCP_HEADERS: Final = 66
_LINKS_OF_A_ROUND_TRIP: Final = 4
_NS: Final = 1e9
_COLLECTIVES: Final = 2  # One after the other; the last counts, when round trips have been measured.
_EXPERIMENT: Final = f"""
question = "How long do the collectives of a training take?"
[[job]]
lanes = {LANES}
collectives = {_COLLECTIVES}
[run]
check = false
limit = "100000s"
"""


@dataclass(frozen=True)
class NetworkOf:
    """A star: every host's link has the same rate, and so has the round trip between any two."""

    rate_bps: int  # Rate of a link, each way.
    rtt_us: float  # Between two hosts, without waiting: four times a link's latency.


Durations = Mapping[tuple[int, int, int], float]
"""Seconds of an all-reduce by (bytes, workers, quorum); the quorum is 0 where there is none."""


def payload_of(op: str, size: int, workers: int) -> int:
    """Return the bytes of the all-reduce that takes as long as a collective over the switch, in whole packets.

    A broadcast takes the slots that a sum takes; workers gather by broadcasts one after the other.
    """
    whole = size * workers if op == "gather" else size
    return max(1, -(-whole // _CHUNK)) * _CHUNK


class StarLinks:
    """Links of a star.

    A message is queued at its sender's link, and at its receiver's, behind those before it; it is divided into TCP segments, of
    which none is lost or waits for an acknowledgement.
    """

    def __init__(self, network: NetworkOf, durations: Durations) -> None:
        self._network, self._durations = network, durations
        self._up_free: dict[int, float] = {}
        self._down_free: dict[int, float] = {}

    def collective(self, op: str, size: int, workers: int) -> float:
        """Return how long a collective takes."""
        return self._durations[payload_of(op, size, workers), workers, 0]

    def round(self, size: int, workers: int, quorum: int) -> float:
        """Return how long a round of a job with a quorum takes."""
        return self._durations[payload_of("sum", size, workers), workers, quorum]

    def message(self, sender: int, receiver: int, size: int, now: float) -> tuple[float, float]:
        """Return when the sender's link has taken a message, and when the receiver has it."""
        latency = self._network.rtt_us / 1e6 / _LINKS_OF_A_ROUND_TRIP
        segments = max(1, -(-size // _SEGMENT))
        overhead = _TCP_HEADERS + ETHERNET_FRAMING_BYTES
        duration = 8 * (size + segments * overhead) / self._network.rate_bps
        segment = 8 * (min(size, _SEGMENT) + overhead) / self._network.rate_bps
        departed = max(now, self._up_free.get(sender, 0.0)) + duration
        self._up_free[sender] = departed
        # The switch passes on the first segment when it has it whole.
        begun = max(departed - duration + segment + latency, self._down_free.get(receiver, 0.0))
        ended = max(begun + duration, departed + latency + segment)
        self._down_free[receiver] = ended
        return departed, ended + latency


class UniformLinks:
    """Links on which everything takes the same time; for trainings whose time is of no interest."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds

    def collective(self, op: str, size: int, workers: int) -> float:
        """Return the time."""
        return self._seconds

    def round(self, size: int, workers: int, quorum: int) -> float:
        """Return the time."""
        return self._seconds

    def message(self, sender: int, receiver: int, size: int, now: float) -> tuple[float, float]:
        """Return now, and now plus the time."""
        return now, now + self._seconds


def simulate_collectives(
    networks: Iterable[NetworkOf],
    sizes: Iterable[tuple[int, int, int]],
    folder: Path,
    on_finished: Callable[[Swept, Finished | None], None] = lambda swept, finished: None,
    slots: int = DEFAULT_SLOTS,
) -> dict[NetworkOf, dict[tuple[int, int, int], float]]:
    """Return how long all-reduces over one switch take, from the simulator: the P4 program, the worker core, ideal hosts.

    Points that the folder has are not run again.

    `sizes`: bytes, workers and quorum; 0 where there is none. `slots`: of the job.
    """
    from netsum.simulation import run_experiment

    written = {
        (f"{each.rate_bps}bit", f"{each.rtt_us * 1000 / _LINKS_OF_A_ROUND_TRIP:.0f}ns"): each
        for each in networks
    }
    by_job: dict[tuple[int, int], set[int]] = {}
    for size, workers, quorum in sizes:
        by_job.setdefault((workers, quorum), set()).add(size)
    found: dict[NetworkOf, dict[tuple[int, int, int], float]] = {each: {} for each in written.values()}
    for (workers, quorum), of_them in sorted(by_job.items()):
        settings = {
            "job.workers": [workers],
            "job.quorum": [quorum],
            "job.size": sorted(of_them),
            "job.slots": [slots],
            "topology.rate": sorted({rate for rate, _ in written}),
            "topology.latency": sorted({latency for _, latency in written}),
        }
        read = parse_experiment(_EXPERIMENT, "collectives", settings)
        for row in run_experiment(read, folder, on_finished=on_finished):
            network = written.get((row["topology.rate"], row["topology.latency"]))
            if network is not None and row["iteration"] == _COLLECTIVES - 1:
                found[network][row["size_bytes"], workers, quorum] = row["duration_ns"] / _NS
    return found
