"""CUDA tensors over netsum, in processes that share a GPU: the tests of CPU tensors, and streams."""

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch
import torch.distributed as dist

from tests.integration.test_torch_collectives import CHECKS, bits_of_reductions
from tests.integration.test_torch_compression import SETTINGS, trained
from tests.integration.test_torch_ddp import USAGES, built_in_hooks
from tests.integration.torch_model import flat, inputs_of, small_model
from tests.integration.torch_ranks import Ranks

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that PyTorch can use (CUDA)"),
]

CYCLES = 30_000_000
"""Cycles of a kernel that only takes time: more than ten milliseconds."""
LENGTH = 1 << 20


def on_gpu(rank: int, world: int, body: Callable[..., Any], *arguments: Any) -> Any:
    """Run a test of CPU tensors with new tensors on the GPU by default."""
    with torch.device("cuda"):
        return body(rank, world, *arguments)


def _each(bodies: list[Any]) -> list[Any]:
    return [pytest.param(each, id=each.__name__) for each in bodies]


@pytest.mark.parametrize("body", _each(CHECKS))
def test_a_collective_gives_what_its_definition_says(ranks: Ranks, body: Callable[[int, int], None]) -> None:
    ranks.run(on_gpu, body)


def test_the_bits_are_those_of_cpu_tensors(ranks: Ranks) -> None:
    digests = {digest for digest, _ in ranks.run(bits_of_reductions) + ranks.run(on_gpu, bits_of_reductions)}
    assert len(digests) == 1


@pytest.mark.parametrize("body", _each([each for each in USAGES if each is not built_in_hooks]))
def test_what_people_do_with_ddp(ranks: Ranks, body: Callable[[int, int], list[float]]) -> None:
    first, *others = ranks.run(on_gpu, body)
    assert all(other == first for other in others)


def test_ddp_ends_where_it_does_over_gloo_and_on_the_cpu(ranks: Ranks) -> None:
    (over_netsum, over_gloo), *others = ranks.run(on_gpu, _ends)
    assert all(other[0] == over_netsum for other in others)
    assert over_netsum == pytest.approx(over_gloo, rel=0, abs=1e-6)
    assert over_netsum == pytest.approx(ranks.run(_ends)[0][0], rel=0, abs=1e-6)


def _ends(rank: int, world: int) -> list[list[float]]:
    ends, gloo = [], dist.new_group(backend="gloo")
    for group in (dist.group.WORLD, gloo):
        model = torch.nn.parallel.DistributedDataParallel(small_model(), process_group=group)
        descent = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(5):
            descent.zero_grad()
            model(inputs_of(step, rank)).square().mean().backward()
            descent.step()
        ends.append(flat(model))
    dist.destroy_process_group(gloo)
    return ends


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda each: "-".join(map(str, each.values())))
def test_compressed_gradients_end_with_the_same_bits_at_all_ranks(
    ranks: Ranks, settings: dict[str, Any]
) -> None:
    outcomes = ranks.run(on_gpu, trained, settings)
    assert all(torch.equal(each["parameters"], outcomes[0]["parameters"]) for each in outcomes)
    assert all(each["losses"][-1] < each["losses"][0] for each in outcomes)


# A collective of this rank's tensor, which holds its rank, and a tensor of its result; the values that are expected there.
Call = Callable[[int, int, torch.Tensor], tuple[Any, torch.Tensor, list[float]]]


def _all_reduce(rank: int, world: int, own: torch.Tensor) -> tuple[Any, torch.Tensor, list[float]]:
    return dist.all_reduce(own, async_op=True), own, [3.0] * world


def _all_reduce_transposed(rank: int, world: int, own: torch.Tensor) -> tuple[Any, torch.Tensor, list[float]]:
    return dist.all_reduce(own.view(world, -1).t(), async_op=True), own, [3.0] * world


def _broadcast(rank: int, world: int, own: torch.Tensor) -> tuple[Any, torch.Tensor, list[float]]:
    return dist.broadcast(own, 2, async_op=True), own, [2.0] * world


