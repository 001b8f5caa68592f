"""Results with a check: right bits or an error, whatever happens to packets; and no cost where none is asked for."""

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from host_agent.codecs.block_float import FLOAT32
from host_agent.collectives import AllReduceRequest
from host_agent.collectives.collective import BUSY
from host_agent.collectives.int64 import AllReduceInt64Request
from host_agent.errors import VerificationError
from host_agent.protocol.passes import Pass
from host_agent.verification.secret import Session, read_secret
from host_agent.verification.verified import OnCorruption, VerifiedRequest
from host_agent.wire import Admission
from host_agent.wire.constants import HEADER_BYTES
from sim.network.worker import Plan
from tests.dataplane.dataplane import bmv2, xdp
from tests.integration.simulated.star import Star, star_switch
from tests.integration.simulated.tree import TreeNetwork, fabric
from tests.integration.simulated.workload import CollectiveTask, random_task, sparse_task
from tests.integration.test_terrible_network import check, terrible
from tests.sim.explore.faults.catalogue import FAULTS
from tests.verification.at_length import tries
from tests.verification.campaign import SECRET, WORKERS, clean, corrupt, run, same
from tests.verification.campaign import check as check_results
from tests.verification.corruptions import KINDS, PARTLY_PROVEN, REQUESTS, Corruption, values
from tests.verification.hostile import Datagrams
from tests.verification.planted_faults import faulty, results
from tests.verification.sites import SITES


