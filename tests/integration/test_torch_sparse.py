"""Sparse tensors, and groups with options, over netsum: what Gloo gives, and the same bits at all ranks."""

from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch
import torch.distributed as dist

from tests.integration.torch_ranks import Ranks

pytestmark = pytest.mark.torch


def _sparse(rank: int, dtype: Any, shape: tuple[int, ...], sparse_dims: int, entries: int) -> Any:
    """Entries of whole numbers at places of which some are the same, at one rank and at several."""
    generator = torch.Generator().manual_seed(7 + rank)
    places = torch.stack(
        [torch.randint(0, size, (entries,), generator=generator) for size in shape[:sparse_dims]]
    )
    values = torch.randint(-50, 50, (entries, *shape[sparse_dims:]), generator=generator).to(dtype)
    return torch.sparse_coo_tensor(places, values, shape)


def _as_over_gloo(rank: int, world: int) -> list[Any]:
    gloo = dist.new_group(backend="gloo")
    results: list[Any] = []
    chunks = dist.group.WORLD.communicator.total_stats.chunks
    for dtype, shape, sparse_dims, entries in (
        (torch.float32, (1000, 16), 1, 40),
        (torch.float64, (50, 3), 1, 100),
        (torch.int64, (20, 30, 4), 2, 25),
        (torch.float32, (300_000, 8), 1, 5),
        (torch.float32, (77,), 1, 0 if rank == 0 else 9),
        (torch.float32, (10, 2), 1, 0),
    ):
        mine, theirs = (_sparse(rank, dtype, shape, sparse_dims, entries) for _ in range(2))
        dist.all_reduce(mine)
        dist.all_reduce(theirs, group=gloo)
        assert mine.is_coalesced()
        assert mine.shape == theirs.shape
        assert torch.equal(mine.to_dense(), theirs.to_dense()), (dtype, shape)
        assert torch.equal(mine.indices(), theirs.coalesce().indices())
        results.append(mine.to_dense().flatten()[:500].tolist())
    assert dist.group.WORLD.communicator.total_stats.chunks > chunks, "the switch added them"
    return results


def test_sums_of_sparse_tensors_are_those_over_gloo(ranks: Ranks) -> None:
    first, *others = ranks.run(_as_over_gloo)
    assert all(other == first for other in others)


def _embedding(rank: int, world: int, backend: str) -> list[float]:
    group = dist.group.WORLD if backend == "netsum" else dist.new_group(backend=backend)
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.EmbeddingBag(500, 8, sparse=True), torch.nn.Linear(8, 2))
    model = torch.nn.parallel.DistributedDataParallel(model, process_group=group)
    descent = torch.optim.SGD(model.parameters(), 0.1)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(4):
        descent.zero_grad()
        words = torch.randint(0, 500, (6, 5), generator=generator)
        model(words).square().mean().backward()
        assert model.module[0].weight.grad.is_sparse
        descent.step()
    return [float(each) for parameter in model.parameters() for each in parameter.detach().flatten()]


def test_ddp_with_sparse_and_dense_parameters_trains_as_over_gloo(ranks: Ranks) -> None:
    first, *others = ranks.run(_embedding, "netsum")
    assert all(other == first for other in others)
    over_gloo = ranks.run(_embedding, "gloo")[0]
    torch.testing.assert_close(first, over_gloo, rtol=0, atol=1e-6)


def _options(rank: int, world: int) -> list[float]:
    from netsum.torch import Options

    values = torch.linspace(-1, 1, 1000) * (rank + 1)
    exact = values.clone()
    dist.all_reduce(exact)
    group = dist.new_group(backend="netsum", pg_options=Options(bits=8, sparse="always"))
    few, largest = values.clone(), values.clone()
    dist.all_reduce(few, group=group)
    dist.all_reduce(largest, dist.ReduceOp.MAX, group=group)
    # Half of a level for each worker; the largest magnitude, world, is a bfloat16.
    bound = world / 2 * world / (127 // world)
    assert 0 < float((few - exact).abs().max()) <= bound
    assert float(largest.max()) == world
    assert group.communicator.total_stats.sparse_blocks > 0
    return list(few.tolist())


def test_a_group_with_few_bits(ranks: Ranks) -> None:
    first, *others = ranks.run(_options)
    assert all(other == first for other in others)


def _narrow_types(rank: int, world: int) -> None:
    from host_agent.codecs.packed import bits_of_type, packed_codec
    from netsum.torch import Options

    full = dist.new_group(backend="netsum", pg_options=Options(bits="full"))
    dist.barrier(full)
    size = 1 << 14
    for dtype in (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2):
        name = str(dtype).removeprefix("torch.")
        bits = bits_of_type(name, world)
        limits = torch.finfo(dtype)
        # Numbers of one block differ by up to 2^60, or as much as the type can hold: the hardest for a common exponent.
        drawn = torch.Generator().manual_seed(7)
        powers = torch.rand(world, size, generator=drawn, dtype=torch.float64) * 60 - 30
        signs = torch.randint(0, 2, (world, size), generator=drawn) * 2 - 1
        given = (signs * 2**powers).clamp(limits.min / (2 * world), limits.max / (2 * world)).to(dtype)
        total = given.double().sum(0)
        received = {}
        for how in (None, full):
            group = how or dist.group.WORLD
            before = group.communicator.total_stats.bytes_sent
            sums = given[rank].clone()
            dist.all_reduce(sums, group=group)
            received[how] = group.communicator.total_stats.bytes_sent - before
            if how is None:
                codec = packed_codec(bits, world)
                block = codec.per_lane * group.communicator.admission.lanes
                for start in range(0, size, block):
                    part = slice(start, start + block)
                    largest = float(given[:, part].double().abs().max()) * (1 + 2**-7)
                    bound = world / 2 * largest / codec.settings["levels"]
                    error = (sums[part].double() - total[part]).abs()
                    rounding = total[part].abs() * limits.eps + limits.smallest_normal * limits.eps
                    assert bool((error <= bound * (1 + limits.eps) + rounding).all()), (dtype, start)
            else:
                torch.testing.assert_close(
                    sums.double(), total, rtol=limits.eps, atol=float(total.abs().max()) * 2**-20
                )
        assert received[None] < received[full] * (0.3 if bits == 8 else 0.55), dtype


def test_narrow_types_travel_in_as_many_bits_as_they_are_worth(ranks: Ranks) -> None:
    ranks.run(_narrow_types)


def test_options_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from host_agent.errors import MisuseError
    from host_agent.torch.options import Options

    monkeypatch.setenv("NETSUM_BITS", "16")
    monkeypatch.setenv("NETSUM_SPARSE", "never")
    monkeypatch.setenv("NETSUM_ROUNDING", "stochastic")
    monkeypatch.setenv("NETSUM_SEED", "7")
    assert Options.from_environment() == Options("never", 16, "stochastic", 7)
    monkeypatch.setenv("NETSUM_BITS", "12")
    with pytest.raises(MisuseError, match="bits: expected one of auto, full, 16, 8, 4, 2, got 12"):
        Options.from_environment()
