"""Exact sums by real worker cores and the real P4 program: the same bits over stars, trees, lanes, links and losses."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from host_agent.codecs.accumulator import Accumulator
from host_agent.collectives import AllReduceRequest, Collective
from host_agent.collectives.exact import Exact, ExactRequest
from host_agent.communicator import Communicator
from host_agent.errors import MismatchError, MisuseError
from host_agent.wire import Admission
from netsum.programs import compiled_program
from sim.network.network import Network
from sim.network.parameters import LinkParameters
from tests.host_agent.test_exact_sums import wanted
from tests.integration.simulated.loopback import LoopbackSwitch, on_all
from tests.integration.simulated.star import Star, star_switch
from tests.integration.simulated.tree import TreeNetwork, fabric
from tests.integration.test_terrible_network import terrible
from tests.sim.network.switch_with_jobs import SwitchWithJobs
from topologies.generated import star

WORKERS = 4
SIZE = 1000


def summands(seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    arrays = [np.ldexp(rng.standard_normal(SIZE), rng.integers(-40, 40, SIZE)) for _ in range(WORKERS)]
    return [each.astype(np.float32) for each in arrays]


def check(workers: Any, seed: int) -> None:
    expected = wanted([[each] for each in summands(seed)])
    for worker in workers:
        (outcome,) = worker.outcomes
        assert outcome.error is None
        assert outcome.result.tobytes() == expected.tobytes()


def plans(seed: int, rank: int) -> Any:
    return [ExactRequest(summands(seed)[rank]).plan]


@pytest.mark.parametrize("lanes", [64, 256])
@pytest.mark.parametrize("seed", range(4))
def test_a_star_with_losses_gives_the_correctly_rounded_sums(lanes: int, seed: int) -> None:
    switch = star_switch(lanes)
    network = Star(switch, terrible(random.Random(seed), WORKERS), seed)
    workers = network.add_job(switch.admit(WORKERS, 4), lambda rank: plans(seed, rank))
    network.run()
    check(workers, seed)


@pytest.mark.parametrize("shape", [(2, 2), (1, 3), ((1, 1), 2)], ids=str)
def test_so_does_a_tree(shape: Any) -> None:
    network = TreeNetwork(fabric(shape, 64), terrible(random.Random(5), WORKERS), 5)
    job = network.start_job(4)
    workers = network.add_workers(job.admissions, lambda rank: plans(5, rank))
    network.run()
    check(workers, 5)


@pytest.mark.parametrize(
    ("lanes", "link"), [(64, "udp"), (256, "udp"), (64, "memory"), (256, "memory"), (1024, "memory")]
)
def test_communicators_and_local_summands(monkeypatch: pytest.MonkeyPatch, lanes: int, link: str) -> None:
    monkeypatch.setenv("NETSUM_LINK", link)
    parts = summands(7)
    expected = wanted([[each] for each in parts], "mean")
    with LoopbackSwitch(lanes, 2) as switch:
        with_ends = switch.start_job()
        communicators = [
            Communicator(admission, bind=address, timeout_s=60) for admission, address in with_ends
        ]
        try:
            # Three summands at one worker, one at the other.
            given = [parts[:3], [parts[3]]]
            results = on_all(
                communicators, lambda each: each.allreduce(given[each.worker_id], op="mean", exact=True)
            )
            assert {each.tobytes() for each in results} == {expected.tobytes()}

            def accumulate(each: Communicator) -> Any:
                total = Accumulator(parts[0].shape, np.float32)
                for _ in range(2):  # The all-reduce empties it.
                    for part in given[each.worker_id]:
                        total.add(part)
                    result = each.allreduce(total, op="mean", exact=True)
                with pytest.raises(MisuseError, match="an Accumulator requires exact=True"):
                    each.allreduce(total)
                return result

            assert {each.tobytes() for each in on_all(communicators, accumulate)} == {expected.tobytes()}
            for how in ({"bits": 8}, {"sparse": "always"}, {"on_overflow": "saturate"}, {"seed": 3}):
                with pytest.raises(MisuseError, match="exact=True cannot be combined with"):
                    communicators[0].allreduce(parts[0], exact=True, **how)
            with pytest.raises(MisuseError, match="exact=True cannot be combined with compression"):
                communicators[0].allreduce(parts[0], exact=True, compression=object())  # type: ignore[arg-type]

            for error in on_all(
                communicators, lambda each: each.allreduce(parts[0], exact=each.worker_id == 0)
            ):
                assert isinstance(error, MismatchError)
                assert "data type and number of elements, and all of them exactly or none" in str(error)
        finally:
            for each in communicators:
                each.close()


def rounded_to(values: Any, dtype: str) -> Any:
    """Return values as an array of a type; those of bfloat16 in float32."""
    if dtype != "bfloat16":
        return values.astype(dtype)
    return (values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def virtual_seconds(arrays: list[Any], exact: Exact, rate_bps: int) -> float:
    """Return how long the links take for the all-reduce of an array of each worker."""
    programmed = SwitchWithJobs(compiled_program(256).json)
    network = Network(1, lanes=256)
    link = LinkParameters(rate_bps=rate_bps, latency_ns=50_000)
    network.add_topology(star(len(arrays)), link, programmed={"s1": programmed})
    hub, *hosts = network.nodes

    def plan(worker: int) -> list[Callable[[Admission, int], Collective[Any]]]:
        def make(admission: Admission, sequence: int) -> Collective[Any]:
            if exact:
                return ExactRequest(arrays[worker], "sum", None, exact).plan(admission, sequence)
            return AllReduceRequest(arrays[worker], "sum", None, "raise", "never").plan(admission, sequence)

        return [make]

    job = programmed.create_job("job", network.endpoints(hosts, hub), 256)
    network.add_job(job, hosts, hub, plan)
    network.run(limit_ns=10**13)
    outcomes = [worker.outcomes[0] for worker in network.workers]
    assert all(each.error is None for each in outcomes)
    assert len({each.result.tobytes() for each in outcomes}) == 1  # type: ignore[union-attr]
    return max(worker.ended_ns[0] for worker in network.workers) / 1e9


@pytest.mark.parametrize(("dtype", "most"), [("float32", 2.1), ("bfloat16", 1.15), ("float16", 1.15)])
@pytest.mark.parametrize("workers", [4, 8])
def test_what_normal_numbers_cost_on_limited_links_in_virtual_time(
    dtype: str, most: float, workers: int
) -> None:
    rng = np.random.default_rng(1)
    arrays = [rounded_to(rng.standard_normal(1 << 17), dtype) for _ in range(workers)]
    seconds = [
        virtual_seconds(arrays, how, 10**8) for how in (False, "bfloat16" if dtype == "bfloat16" else True)
    ]
    assert seconds[1] <= most * seconds[0]
