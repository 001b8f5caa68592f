"""Planted faults of P4 program and worker core, under losses: ``python -m tests.verification.planted_faults``.

Of each fault of the explorer's catalogue: how often workers returned a wrong result without a check, and with one. With one, that
must never be. Faults of trees run in a tree of three switches, those of quorums in a job with one, all others on a star.
"""

import ctypes
import random
import shutil
import sys
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from host_agent.errors import VerificationError
from host_agent.protocol.core import WorkerCore
from host_agent.wire import Admission
from sim.core_calls import CoreCode
from tests.integration.simulated.star import StarSwitch, program_file, star_switch
from tests.integration.simulated.tree import Fabric
from tests.sim.explore.faults.catalogue import FAULTS
from tests.sim.explore.faults.fault import Fault
from tests.sim.explore.faults.program import changed_program
from tests.sim.explore.faults.quorum_faults import QUORUM_FAULTS
from tests.sim.explore.faults.run import changed_worker
from tests.sim.explore.faults.tree_faults import TREE_FAULTS
from tests.sim.network.switch_with_jobs import SwitchWithJobs
from tests.verification import campaign
from tests.verification.hostile import Datagrams, HostileNetwork, HostileStar, HostileTree
from tests.verification.sites import QUORUM, SITES

LANES: Final = 64
SEEDS: Final = 20
SLOTS: Final = 2
NAMES: Final = ("float32 sum", "sparse", "exact", "all-gather", "broadcast", "reduce-scatter")
_KEPT: Final = 300  # Packets that may come again, also in a later epoch.


def faulty_program(fault: Fault, folder: Path) -> Path:
    """Write the program with a fault; returns its path."""
    assert fault.program is not None
    original, target = program_file(LANES), folder / f"{fault.name}.json"
    changed_program(original, fault.program, target)
    for suffix in (".capabilities.toml", ".p4info.txtpb"):
        shutil.copy(original.with_suffix(suffix), target.with_suffix(suffix))
    return target


class FaultySwitch(StarSwitch):
    """A switch whose program has a fault."""

    def __init__(self, fault: Fault, folder: Path) -> None:
        SwitchWithJobs.__init__(self, faulty_program(fault, folder))


class FaultyCore(WorkerCore):
    """A worker core with other machine code."""

    def __init__(self, code: CoreCode, admission: Admission, timeout_ns: int) -> None:
        super().__init__(admission, timeout_ns)
        integer = ctypes.c_int64
        self._receive = ctypes.CFUNCTYPE(None, *[integer] * 7)(code.receive.address)
        self._send = ctypes.CFUNCTYPE(integer, *[integer] * 9)(code.send.address)
        state, slots, passes = self.records
        self._addresses = state.ctypes.data, slots.ctypes.data, slots.size, passes.ctypes.data

    def on_datagram(self, datagram: npt.NDArray[np.uint8], now_ns: int) -> None:
        self._receive(*self._addresses, datagram.ctypes.data, datagram.size, now_ns)

    def transmit(self, now_ns: int, tx: npt.NDArray[np.uint8], tx_bytes: npt.NDArray[np.int32]) -> int:
        return int(self._send(*self._addresses, tx.ctypes.data, *tx.shape, tx_bytes.ctypes.data, now_ns))


class Faults:
    """Losses, and packets that come again later, for seeded runs.

    `kept`: earlier packets of each way and worker, which outlive the run.
    """

    def __init__(self, seed: int, kept: dict[tuple[str, int], deque[Any]]) -> None:
        self._chance = random.Random(seed)
        self._kept = kept

    def __call__(self, datagrams: Datagrams, way: str) -> None:
        for row in range(datagrams.lengths.size):
            luck = self._chance.random()
            kept = self._kept.setdefault((way, int(datagrams.workers[row])), deque(maxlen=_KEPT))
            if luck < 0.1 and kept:  # An earlier packet in its place.
                datagrams.words[row], datagrams.lengths[row] = self._chance.choice(kept)
            elif luck > 0.9:
                datagrams.lengths[row] = 0
            else:
                kept.append((datagrams.words[row].copy(), int(datagrams.lengths[row])))


Start = Callable[[], HostileNetwork]


def faulty(fault: Fault, folder: Path) -> tuple[str, Start]:
    """Return the kind of network that shows a fault, and what makes one with it."""
    if fault.program is not None and fault in TREE_FAULTS:
        tree = Fabric((2, 2), LANES, program=faulty_program(fault, folder))
        return "tree", lambda: HostileTree(tree, SLOTS)
    switch = FaultySwitch(fault, folder) if fault.program is not None else star_switch(LANES)
    kind = "quorum" if fault in QUORUM_FAULTS else "embedded"
    quorum = QUORUM if kind == "quorum" else 0
    start = partial(HostileStar, switch, SITES[kind].workers, SLOTS, quorum=quorum)
    if not fault.module:
        return kind, start
    make = partial(FaultyCore, changed_worker(fault.module, fault.changes))

    def with_cores() -> HostileNetwork:
        network = start()
        network.make_core = make
        return network

    return kind, with_cores


def results(kind: str, start: Start, seeds: int, checked: bool) -> Counter[str]:
    """Run requests, and count results that are right, wrong, refused by a check, and other errors."""
    counts: Counter[str] = Counter()
    kept: dict[tuple[str, int], deque[Any]] = {}
    requests: Mapping[str, Any] = SITES[kind].requests
    names = list(requests) if kind == "quorum" else NAMES
    for seed in range(seeds):
        name = names[seed % len(names)]
        right, _ = campaign.clean(name, seed, requests, kind)
        outcomes = campaign.run(
            name, seed, Faults(seed, kept), checked=checked, requests=requests, network=start()
        )
        said: Counter[str] = Counter()
        counts["wrong"] += len(campaign.check(name, seed, outcomes, right, said, None))
        counts["refused"] += sum(isinstance(outcome.error, VerificationError) for outcome in outcomes)
        counts["right"] += sum(outcome.error is None for outcome in outcomes)
        counts["failed"] += sum(outcome.error is not None for outcome in outcomes)
    counts["right"] -= counts["wrong"]
    counts["failed"] -= counts["refused"]
    return counts


def main() -> None:
    """Print a line for each fault; the command line may name some."""
    wrong = Counter[bool]()
    with tempfile.TemporaryDirectory() as folder:
        for fault in FAULTS.values():
            if fault.source or (sys.argv[1:] and fault.name not in sys.argv[1:]):
                continue
            kind, start = faulty(fault, Path(folder))
            found = {checked: results(kind, start, SEEDS, checked) for checked in (False, True)}
            for checked, counts in found.items():
                wrong[checked] += counts["wrong"]
            print(
                f"{fault.name} ({kind}): {dict(found[False])}; with a check {dict(found[True])}", flush=True
            )
    print(f"wrong results without a check: {wrong[False]}, with one: {wrong[True]}")


if __name__ == "__main__":
    main()
