"""One state for all permutations of interchangeable workers: nothing else is reached, and no verdict is another one."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netsum.programs import compiled_program
from sim.explore.engine import step_codes as codes
from sim.explore.engine.found_states import RECORD_BYTES
from sim.explore.engine.packing import host_at, unpack
from sim.explore.engine.steps import apply
from sim.explore.engine.symmetry import permute
from sim.explore.engine.worker_steps import timers_of
from sim.explore.engine.world import ALIVE, AT_KILLS, AT_LIFE, PACKET_SHIFT, STUCK
from sim.explore.interchangeable import permutations_of
from sim.explore.scenario import BlockPass, ExplorerScenario
from sim.explore.search import Search
from sim.explore.shrink import violates
from sim.explore.story import steps_of
from sim.explore.system import System
from sim.explore.work import subset_sums
from tests.sim.explore.faults.catalogue import FAULTS
from tests.sim.explore.faults.run import changed_worker, faulty_system

PROGRAM: Path = compiled_program(64).json
ONE, TWO = (BlockPass(),), (BlockPass(), BlockPass())
QUORUM = (BlockPass("quorum"), BlockPass("contributors"))

State = tuple[bytes, frozenset[bytes]]


def finished(system: System, symmetry: bool, **options: Any) -> Search:
    search = Search(system, symmetry=symmetry, **options)
    assert search.run().outcome == "exhausted"
    return search


def states_of(search: Search) -> Iterator[tuple[int, int]]:
    """Yield the address of each state that a search has kept, and how many packets it has."""
    arena, at = search.arrays["arena"], 0
    words = arena.view(np.uint32)
    while at < int(search.record["tail"][0]):
        yield arena.ctypes.data + at + RECORD_BYTES, int(words[at // 4 + 1])
        at += int(words[at // 4])


def orbit(search: Search, address: int, count: int) -> set[State]:
    """Return all permutations of a state: packets by their bytes, whose numbers differ from search to search."""
    world = search.system.world
    fixed, made = world.get("fixed_bytes"), world.arrays["turned"]
    given, target = np.int64(address), np.int64(made.ctypes.data)
    found = set()
    for which in range(world.get("permutations")):
        assert permute(search.system.record, np.int64(which), given, np.int64(count), target)
        entries = made[fixed : fixed + 4 * count].view(np.uint32).tolist()
        packets = frozenset(
            frame(search.system, e >> PACKET_SHIFT) + bytes([e >> 8 & 15, e & 255]) for e in entries
        )
        found.add((made[:fixed].tobytes(), packets))
    return found


@cache
def frame(system: System, number: int) -> bytes:
    """Return a packet: its way, its port and its bytes."""
    arrays = system.world.arrays
    about = arrays["about"][number]
    return bytes([about["way"], about["port"]]) + arrays["packets"][number, : about["length"]].tobytes()


def test_the_orbits_of_the_states_that_are_explored_are_all_states() -> None:
    scenario = ExplorerScenario("a barrier", rounds=(BlockPass("barrier"),))
    full = finished(System(scenario, PROGRAM), False, reduce=False)
    less = finished(System(scenario, PROGRAM), True, reduce=False)
    all_states = {state for kept in states_of(full) for state in orbit(full, *kept)}
    assert len(all_states) == full.progress.states
    total, reached = 0, set()
    for kept in states_of(less):
        images = orbit(less, *kept)
        total += len(images)
        reached |= images
    assert total == full.progress.states
    assert reached == all_states


@pytest.mark.parametrize(
    "scenario",
    [
        ExplorerScenario("three workers", workers=3, rounds=ONE),
        ExplorerScenario("three rounds", rounds=(*TWO, BlockPass())),
        ExplorerScenario("a worker dies", workers=3, rounds=ONE, kills=1),
        ExplorerScenario("a deadline passes", workers=3, rounds=ONE, deadlines=1),
        ExplorerScenario("two jobs", rounds=ONE, jobs=2, batches=False),
        ExplorerScenario("two slots", slots=2, rounds=ONE, batches=False),
        ExplorerScenario("a quorum", slots=2, rounds=QUORUM, quorum=1, batches=False),
        ExplorerScenario("one contributes", workers=3, rounds=(BlockPass("broadcast"), BlockPass("barrier"))),
        ExplorerScenario("the last one disagrees", workers=3, rounds=(BlockPass(agreed=False),)),
    ],
    ids=lambda scenario: scenario.name,
)
def test_the_orbits_of_switch_and_workers_are_all_that_are_reached(scenario: ExplorerScenario) -> None:
    full, less = (
        finished(System(scenario, PROGRAM), symmetry, order="largest") for symmetry in (False, True)
    )
    all_ends = {end for address, _ in states_of(full) for end in orbit(full, address, 0)}
    orbits = {frozenset(orbit(less, address, 0)) for address, _ in states_of(less)}
    assert set().union(*orbits) == all_ends
    assert len(all_ends) == full.progress.ends
    assert sum(map(len, orbits)) == full.progress.ends
    # Some have two that stand for them: stale lanes in a disputed slot are not part of the workers' keys.
    assert len(orbits) <= less.progress.ends < 1.01 * len(orbits)


def verdict(system: System, symmetry: bool) -> int:
    result = Search(system, symmetry=symmetry, order="largest", collect=False, memory_bytes=1 << 30).run()
    assert result.outcome in ("exhausted", "violated")
    return result.violation


@pytest.mark.parametrize(
    "name",
    [
        *("switchml", "seen-skipped", "never-answered", "probe-adds", "status-sees-none", "one-version"),
        *("results-to-one", "status-of-the-asker", "answered-too-early", "unsigned-age"),
        *("result-twice", "missing-not-heard", "failed-core-writes", "asker-named", "contributes-unasked"),
    ],
)
def test_a_fault_has_the_same_verdict(name: str) -> None:
    for scenario in FAULTS[name].scenarios:
        found = [
            verdict(faulty_system(FAULTS[name], scenario, PROGRAM), symmetry) for symmetry in (False, True)
        ]
        assert found[0] == found[1]


MISSING = "missing = not held or seen >> core.path_worker[level] & 1 == 0"


class Stepper:
    """Makes every step from a state, as the search does, without its reductions."""

    def __init__(self, search: Search) -> None:
        self.system, self.world = search.system, search.system.world
        self._blank = np.int64(self.system.blank.ctypes.data)
        self._fixed = self.world.get("fixed_bytes")

    def permuted(self, which: int, state: bytes) -> bytes:
        """Return the permuted state."""
        given, made = np.frombuffer(state, np.uint8), self.world.arrays["turned"]
        count = (len(state) - self._fixed) // 4
        numbers = map(np.int64, (which, given.ctypes.data, count, made.ctypes.data))
        assert permute(self.system.record, *numbers)
        return made[: len(state)].tobytes()

    def successors(self, state: bytes) -> set[tuple[int, bytes]]:
        """Return the outcome of each step: the result of `apply`, and the state with its packets."""
        found: set[tuple[int, bytes]] = set()
        scenario = self.system.scenario
        for host in range(scenario.hosts):
            if state[host_at(self.system.record, np.int64(host)) + AT_LIFE] == ALIVE:
                self._load(state)
                armed = timers_of(self.system.record, unpack(self.system.record, np.int64(host)))
                for chosen in subsets(armed):
                    self._make(found, state, codes.DRIVE, host, chosen)
                kinds = [
                    codes.BEGIN,
                    *[codes.OFFER] * (scenario.quorum > 0),
                    *[codes.FAIL] * scenario.deadlines,
                ]
                for kind in kinds:
                    self._with_timers(found, state, kind, host)
                if scenario.kills > state[AT_KILLS]:
                    self._make(found, state, codes.KILL, host)
        for place in range((len(state) - self._fixed) // 4):
            for how in (0, codes.TIRED, codes.ANSWERED):
                self._with_timers(found, state, codes.DELIVER, place, how)
        return found

    def _with_timers(
        self, found: set[tuple[int, bytes]], state: bytes, kind: int, what: int, how: int = 0
    ) -> None:
        self.world.put(armed=0)
        self._make(found, state, kind, what, how)
        for chosen in subsets(self.world.get("armed")):
            self._make(found, state, kind, what, how | chosen)

    def _make(self, found: set[tuple[int, bytes]], state: bytes, kind: int, what: int, how: int = 0) -> None:
        self._load(state)
        code = np.int64(codes.step_code(kind, what, how))
        result = int(apply(self.system.record, code, self._blank))
        size = self._fixed + 4 * self.world.get("entry_count")
        found.add((result, self.world.arrays["state"][:size].tobytes()))

    def _load(self, state: bytes) -> None:
        count = (len(state) - self._fixed) // 4
        for name in ("state", "from_state"):
            self.world.arrays[name][: len(state)] = np.frombuffer(state, np.uint8)
        self.world.put(entry_count=count, from_count=count)


def steps_commute(search: Search) -> bool:
    """Whether p(step(s)) = step(p(s)), byte for byte, for states s that were reached, all steps, and permutations p."""
    stepper, fixed = Stepper(search), search.system.world.get("fixed_bytes")
    memory = search.arrays["arena"]
    kept = [
        memory[address - memory.ctypes.data :][: fixed + 4 * count].tobytes()
        for address, count in states_of(search)
    ]
    choice = np.random.default_rng(26)
    for number in choice.choice(len(kept), min(len(kept), 60), replace=False):
        state, ways = kept[number], stepper.successors(kept[number])
        for which in choice.permutation(np.arange(1, search.system.world.get("permutations")))[:3].tolist():
            images = {(result, stepper.permuted(which, each)) for result, each in ways}
            if stepper.successors(stepper.permuted(which, state)) != images:
                return False
    return True


def subsets(bits: int) -> Iterator[int]:
    """Yield every set of the bits, the empty one last."""
    chosen = bits
    while chosen:
        yield chosen
        chosen = (chosen - 1) & bits
    yield 0


@pytest.mark.parametrize(
    "scenario",
    [
        ExplorerScenario("two workers", rounds=TWO),
        ExplorerScenario("three workers", workers=3, rounds=ONE),
        ExplorerScenario("three workers, one datagram at a time", workers=3, rounds=ONE, batches=False),
        ExplorerScenario("a worker dies", workers=3, rounds=ONE, kills=1),
        ExplorerScenario("a deadline passes", workers=3, rounds=ONE, deadlines=1),
        ExplorerScenario("two jobs", rounds=ONE, jobs=2, batches=False),
        ExplorerScenario("two slots", slots=2, rounds=ONE, batches=False),
        ExplorerScenario("a quorum", slots=2, rounds=QUORUM, quorum=1, batches=False),
        ExplorerScenario("four workers", workers=4, rounds=(BlockPass("barrier"),)),
    ],
    ids=lambda scenario: scenario.name,
)
def test_steps_commute_with_permutations(scenario: ExplorerScenario) -> None:
    assert steps_commute(finished(System(scenario, PROGRAM), True, order="largest"))


def test_steps_of_a_core_with_a_fault_of_one_worker_do_not_commute() -> None:
    worker = changed_worker("arrivals", ((MISSING, f"{MISSING} and core.worker_id != 1"),))
    system = System(ExplorerScenario("three", workers=3, rounds=ONE), PROGRAM, worker)
    assert not steps_commute(finished(system, True, order="largest", liveness=False))


def test_a_fault_of_one_worker_is_found() -> None:
    worker = changed_worker("arrivals", ((MISSING, f"{MISSING} and core.worker_id != 1"),))
    for scenario in (ExplorerScenario("two", rounds=TWO), ExplorerScenario("three", workers=3, rounds=ONE)):
        assert [verdict(System(scenario, PROGRAM, worker), each) for each in (False, True)] == [STUCK, STUCK]


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        (ExplorerScenario("sums", workers=3), 6),
        (ExplorerScenario("four", workers=4), 24),
        (ExplorerScenario("five of six", workers=6), 120),
        (ExplorerScenario("two jobs", workers=3, jobs=2, batches=False), 36),
        (ExplorerScenario("one contributes", workers=3, rounds=(BlockPass("broadcast"),)), 2),
        (ExplorerScenario("every other one is sparse", workers=4, rounds=(BlockPass("sparse"),)), 4),
        (ExplorerScenario("the last one disagrees", workers=3, rounds=(BlockPass(agreed=False),)), 2),
        (ExplorerScenario("order counts", workers=3, rounds=(BlockPass("max"),)), 1),
        (ExplorerScenario("ranks have exponents", workers=3, rounds=(BlockPass("float32"),)), 1),
        (ExplorerScenario("entries are written in order", epochs=2), 1),
        (ExplorerScenario("sources that claim to be a worker", unknown_sources=True), 1),
        (ExplorerScenario("child 0 sends for all", workers=3, parents=(0,), leaves=(0, 1, 1)), 1),
    ],
    ids=lambda value: value.name if isinstance(value, ExplorerScenario) else "",
)
def test_only_workers_that_mean_the_same_change_places(scenario: ExplorerScenario, expected: int) -> None:
    permutations = permutations_of(scenario)
    assert len(np.unique(permutations, axis=0)) == len(permutations) == expected
    assert permutations[0].tolist() == list(range(scenario.hosts))
    jobs = np.arange(scenario.hosts) // scenario.workers
    assert (jobs[permutations] == jobs).all()


def test_no_two_sets_of_workers_have_the_same_sum() -> None:
    rounds = tuple(BlockPass() for _ in range(5))
    sums = subset_sums(rounds, 2, 4).reshape(-1, 2)
    assert len(np.unique(sums, axis=0)) == 2 * len(rounds) * (2**4 - 1) + 1  # and the empty set's


def test_the_schedule_of_a_violation_is_one_of_the_workers_themselves() -> None:
    fault = FAULTS["switchml"]
    system = faulty_system(fault, fault.scenarios[0], PROGRAM)
    result = Search(system, order="largest", collect=False).run()
    made = steps_of(system, result.way)
    assert violates(faulty_system(fault, fault.scenarios[0], PROGRAM), made, result.violation)
    assert {step.host for step in made} == {0, 1}
