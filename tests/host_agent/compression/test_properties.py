"""What every compressor declares about itself holds: bias, variance, contraction, summability, round trips."""

from typing import Any

import pytest

pytest.importorskip("torch", exc_type=ImportError)

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from host_agent.compression import (
    COMPRESSORS,
    Context,
    Reducer,
    Summability,
    make_compressor,
    make_memory,
    reduce_in_process,
)
from host_agent.compression.compressor import Compressor

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in COMPRESSORS},
    "block-float-16": ("block-float", {"bits": 16}),
    "block-float-4": ("block-float", {"bits": 4, "block": 64}),
    "block-float-2": ("block-float", {"bits": 2, "block": 16}),
    "block-float-nearest": ("block-float", {"bits": 4, "stochastic": False}),
    "qsgd-1": ("qsgd", {"levels": 1}),
    "eden-1": ("eden", {"bits": 1}),
    "eden-4": ("eden", {"bits": 4}),
    "thc-8": ("thc", {"bits": 8}),
    "random-k-unscaled": ("random-k", {"fraction": 0.3, "scaled": False}),
    "random-k-dense": ("random-k", {"fraction": 0.5}),
    "top-k-dense": ("top-k", {"fraction": 0.5}),
    "block-top-k-small": ("block-top-k", {"fraction": 0.5, "block": 8}),
    "3lc-sparse": ("3lc", {"sparsity": 1.9}),
    "random-block-float-4": ("random-block-float", {"fraction": 0.5, "bits": 4}),
}
SEEDS = 400


def made(variant: str) -> Compressor:
    name, options = VARIANTS[variant]
    return make_compressor(name, **options)