class PlannedTask:
    """A task of the network tests as a request."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan


def checked(
    task: CollectiveTask, worker: int, session: Session, on_corruption: OnCorruption = "raise"
) -> Plan:
    return VerifiedRequest(PlannedTask(task.plan(worker)), session, on_corruption).plan


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_on_terrible_networks_every_result_is_right_and_none_is_refused(workers: int) -> None:
    for seed in range(12):
        chance, rng = random.Random(seed), np.random.default_rng(seed)
        switch = star_switch(64)
        tasks = [random_task(rng, workers, 64) for _ in range(3)] + [
            sparse_task(rng, workers, 64, int(rng.integers(1, 40)))
        ]
        network = Star(switch, terrible(chance, workers), seed)
        secret = read_secret(SECRET) if seed % 2 else None
        sessions = [Session(secret) for _ in range(workers)]
        choice: OnCorruption = chance.choice(["raise", "retry"])
        hosts = network.add_job(
            switch.admit(workers, chance.choice([1, 2, 8])),
            lambda worker, tasks=tasks, sessions=sessions, choice=choice: [  # type: ignore[misc]
                checked(task, worker, sessions[worker], choice) for task in tasks
            ],
            at_once=chance.choice([1, 2, 5]),
            first_chunk=chance.choice([0, 2**32 - 5]),
        )
        network.run()
        check(tasks, hosts)
        assert {outcome.statistics.verified for host in hosts for outcome in host.outcomes} == {1}
        assert not any(outcome.statistics.corrupted for host in hosts for outcome in host.outcomes)


@pytest.mark.parametrize("secret", [None, SECRET], ids=["public", "secret"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_worker_returns_a_wrong_result(kind: str, secret: bytes | None) -> None:
    counts: Counter[str] = Counter()
    for number, name in enumerate(REQUESTS):
        corrupt(number, counts, secret, name=name, kind=kind)
    assert counts["right"] + counts["refused"] > WORKERS


def test_corruptions_at_the_decoder_are_refused_unless_they_change_nothing() -> None:
    for forge in (False, True):
        tried, refused, same_bits = tries(20_000, forge).sum(axis=0).tolist()
        assert tried == refused + same_bits
        assert refused > tried // 2


@pytest.mark.parametrize("name", PARTLY_PROVEN)
@pytest.mark.parametrize("kind", ["missing", "always missing", "bit", "moved lanes"])
def test_of_extremes_a_missing_contribution_and_a_difference_between_workers_show(
    name: str, kind: str
) -> None:
    counts: Counter[str] = Counter()
    for number in range(5):
        if "missing" in kind and name == "int32 bor":
            continue  # A worker without bits of its own is not missed.
        corrupt(number, counts, name=name, kind=kind, requests=PARTLY_PROVEN)
    for number in range(2):
        right, _ = clean(name, number, PARTLY_PROVEN)
        outcomes = run(name, number, requests=PARTLY_PROVEN)
        assert all(same(outcome.result, each) for outcome, each in zip(outcomes, right, strict=True))


@pytest.mark.parametrize("name", ["exact", "rows", "sparse", "int64 max"])
def test_nobody_accepts_what_follows_from_a_wrong_result_at_one_worker(name: str) -> None:
    wide: Any = lambda rank, ranks, seed: AllReduceInt64Request(values(rank, 150, seed, "int64"), "max")  # noqa: E731
    requests = REQUESTS | {"int64 max": wide}
    right, packets = clean(name, 0, requests)
    for at in range(packets):
        outcomes = run(name, 0, Corruption("larger", at, random.Random(1)), requests=requests)
        assert not check_results(name, 0, outcomes, right, Counter()), at


@pytest.mark.parametrize("name", ["exact", "rows"])
@pytest.mark.parametrize("checked", [False, True])
def test_results_that_lack_what_a_worker_sent_are_an_error_of_verification(name: str, checked: bool) -> None:
    def clear(datagrams: Datagrams, way: str) -> None:
        if way == "down":
            datagrams.lanes[datagrams.with_lanes] = 0

    for outcome in run(name, 0, clear, checked=checked):
        assert isinstance(outcome.error, VerificationError), repr(outcome.error)


def flip_once(at: int) -> Corruption:
    return Corruption("bit for all", at, random.Random(1))


def test_an_error_names_the_blocks_the_slots_and_the_worker() -> None:
    for rank, outcome in enumerate(run("float32 sum", 0, flip_once(0))):
        assert isinstance(outcome.error, VerificationError)
        text = str(outcome.error)
        assert text.startswith("allreduce number 0 (sum of 300 float32): ")
        assert f"worker {rank} did not receive the result of one contribution of every worker: " in text
        assert "blocks 0 to 4 of pass 0 (all slots, chunks from 4)" in text
        assert (outcome.statistics.verified, outcome.statistics.corrupted) == (1, 1)


@pytest.mark.parametrize("name", [*REQUESTS, *PARTLY_PROVEN])
def test_a_corrupted_result_is_repeated_once(name: str) -> None:
    requests = REQUESTS | PARTLY_PROVEN
    if name == "barrier":
        pytest.skip("a barrier has no lanes but those of its check")
    right, _ = clean(name, 0, requests)
    one = Corruption("bit", 0, random.Random(1))  # At one worker: all must repeat.
    outcomes = run(name, 0, one, on_corruption="retry", requests=requests)
    for outcome, expected in zip(outcomes, right, strict=True):
        assert outcome.error is None, outcome.error
        assert same(outcome.result, expected)
        assert outcome.statistics.corrupted == 1


def test_a_verdict_without_a_fault_costs_no_lanes() -> None:
    carried = []
    for choice in ("raise", "retry"):
        seen = Counter[str]()

        def count(datagrams: Datagrams, way: str, seen: Counter[str] = seen) -> None:
            seen["lanes"] += len(datagrams.with_lanes)
            seen["bytes"] += int(datagrams.lengths.sum())

        assert not any(one.error for one in run("float32 sum", 0, count, on_corruption=choice))
        carried.append(seen)
    assert carried[1]["lanes"] == carried[0]["lanes"]
    assert carried[1]["bytes"] - carried[0]["bytes"] == 2 * WORKERS * HEADER_BYTES  # Up and down.


def test_a_result_that_is_corrupted_twice_is_refused_by_all() -> None:
    always = Corruption("constant", 0, random.Random(1))
    for outcome in run("float32 sum", 0, always, on_corruption="retry"):
        assert isinstance(outcome.error, VerificationError)
        assert outcome.statistics.corrupted == 2


def test_the_source_survives_a_repeated_reduction_in_place() -> None:
    arrays = [np.full(100, rank + 1, np.float32) for rank in range(WORKERS)]
    outcomes = run(
        "in place",
        0,
        flip_once(0),
        on_corruption="retry",
        requests={"in place": lambda rank, ranks, seed: AllReduceRequest(arrays[rank], out=arrays[rank])},
    )
    assert [outcome.error for outcome in outcomes] == [None] * WORKERS
    for array, outcome in zip(arrays, outcomes, strict=True):
        assert outcome.result is array
        assert (array == 6).all()


def test_faulty_memory_of_a_switch_in_a_lossy_tree_never_gives_a_wrong_result() -> None:
    assert sum(faulty_memory(seed) for seed in range(4)) > 0, "no fault was found"


def faulty_memory(seed: int) -> int:
    """Flip bits in the lanes that switches hold; returns how many results were refused."""
    tree = fabric((2, 2), 64)
    rng = np.random.default_rng(seed)
    tasks = [random_task(rng, 4, 64) for _ in range(6)]
    tasks = [task for task in tasks if task.op in ("sum", "mean", "all_gather", "broadcast")]
    network = TreeNetwork(tree, terrible(random.Random(seed), 8), seed)
    sessions = [Session(None) for _ in range(4)]
    workers = network.add_workers(
        network.start_job(4).admissions,
        lambda rank: [checked(task, rank, sessions[rank], "retry") for task in tasks],
        timeout_ns=10**9,
    )
    for moment_ns in range(30_000, 3_000_000, 15_000):
        network.run(until=lambda moment_ns=moment_ns: network.network.now_ns > moment_ns)  # type: ignore[misc]
        engine = tree.switches[str(rng.choice(list(tree.switches)))].engine
        names = [name for name in engine.program.registers if "lane_" in name]
        place = engine.register_view(str(rng.choice(names)))[:8]  # Four slots, two versions.
        place ^= place.dtype.type(1 << int(rng.integers(32)))
    network.run()
    for worker in workers:
        for task, outcome in zip(tasks, worker.outcomes, strict=False):
            if not isinstance(outcome.error, VerificationError):
                task.check(outcome, worker.admission.rank)
    return sum(outcome.statistics.corrupted for worker in workers for outcome in worker.outcomes)


@pytest.mark.parametrize("name", ["seen-skipped", "complete-too-early", "unneeded-lanes-written"])
def test_wrong_results_of_a_faulty_program_or_core_are_found(name: str, tmp_path: Path) -> None:
    kind, start = faulty(FAULTS[name], tmp_path)
    assert results(kind, start, 6, False)["wrong"] > 0
    checked = results(kind, start, 6, True)
    assert checked["wrong"] == 0
    assert checked["refused"] > 0


def test_without_verify_a_pass_has_the_routines_of_its_codec() -> None:
    admission = Admission(1, 0, 1, 0, 1, 4, 64)
    collective = AllReduceRequest(np.ones(100, np.float32)).plan(admission, 0)
    (work,) = [step for step in collective.passes if step is not None and step is not BUSY]
    assert isinstance(work, Pass)
    assert work.codec is FLOAT32
    assert work.lay_out(64, 4)["payload"]["checks"] == 0


def test_the_check_of_an_array_costs_half_a_percent_of_its_bytes() -> None:
    for size, share in ((1 << 14, 0.02), (1 << 18, 0.005)):
        sent = []
        for verify in (False, True):
            seen = Counter[str]()

            def count(datagrams: Datagrams, way: str, seen: Counter[str] = seen) -> None:
                seen[way] += int(datagrams.lengths.sum()) + 42 * datagrams.lengths.size

            make: Any = lambda rank, ranks, seed: AllReduceRequest(np.ones(size, np.float32))  # noqa: E731, B023
            run("sum", 0, count, requests={"sum": make}, lanes=256, checked=verify, slots=64)
            sent.append(seen["up"])
        assert sent[1] - sent[0] <= share * sent[0], (size, sent)


@pytest.mark.parametrize(
    "site", [pytest.param(site, marks=[pytest.mark.bmv2] * (site == "bmv2")) for site in SITES]
)
def test_no_worker_returns_a_wrong_result_on_any_kind_of_switch(site: str) -> None:
    lacking = {"kernel": xdp.why_not, "bmv2": bmv2.why_not}.get(site)
    if lacking is not None and (reason := lacking()):
        pytest.skip(reason)
    counts: Counter[str] = Counter()
    link = os.environ.get("NETSUM_LINK")
    for number in range(1000, 1012):
        corrupt(number, counts, SECRET if number % 2 else None, site=site)
    assert os.environ.get("NETSUM_LINK") == link, "the tests that follow in this process would take it over"
    assert counts["right"] > 0
    assert counts["refused"] > 0
