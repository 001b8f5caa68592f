"""Exact sums in a process group: one environment variable, every floating-point type, whatever the buckets."""

import hashlib
import io
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch
import torch.distributed as dist

import netsum
from netsum.torch import MicroBatches, Options
from tests.host_agent.test_exact_sums import wanted
from tests.integration.torch_ranks import Ranks

pytestmark = pytest.mark.torch
WORLD = 3
EXAMPLES = Path(__file__).parents[2] / "examples"


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
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    with pytest.raises(Exception, match="cannot be combined with compression, which is lossy"):
        netsum.compress(model, "powersgd")
    netsum.compress(model, "identity")
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


def example(rank: int, world: int, *arguments: Any) -> bytes:
    """Return the run of `examples/same_bits.py` that rank 0 saves."""
    sys.path.insert(0, os.fspath(EXAMPLES))
    import same_bits

    saved = io.BytesIO()
    torch.save(same_bits.train(*arguments), saved)
    return saved.getvalue()


@pytest.mark.timeout(600)
def test_the_example_ends_with_the_same_weights_whatever_the_number_of_workers() -> None:
    sys.path.insert(0, os.fspath(EXAMPLES))
    import same_bits

    def trained(ranks: Ranks, *arguments: Any) -> Any:
        one, *others = (
            torch.load(io.BytesIO(each), weights_only=False) for each in ranks.run(example, *arguments)
        )
        assert all(each.digest == one.digest for each in others)
        return one

    with Ranks(1) as alone, Ranks(3) as three:
        runs = [trained(ranks, "exact", 0, 4) for ranks in (alone, three)]
        half = trained(three, "exact", 0, 2)
        runs.append(trained(alone, "exact", 2, 4, half.state))
        assert len({run.digest for run in runs}) == 1
        assert not same_bits.first_difference(runs[0], runs[1])
        differences = [
            same_bits.first_difference(*(trained(each, "netsum", 0, 2) for each in (alone, three)))
        ]
        assert three.run(unusual_parameters) == [True] * 3
    with Ranks(1, backend="gloo") as alone, Ranks(3, backend="gloo") as three:
        differences.append(
            same_bits.first_difference(*(trained(each, "gloo", 0, 2) for each in (alone, three)))
        )
        assert three.run(refuses_gloo) == [True] * 3
    print(*differences, sep="\n")
    assert all(each.startswith("step 0, element ") for each in differences)


def unusual_parameters(rank: int, world: int) -> bool:
    """bfloat16, float64, no gradient at some micro-batches, and ranks without a micro-batch."""
    narrow, wide = torch.zeros(2, 150, dtype=torch.bfloat16), torch.zeros(5, dtype=torch.float64)
    for count in (1, 5):
        batches = MicroBatches([narrow, wide], count)
        for index in batches.of_step(0):
            assert narrow.grad is None
            narrow.grad = part(index, torch.bfloat16, 300).reshape(2, 150)
            if index % 2 == 0:
                wide.grad = part(index, torch.float64, 5)
        summands = [[part(index, torch.bfloat16, 300).float().numpy()] for index in range(count)]
        expected = torch.from_numpy(wanted(summands, "mean", "bfloat16")).to(torch.bfloat16).reshape(2, 150)
        assert narrow.grad is not None
        assert torch.equal(narrow.grad, expected)
        summands = [[part(index, torch.float64, 5).numpy() * (index % 2 == 0)] for index in range(count)]
        assert wide.grad is not None
        assert torch.equal(wide.grad, torch.from_numpy(wanted(summands, "mean")))
    return True


def refuses_gloo(rank: int, world: int) -> bool:
    with pytest.raises(Exception, match="added exactly by backend netsum, not by gloo"):
        MicroBatches([torch.zeros(1)], 1)
    return True


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(Exception, match="exact sums need all bits: leave out exact or bits"):
        Options(exact=True, bits=8)
    with pytest.raises(Exception, match="exact: expected one of False, True, got 2"):
        Options(exact=2)