def _reduce_scatter(rank: int, world: int, own: torch.Tensor) -> tuple[Any, torch.Tensor, list[float]]:
    part = torch.zeros(LENGTH)
    return dist.reduce_scatter_tensor(part, own, async_op=True), part, [3.0]


def _all_gather(rank: int, world: int, own: torch.Tensor) -> tuple[Any, torch.Tensor, list[float]]:
    whole = torch.zeros(world * LENGTH)
    return dist.all_gather_into_tensor(whole, own[:LENGTH], async_op=True), whole, [0.0, 1.0, 2.0]


def _all_gather_list(rank: int, world: int, own: torch.Tensor) -> tuple[Any, torch.Tensor, list[float]]:
    whole = torch.zeros(world, LENGTH // 8, 8)
    pieces = [each.t() for each in whole]
    return dist.all_gather(pieces, own[:LENGTH].view(8, -1), async_op=True), whole, [0.0, 1.0, 2.0]


def _all_to_all(rank: int, world: int, own: torch.Tensor) -> tuple[Any, torch.Tensor, list[float]]:
    whole = torch.zeros(world * LENGTH)
    return dist.all_to_all_single(whole, own, async_op=True), whole, [0.0, 1.0, 2.0]


def _next(rank: int, world: int, own: torch.Tensor) -> tuple[Any, torch.Tensor, list[float]]:
    whole = torch.zeros(LENGTH)
    dist.isend(own[:LENGTH], (rank + 1) % world)
    return dist.irecv(whole, (rank - 1) % world), whole, [float((rank - 1) % world)]


CALLS = [_all_reduce, _all_reduce_transposed, _broadcast, _reduce_scatter, _all_gather, _all_gather_list]


@pytest.mark.parametrize("own_stream", [False, True])
@pytest.mark.parametrize("call", _each([*CALLS, _all_to_all, _next]))
def test_a_collective_follows_the_kernels_before_it_and_precedes_those_after_it(
    ranks: Ranks, call: Call, own_stream: bool
) -> None:
    ranks.run(on_gpu, _between_kernels, call, own_stream)


def _between_kernels(rank: int, world: int, call: Call, own_stream: bool) -> None:
    with torch.cuda.stream(torch.cuda.Stream() if own_stream else torch.cuda.current_stream()):
        for _ in range(3):
            own = torch.full((world * LENGTH,), 99.0)
            torch.cuda._sleep(CYCLES)
            own.fill_(rank)
            work, result, wanted = call(rank, world, own)
            work.wait()
            after = result + 1  # queued, while no thread waits for the GPU
            expected = torch.tensor(wanted).repeat_interleave(result.numel() // len(wanted)) + 1
            assert torch.equal(after.flatten(), expected)


def test_callbacks_of_a_future_see_the_result(ranks: Ranks) -> None:
    ranks.run(on_gpu, _with_callback)


def _with_callback(rank: int, world: int) -> None:
    with torch.cuda.stream(torch.cuda.Stream()):
        own = torch.full((LENGTH,), float(rank))
        future = dist.all_reduce(own, async_op=True).get_future()
        assert (future.then(lambda done: done.value()[0] * 2).wait() == 6).all()


def test_a_killed_rank_is_named_at_the_others(torch_service: str) -> None:
    with Ranks(3, {"NETSUM_CONTROLLER": torch_service}) as three:
        assert three.run(on_gpu, _killed) == ["named", None, "named"]


def _killed(rank: int, world: int) -> str:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    model(torch.ones(2, 8)).sum().backward()
    torch.cuda.synchronize()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(RuntimeError, match="rank 1 left before this was done"):
        model(torch.ones(2, 8)).sum().backward()
    with pytest.raises(dist.DistBackendError, match="rank 1 left before this was done"):
        dist.all_reduce(torch.ones(100))
    with pytest.raises(RuntimeError, match="rank 1 left before this was done"):
        dist.all_reduce(torch.ones(100), async_op=True).get_future().wait()
    return "named"
