"""torch.compile over netsum: each pattern gives the results of the same program uncompiled."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch
import torch.distributed as dist

from tests.integration.torch_model import flat, inputs_of, small_model
from tests.integration.torch_ranks import Ranks

pytestmark = pytest.mark.torch

Pattern = Callable[[int, int, Callable[..., Any]], list[float]]
PATTERNS: list[Pattern] = []

BACKEND = "aot_eager"
"""Traces as Inductor does, but does not need a C++ compiler."""


def pattern(function: Pattern) -> Pattern:
    """Mark a function that is run with `torch.compile`, and with a stand-in that compiles nothing."""
    PATTERNS.append(function)
    return function


def _train(
    model: Callable[[torch.Tensor], torch.Tensor], parameters: Iterator[torch.Tensor], rank: int
) -> None:
    descent = torch.optim.SGD(parameters, 0.1)
    for step in range(3):
        descent.zero_grad()
        model(inputs_of(step, rank)).square().mean().backward()
        descent.step()


@pattern
def compiled_model_in_ddp(rank: int, world: int, compiled: Callable[..., Any]) -> list[float]:
    model = torch.nn.parallel.DistributedDataParallel(compiled(small_model()))
    _train(model, model.parameters(), rank)
    return flat(model)


@pattern
def compiled_ddp(rank: int, world: int, compiled: Callable[..., Any]) -> list[float]:
    model = torch.nn.parallel.DistributedDataParallel(small_model())
    _train(compiled(model), model.parameters(), rank)
    return flat(model)


@pattern
def ddp_compiled_in_place(rank: int, world: int, compiled: Callable[..., Any]) -> list[float]:
    model = torch.nn.parallel.DistributedDataParallel(small_model())
    if compiled is not _uncompiled:
        model.compile(backend=BACKEND)
    _train(model, model.parameters(), rank)
    return flat(model)


@pattern
def compiled_step(rank: int, world: int, compiled: Callable[..., Any]) -> list[float]:
    model = torch.nn.parallel.DistributedDataParallel(small_model())
    descent = torch.optim.SGD(model.parameters(), 0.1)

    @compiled
    def step(inputs: torch.Tensor) -> None:
        descent.zero_grad()
        model(inputs).square().mean().backward()
        descent.step()

    for number in range(3):
        step(inputs_of(number, rank))
    return flat(model)


@pattern
def fully_sharded_first_form(rank: int, world: int, compiled: Callable[..., Any]) -> list[float]:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(small_model(), device_id=torch.device("cpu"), use_orig_params=True)
    _train(compiled(model), model.parameters(), rank)
    with FullyShardedDataParallel.summon_full_params(model):
        return flat(model)


@pattern
def fully_sharded(rank: int, world: int, compiled: Callable[..., Any]) -> list[float]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = small_model()
    fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
    _train(compiled(model), model.parameters(), rank)
    return [float(each) for shard in model.parameters() for each in shard.full_tensor().detach().flatten()]


@pattern
def all_reduce(rank: int, world: int, compiled: Callable[..., Any]) -> list[float]:
    @compiled
    def total(values: torch.Tensor) -> torch.Tensor:
        values = values * 2
        dist.all_reduce(values)
        return values + 1

    return list(total(inputs_of(0, rank)).flatten().tolist())


@pattern
def async_all_reduce(rank: int, world: int, compiled: Callable[..., Any]) -> list[float]:
    @compiled
    def total(values: torch.Tensor) -> torch.Tensor:
        values = values * 2
        work = dist.all_reduce(values, async_op=True)
        work.wait()
        return values + 1

    return list(total(inputs_of(0, rank)).flatten().tolist())


@pattern
def broadcast(rank: int, world: int, compiled: Callable[..., Any]) -> list[float]:
    @compiled
    def of_the_first(values: torch.Tensor) -> torch.Tensor:
        values = values * 2
        dist.broadcast(values, 0)
        return values + 1

    return list(of_the_first(inputs_of(0, rank)).flatten().tolist())


@pattern
def barrier(rank: int, world: int, compiled: Callable[..., Any]) -> list[float]:
    @compiled
    def after_all(values: torch.Tensor) -> torch.Tensor:
        values = values * 2
        dist.barrier()
        return values + 1

    return list(after_all(inputs_of(0, 0)).flatten().tolist())


@pattern
def reduce(rank: int, world: int, compiled: Callable[..., Any]) -> list[float]:
    @compiled
    def total(values: torch.Tensor) -> torch.Tensor:
        values = values * 2
        dist.reduce(values, 0)
        return values + 1

    result = total(inputs_of(0, rank)).flatten()
    dist.broadcast(result, 0)
    return list(result.tolist())


@pattern
def all_gather_and_reduce_scatter(rank: int, world: int, compiled: Callable[..., Any]) -> list[float]:
    @compiled
    def there_and_back(values: torch.Tensor) -> torch.Tensor:
        gathered = torch.empty(world * values.numel())
        dist.all_gather_into_tensor(gathered, values * 2)
        part = torch.empty_like(values)
        dist.reduce_scatter_tensor(part, gathered)
        dist.all_reduce(part)
        return part

    return list(there_and_back(inputs_of(0, rank).flatten()).tolist())


def _uncompiled(what: object) -> object:
    return what


def _run(rank: int, world: int, body: Pattern, compile_it: bool) -> list[float]:
    if not compile_it:
        return body(rank, world, _uncompiled)
    torch.compiler.reset()
    return body(rank, world, lambda what: torch.compile(what, backend=BACKEND))


@pytest.mark.parametrize("body", [pytest.param(each, id=each.__name__) for each in PATTERNS])
def test_a_compiled_program_gives_what_the_uncompiled_one_does(ranks: Ranks, body: Pattern) -> None:
    first, *others = ranks.run(_run, body, True)
    assert all(other == first for other in others)
    assert first == pytest.approx(ranks.run(_run, body, False)[0], rel=0, abs=1e-6)
