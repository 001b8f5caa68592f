"""Exact sums in a process group: one environment variable, every floating-point type, whatever the buckets."""

import hashlib

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch
import torch.distributed as dist

from netsum.torch import Options
from tests.host_agent.test_exact_sums import wanted
from tests.integration.torch_ranks import Ranks

pytestmark = pytest.mark.torch
WORLD = 3


def part(rank: int, dtype: torch.dtype, size: int = 700) -> torch.Tensor:
    rng = np.random.default_rng(rank)
    return torch.from_numpy(np.ldexp(rng.standard_normal(size), rng.integers(-12, 12, size))).to(dtype) + 0


def body(rank: int, world: int) -> list[str]:
    digests = []
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        for op, name in ((dist.ReduceOp.SUM, "sum"), (dist.ReduceOp.AVG, "mean")):
            narrow = dtype == torch.bfloat16
            numbers = [
                [(p.float() if narrow else p).numpy()] for p in (part(each, dtype) for each in range(world))
            ]
            expected = wanted(numbers, name, "bfloat16" if narrow else "")
            whole, cut = part(rank, dtype), part(rank, dtype)
            dist.all_reduce(whole, op)
            for begin in range(0, cut.numel(), 190):
                dist.all_reduce(cut[begin : begin + 190], op)
            assert torch.equal(whole, torch.from_numpy(expected).to(dtype)), (dtype, name)
            assert torch.equal(whole, cut), (dtype, name)
            digests.append(hashlib.sha256(whole.view(torch.uint8).numpy().tobytes()).hexdigest())
    shard = torch.empty(100)
    dist.reduce_scatter_tensor(shard, part(rank, torch.float32, 100 * world))
    expected = wanted([[part(each, torch.float32, 100 * world).numpy()] for each in range(world)])
    assert torch.equal(shard, torch.from_numpy(expected[100 * rank : 100 * (rank + 1)]))
    counts = torch.arange(5) + rank
    dist.all_reduce(counts)  # Integers are exact as they are.
    assert counts.tolist() == [3 * each + 3 for each in range(5)]
    return digests


def test_one_variable_makes_sums_and_means_of_all_float_types_exact() -> None:
    ranks = Ranks(WORLD, {"NETSUM_EXACT": "1"})
    try:
        one, *others = ranks.run(body)
    finally:
        ranks.close()
    assert all(each == one for each in others)


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(Exception, match="exact sums send all bits: leave out either exact or bits"):
        Options(exact=True, bits=8)
    with pytest.raises(Exception, match="exact: expected one of False, True, got 2"):
        Options(exact=2)
