"""Every declared property of a compressor holds: bias, variance, contraction, summability, round trips."""

from typing import Any

import pytest

pytest.importorskip("torch", exc_type=ImportError)

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from host_agent.compression import (
    COMPRESSORS,
    MEMORIES,
    Context,
    IncompatibleError,
    Reducer,
    Summability,
    make_compressor,
    make_memory,
    reduce_in_process,
)
from host_agent.compression.compressor import COMPARISON, Compressor
from host_agent.compression.survey import survey
from host_agent.errors import MisuseError

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in COMPRESSORS},
    "block-float-16": ("block-float", {"bits": 16}),
    "block-float-4": ("block-float", {"bits": 4, "block": 64}),
    "block-float-2": ("block-float", {"bits": 2, "block": 16}),
    "block-float-nearest": ("block-float", {"bits": 4, "stochastic": False}),
    "qsgd-1": ("qsgd", {"levels": 1}),
    "thc-8": ("thc", {"bits": 8}),
    "random-k-unscaled": ("random-k", {"fraction": 0.3, "scaled": False}),
    "random-k-dense": ("random-k", {"fraction": 0.5}),
    "top-k-dense": ("top-k", {"fraction": 0.5}),
    "random-block-float-4": ("random-block-float", {"fraction": 0.5, "bits": 4}),
}
SEEDS = 400
SIZES = [*((elements, 1.0) for elements in (1, 2, 3, 8, 96, 700)), (96, 1e-25), (96, 1e25)]
"""Elements and scale; squares of the last two leave float32's range."""
ON_AVERAGE = ("random-k-unscaled",)
"""Contractions of their expectation."""


def made(variant: str) -> Compressor:
    name, options = VARIANTS[variant]
    return make_compressor(name, **options)