def sample(elements: int, seed: int = 0) -> "torch.Tensor":
    """Values whose magnitudes differ, as gradients' do."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(elements, generator=generator) * torch.rand(elements, generator=generator) ** 3


def one(compressor: Compressor, tensor: "torch.Tensor", seed: int = 0, rank: int = 0) -> "torch.Tensor":
    """What a tensor becomes for a group of one worker."""
    context = Context("key", tensor.shape, tensor.device, rank, 1, 0, seed)
    agreement = compressor.agree(tensor, context)
    shared = None if agreement is None else agreement.tensor
    return compressor.decompress(compressor.compress(tensor, shared, context), shared, context)


@pytest.mark.parametrize("variant", [name for name in VARIANTS if made(name).unbiased])
def test_an_unbiased_compressor_is_right_on_average(variant: str) -> None:
    tensor = sample(96)
    errors = torch.stack([one(made(variant), tensor, seed) - tensor for seed in range(SEEDS)]).double()
    # Without bias the mean of N errors has 1/N of their energy. EDEN is unbiased only for uniform random rotations.
    energy = errors.square().sum(dim=1).mean()
    slack = 1e-3 if isinstance(made(variant), COMPRESSORS["eden"]) else 1e-12
    assert errors.mean(dim=0).square().sum() <= 2.5 * energy / SEEDS + slack * tensor.double().square().sum()


@pytest.mark.parametrize("variant", [name for name in VARIANTS if made(name).omega(96) is not None])
@pytest.mark.parametrize("elements", [1, 96, 700])
def test_the_variance_bound_holds(variant: str, elements: int) -> None:
    tensor = sample(elements)
    bound = made(variant).omega(elements)
    assert bound is not None
    errors = torch.tensor(
        [
            float((one(made(variant), tensor, seed) - tensor).square().sum() / tensor.square().sum())
            for seed in range(150)
        ],
        dtype=torch.float64,
    )
    assert errors.mean() <= bound + 4 * errors.std() / 150**0.5 + 1e-6


@pytest.mark.parametrize("variant", [name for name in VARIANTS if made(name).delta(96) is not None])
@settings(max_examples=15, deadline=None)
@given(
    elements=st.integers(1, 300),
    spread=st.floats(0, 8),
    scale=st.sampled_from([1e-12, 1.0, 1e12]),
    seed=st.integers(0, 99),
)
def test_the_contraction_holds(variant: str, elements: int, spread: float, scale: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    tensor = torch.randn(elements, generator=generator) * torch.rand(elements, generator=generator) ** spread
    tensor = tensor * scale
    delta = made(variant).delta(elements)
    assert delta is not None
    if variant in ("random-k-unscaled", "qsparse"):  # contractions on average
        energy = (
            sum(float((one(made(variant), tensor, each) - tensor).square().sum()) for each in range(60)) / 60
        )
        slack = 0.2
    else:
        energy = float((one(made(variant), tensor, seed) - tensor).square().sum())
        slack = 1e-5
    assert energy <= (1 - delta + slack) * float(tensor.square().sum()) + 1e-30


@pytest.mark.parametrize("workers", [1, 3, 8])
@pytest.mark.parametrize(
    "variant",
    [name for name in VARIANTS if made(name).summability is not Summability.NONE and made(name).linear],
)
def test_a_sum_of_payloads_decompresses_to_the_sum(variant: str, workers: int) -> None:
    compressor = made(variant)
    tensors = [sample(333, seed) for seed in range(workers)]
    contexts = [
        Context("key", torch.Size([333]), tensors[0].device, rank, workers, 0) for rank in range(workers)
    ]
    agreements = [compressor.agree(each, context) for each, context in zip(tensors, contexts, strict=True)]
    shared = None
    if agreements[0] is not None:
        stacked = torch.stack([each.tensor for each in agreements if each is not None])
        op = agreements[0].op
        shared = stacked.amax(dim=0) if op == "max" else stacked.sum(dim=0) if op == "sum" else stacked[0]
    payloads = [
        compressor.compress(each, shared, context) for each, context in zip(tensors, contexts, strict=True)
    ]
    if compressor.summability is Summability.INTEGERS:
        assert all(part.dtype == torch.int32 for payload in payloads for part in payload)
        exact = sum(part.to(torch.int64) for part in (payload[0] for payload in payloads))
        assert int(exact.abs().max()) < 2**31
    summed = tuple(
        torch.stack(parts).sum(dim=0, dtype=parts[0].dtype) for parts in zip(*payloads, strict=True)
    )
    together = compressor.decompress(summed, shared, contexts[0], workers)
    apart = sum(
        compressor.decompress(payload, shared, context)
        for payload, context in zip(payloads, contexts, strict=True)
    )
    assert torch.allclose(together, apart, rtol=1e-4, atol=1e-5 * float(apart.abs().max()))


@pytest.mark.parametrize("shape", [(0,), (1,), (7,), (5, 3), (2, 3, 4), (1000,), (70001,)])
@pytest.mark.parametrize("variant", VARIANTS)
def test_all_workers_get_the_same_bits_in_the_tensors_shape(variant: str, shape: tuple[int, ...]) -> None:
    workers = 3
    tensors = [sample(torch.Size(shape).numel(), seed).view(shape) for seed in range(workers)]
    outcomes = []
    for _ in range(2):
        reducers = [
            Reducer(made(variant), make_memory("none"), rank, workers, seed=5) for rank in range(workers)
        ]
        first = reduce_in_process(reducers, "key", tensors)
        second = reduce_in_process(reducers, "key", tensors)
        assert all(each.shape == torch.Size(shape) and each.dtype == torch.float32 for each in first + second)
        assert all(bool((each == first[0]).all()) for each in first)
        outcomes.append((first[0], second[0]))
    # The same seed gives the same bits in another run.
    assert all(bool((one == other).all()) for one, other in zip(*outcomes, strict=True))
    if shape != (0,):
        assert bool(torch.isfinite(outcomes[0][0]).all())


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("memory", ["none", "residual"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_value_that_is_not_finite_is_seen_by_all_and_changes_no_state(
    variant: str, memory: str, bad: float
) -> None:
    workers = 3
    tensors = [sample(640, seed) for seed in range(workers)]
    broken = [each.clone() for each in tensors]
    broken[1][401] = bad
    reducers = [Reducer(made(variant), make_memory(memory), rank, workers) for rank in range(workers)]
    for each in reduce_in_process(reducers, "key", broken):
        assert bool(torch.isnan(each).all())
    fresh = [Reducer(made(variant), make_memory(memory), rank, workers) for rank in range(workers)]
    expected = reduce_in_process(fresh, "key", tensors)
    for each, wanted in zip(reduce_in_process(reducers, "key", tensors), expected, strict=True):
        assert bool((each == wanted).all())


@pytest.mark.parametrize("variant", VARIANTS)
def test_zeros_stay_zeros(variant: str) -> None:
    assert not one(made(variant), torch.zeros(700)).any()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_checkpoint_goes_on_with_the_same_bits(variant: str) -> None:
    tensors = [sample(640, seed) for seed in range(6)]
    reducers = [Reducer(made(variant), make_memory("residual"), rank, 2) for rank in range(2)]
    for step in range(2):
        reduce_in_process(reducers, "key", tensors[2 * step : 2 * step + 2])
    restored = [Reducer(made(variant), make_memory("residual"), rank, 2) for rank in range(2)]
    for old, new in zip(reducers, restored, strict=True):
        new.load_state_dict(old.state_dict())
    one_way = reduce_in_process(reducers, "key", tensors[4:])
    other_way = reduce_in_process(restored, "key", tensors[4:])
    assert all(bool((a == b).all()) for a, b in zip(one_way, other_way, strict=True))


def test_at_least_24_methods_each_with_its_source() -> None:
    methods = [each for each in COMPRESSORS.values() if each.family != "identity"]
    assert len(methods) >= 24
    assert all(each.source for each in methods)