def sample(elements: int, seed: int = 0) -> "torch.Tensor":
    """Values whose magnitudes differ, as gradients' do."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(elements, generator=generator) * torch.rand(elements, generator=generator) ** 3


def one(compressor: Compressor, tensor: "torch.Tensor", seed: int = 0, rank: int = 0) -> "torch.Tensor":
    """The result of a tensor for a group of one worker."""
    context = Context("key", tensor.shape, tensor.device, rank, 1, 0, seed)
    agreement = compressor.agree(tensor, context)
    shared = None if agreement is None else agreement.tensor
    return compressor.decompress(compressor.compress(tensor, shared, context), shared, context)


UNBIASED = [name for name in VARIANTS if made(name).unbiased]
LARGEST = float(torch.finfo(torch.float32).max)
HARD = {
    "one": [3.0],
    "two": [3.0, 1.0],
    "three": [3.0, 2.0, -1.5],
    "one large": [1e3, *[1.0] * 95],
    "three large": [0.0, -4e3, 1.0, 4e3, 3e3, *[0.5] * 90],
}
"""Tensors on which bounds are tight: the rest of their elements is zero."""


def hard(kind: str, elements: int = 96) -> "torch.Tensor":
    return torch.nn.functional.pad(
        torch.tensor(HARD[kind])[:elements], (0, max(0, elements - len(HARD[kind])))
    )


def check_unbiased(errors: "torch.Tensor") -> None:
    """Check that errors (draws, elements) have a mean of zero: of N errors without bias it has 1/N of their energy.

    The limit is four standard deviations if errors have one degree of freedom, as those of sparse tensors may: normal ones
    exceed it with a probability of 6.3e-5, with more degrees of freedom less. Seeds are fixed, so a test fails always or never.
    """
    energy = errors.square().sum(dim=1).mean()
    assert errors.mean(dim=0).square().sum() <= 16 * energy / errors.shape[0] + 1e-12


@pytest.mark.parametrize("variant", UNBIASED)
def test_an_unbiased_compressor_is_right_on_average(variant: str) -> None:
    tensor = sample(96)
    errors = torch.stack([one(made(variant), tensor, seed) - tensor for seed in range(SEEDS)]).double()
    energy = errors.square().sum(dim=1).mean()
    assert errors.mean(dim=0).square().sum() <= 2.5 * energy / SEEDS + 1e-12 * tensor.double().square().sum()


@pytest.mark.parametrize("kind", HARD)
@pytest.mark.parametrize("variant", UNBIASED)
def test_it_is_right_on_average_of_sparse_tensors(variant: str, kind: str) -> None:
    tensor = hard(kind)
    norm = tensor.norm()
    check_unbiased(
        torch.stack([(one(made(variant), tensor, seed) - tensor) / norm for seed in range(SEEDS)]).double()
    )


@pytest.mark.parametrize("workers", [2, 3, 8])
@pytest.mark.parametrize("variant", UNBIASED)
def test_the_mean_of_different_workers_is_right_on_average(variant: str, workers: int) -> None:
    kinds = [*HARD, "zero"]
    tensors = [
        torch.zeros(96) if kinds[rank % 6] == "zero" else hard(kinds[rank % 6]) for rank in range(workers)
    ]
    mean = sum(tensors) / workers
    errors = []
    for seed in range(150):
        reducers = [
            Reducer(made(variant), make_memory("none"), rank, workers, seed) for rank in range(workers)
        ]
        errors.append((reduce_in_process(reducers, "key", tensors)[0] - mean) / mean.norm())
    check_unbiased(torch.stack(errors).double())


@pytest.mark.parametrize("variant", [name for name in VARIANTS if made(name).omega(96) is not None])
@pytest.mark.parametrize(("elements", "scale"), SIZES)
def test_the_variance_bound_holds(variant: str, elements: int, scale: float) -> None:
    bound = made(variant).omega(elements)
    assert bound is not None
    for unit in [sample(elements), *(hard(kind, elements) for kind in HARD)]:
        tensor = unit * scale
        energy = unit.double().square().sum()
        errors = torch.stack(
            [
                ((one(made(variant), tensor, seed) - tensor) / scale).double().square().sum()
                for seed in range(40)
            ]
        )
        if energy > 0:
            relative = errors / energy
            assert relative.mean() <= bound + 4 * relative.std() / 40**0.5 + 1e-5


@pytest.mark.parametrize("variant", [name for name in VARIANTS if made(name).delta(96) is not None])
@pytest.mark.parametrize(("elements", "scale"), SIZES)
def test_the_contraction_holds_for_sparse_tensors(variant: str, elements: int, scale: float) -> None:
    delta = made(variant).delta(elements)
    assert delta is not None
    draws = 60 if variant in ON_AVERAGE else 1
    for kind in HARD:
        unit = hard(kind, elements)
        tensor = unit * scale
        errors = torch.stack(
            [
                ((one(made(variant), tensor, seed) - tensor) / scale).double().square().sum()
                for seed in range(draws)
            ]
        )
        slack = 4 * float(errors.std()) / draws**0.5 if draws > 1 else 0.0
        assert float(errors.mean()) <= (1 - delta + 1e-5) * float(unit.double().square().sum()) + slack


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
    if variant in ON_AVERAGE:
        energy = (
            sum(float((one(made(variant), tensor, each) - tensor).square().sum()) for each in range(60)) / 60
        )
        slack = 0.2
    else:
        energy = float((one(made(variant), tensor, seed) - tensor).square().sum())
        slack = 1e-5
    assert energy <= (1 - delta + slack) * float(tensor.square().sum()) + 1e-30


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
@pytest.mark.parametrize(
    "variant", [name for name in VARIANTS if made(name).omega(96) or made(name).delta(96)]
)
def test_the_bounds_hold_for_the_errors_of_all_workers_together(variant: str, workers: int) -> None:
    """Also where a worker of large values sets the scale of all others. Seeds are fixed: a bound of four standard
    deviations, which normal errors exceed with a probability of 3.2e-5 in each case, fails always or never.
    """
    omega, delta = made(variant).omega(96, workers), made(variant).delta(96, workers)
    bound = omega if omega is not None else 1 - (delta or 0)
    draws = 30 if omega or variant in ON_AVERAGE else 1
    flat = [torch.full((96,), 3.0 / (96 * max(1, workers - 1)) ** 0.5)]
    mixed = [torch.zeros(96), hard("three"), *flat, hard("two")]
    for large, others in (("one", flat), ("one large", mixed)):
        tensors = [hard(large), *(others[rank % len(others)] for rank in range(workers - 1))]
        energy = sum(float(each.double().square().sum()) for each in tensors)
        errors = []
        for seed in range(draws):
            reducers = [
                Reducer(made(variant), make_memory("none"), rank, workers, seed, measure_error=True)
                for rank in range(workers)
            ]
            reduce_in_process(reducers, "key", tensors)
            errors.append(sum(each.total().error for each in reducers) / energy)
        slack = 4 * float(torch.tensor(errors).std(correction=0)) / draws**0.5
        assert sum(errors) / draws <= bound + slack + 1e-5, large


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
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
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_value_that_is_not_finite_is_seen_by_all_and_changes_no_state(variant: str, bad: float) -> None:
    workers = 3
    memory = kept_in(variant)
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


def kept_in(variant: str) -> str:
    """A memory with state that a compressor goes with."""
    return "residual" if made(variant).linear else "average"


def fitting(variant: str, workers: int) -> list[str]:
    """The memories that a compressor goes with."""
    names = []
    for name in MEMORIES:
        try:
            Reducer(made(variant), make_memory(name), 0, workers)
        except IncompatibleError:
            continue
        names.append(name)
    return names


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
@pytest.mark.parametrize("variant", VARIANTS)
def test_after_the_largest_finite_numbers_state_is_finite_and_the_next_step_right(
    variant: str, workers: int
) -> None:
    shape = (8, 12)
    usual = [sample(96, seed).view(shape) for seed in range(workers)]
    for memory in fitting(variant, workers):
        for extreme in ([LARGEST] * 96, [LARGEST, -LARGEST] * 48, [LARGEST, *[1.0] * 95], [1e25] * 96):
            made_for = [
                [Reducer(made(variant), make_memory(memory), rank, workers) for rank in range(workers)]
                for _ in "ab"
            ]
            for reducers in made_for:
                reduce_in_process(reducers, "key", usual)
            results = reduce_in_process(made_for[0], "key", [*usual[1:], torch.tensor(extreme).view(shape)])
            refused = bool(torch.isnan(results[0]).all())
            assert refused or bool(torch.isfinite(results[0]).all()), (memory, extreme[:2])
            assert all(torch.equal(each.nan_to_num(), results[0].nan_to_num()) for each in results)
            for reducer in made_for[0]:
                for kept in (reducer.memory.state, reducer.compressor.state):
                    for fields in kept.values():
                        assert all(bool(torch.isfinite(each).all()) for each in fields.values()), (
                            memory,
                            extreme[:2],
                        )
            if refused:
                after, wanted = (reduce_in_process(each, "key", usual)[0] for each in made_for)
                assert torch.equal(after, wanted), (memory, extreme[:2])


@pytest.mark.parametrize("scale", [0.0, 1e-20])
@pytest.mark.parametrize("workers", [1, 2, 3, 8])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_step_of_zeros_or_nearly_so_spoils_no_later_one(variant: str, workers: int, scale: float) -> None:
    tensors = [100 * sample(96, seed).view(8, 12) for seed in range(workers)]
    reducers, others = (
        [Reducer(made(variant), make_memory("none"), rank, workers) for rank in range(workers)] for _ in "ab"
    )
    small = reduce_in_process(reducers, "key", [scale * each for each in tensors])[0]
    assert scale > 0 or not small.any()
    reduce_in_process(others, "key", tensors)
    after = reduce_in_process(reducers, "key", tensors)[0]
    wanted = reduce_in_process(others, "key", tensors)[0]
    # The same random numbers; a compressor with state has another past.
    assert after.norm() >= wanted.norm() / 3


@pytest.mark.parametrize("elements", [1, 2, 3, 8, 700])
@pytest.mark.parametrize("variant", VARIANTS)
def test_zeros_stay_zeros(variant: str, elements: int) -> None:
    assert not one(made(variant), torch.zeros(elements)).any()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_checkpoint_goes_on_with_the_same_bits(variant: str) -> None:
    tensors = [sample(640, seed) for seed in range(6)]
    memory = kept_in(variant)
    reducers = [Reducer(made(variant), make_memory(memory), rank, 2) for rank in range(2)]
    for step in range(2):
        reduce_in_process(reducers, "key", tensors[2 * step : 2 * step + 2])
    restored = [Reducer(made(variant), make_memory(memory), rank, 2) for rank in range(2)]
    for old, new in zip(reducers, restored, strict=True):
        new.load_state_dict(old.state_dict())
    one_way = reduce_in_process(reducers, "key", tensors[4:])
    other_way = reduce_in_process(restored, "key", tensors[4:])
    assert all(bool((a == b).all()) for a, b in zip(one_way, other_way, strict=True))


def test_a_ratio_counts_a_sum_once_and_a_gathered_payload_for_every_worker() -> None:
    alone, four = ({row.name: row for row in survey(4096, workers)} for workers in (1, 4))
    assert four["identity"].ratio == alone["identity"].ratio == 1
    for name, row in four.items():
        if row.route == "gather":
            assert row.ratio == pytest.approx(alone[name].ratio / 4, rel=0.2), name
    assert four["natural"].ratio < 1 < four["block-float"].ratio


def test_every_method_has_its_source_and_a_fourth_of_them_a_use_of_their_own() -> None:
    methods = [each for each in COMPRESSORS.values() if each.family != "identity"]
    assert all(each.source for each in methods)
    assert sum(each.use != COMPARISON for each in methods) >= len(methods) / 4


@pytest.mark.parametrize(("name", "instead"), [("eden", "block-float"), ("qsparse", "chunk-top-k")])
def test_a_compressor_of_an_earlier_version_is_refused_with_what_to_use(name: str, instead: str) -> None:
    with pytest.raises(MisuseError, match=f"compressor {name} is no longer there: use {instead}$"):
        make_compressor(name)
    assert instead in COMPRESSORS
