"""Memories: repairs, refusals, and the place of their state."""

from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("torch", exc_type=ImportError)

import torch

from host_agent.compression import (
    IncompatibleError,
    Reducer,
    make_compressor,
    make_memory,
    reduce_in_process,
)
from host_agent.compression.exchange import combined
from host_agent.compression.methods.qsgd import QSGD
from host_agent.compression.reducer import CompressedRound
from host_agent.compression.registry import compressor_of
from host_agent.errors import MisuseError

WORKERS = 4


def quadratics(heterogeneous: float, dimension: int = 40) -> tuple["torch.Tensor", "torch.Tensor"]:
    """Diagonal quadratics f_i = ½ (x − b_i)ᵀ A (x − b_i) with condition number 10; returns A and the b_i."""
    generator = torch.Generator().manual_seed(1)
    curvature = torch.logspace(-1, 0, dimension)
    common = torch.randn(dimension, generator=generator)
    return curvature, common + heterogeneous * torch.randn(WORKERS, dimension, generator=generator)


def distance_after(
    steps: int,
    compressor: str,
    memory: str,
    *,
    heterogeneous: float = 1.0,
    rate: float = 0.5,
    **options: object,
) -> float:
    """Run gradient descent from 0 and return the distance to the optimum, relative to that of the start."""
    curvature, centres = quadratics(heterogeneous)
    optimum = centres.mean(dim=0)
    reducers = [
        Reducer(make_compressor(compressor, **options), make_memory(memory), rank, WORKERS)
        for rank in range(WORKERS)
    ]
    point = torch.zeros_like(optimum)
    for _ in range(steps):
        gradients = [curvature * (point - centre) for centre in centres]
        point = point - rate * reduce_in_process(reducers, "x", gradients)[0]
    return float((point - optimum).norm() / optimum.norm())


@pytest.mark.parametrize(
    ("compressor", "options"),
    [("top-k", {"fraction": 0.1}), ("scaled-sign", {})],
)
def test_error_feedback_repairs_a_contraction_on_workers_that_agree(
    compressor: str, options: dict[str, float]
) -> None:
    without = distance_after(300, compressor, "none", heterogeneous=1.0, rate=0.1, **options)
    repaired = distance_after(300, compressor, "residual", heterogeneous=1.0, rate=0.1, **options)
    assert repaired < 0.5 * without


def test_diana_converges_where_plain_quantization_stalls() -> None:
    plain = distance_after(500, "terngrad", "none", heterogeneous=3.0, rate=0.3)
    diana = distance_after(500, "terngrad", "diana", heterogeneous=3.0, rate=0.3)
    assert plain > 1e-2
    assert diana < 1e-5


def test_ef21_converges_linearly_on_workers_that_differ() -> None:
    assert distance_after(1100, "top-k", "ef21", heterogeneous=3.0, rate=0.1, fraction=0.2) < 1e-4
    assert distance_after(800, "top-k", "none", heterogeneous=3.0, rate=0.1, fraction=0.2) > 1e-2


def test_powersgd_keeps_its_factor_between_steps() -> None:
    matrix = torch.outer(torch.arange(1.0, 21), torch.arange(1.0, 31)) + 0.01 * torch.randn(
        20, 30, generator=torch.Generator().manual_seed(3)
    )
    reducers = [Reducer(make_compressor("powersgd", rank=1), make_memory("none"))]
    errors = [float((reduce_in_process(reducers, "m", [matrix])[0] - matrix).norm()) for _ in range(4)]
    best = float((matrix - _rank_one(matrix)).norm())
    assert errors[-1] < errors[0] * 1.0001
    assert errors[-1] < best * 1.001


def _rank_one(matrix: "torch.Tensor") -> "torch.Tensor":
    left, sizes, right = torch.linalg.svd(matrix)
    return sizes[0] * torch.outer(left[:, 0], right[0])


def test_dgc_clears_momentum_and_velocity_where_it_sent() -> None:
    memory = make_memory("momentum", momentum=0.5)
    reducer = Reducer(make_compressor("dgc", fraction=0.25), memory)
    reduce_in_process([reducer], "x", [torch.tensor([4.0, 1.0, 1.0, 1.0])])
    state = memory.state["x"]
    assert state["velocity"].tolist() == [0, 1, 1, 1]
    assert state["momentum"].tolist() == [0, 1, 1, 1]
    # u = 0.5 u + g, v = v + u: 1, then 1 + 1.5.
    result = reduce_in_process([reducer], "x", [torch.tensor([0.0, 1.0, 1.0, 1.0])])[0]
    assert sorted(result.tolist()) == [0, 0, 0, 2.5]


def test_state_is_kept_by_parameter_however_they_are_put_together() -> None:
    layout = (("a", 3), ("b", 2))
    one, other = make_memory("residual"), make_memory("residual")
    sent, own = torch.arange(5.0), torch.ones(5)
    one.after(layout, sent, sent, own, own)
    other.load_state_dict(one.state_dict())
    swapped = other.before((("b", 2), ("a", 3)), torch.zeros(5))
    assert swapped.tolist() == [2, 3, -1, 0, 1]


class Unbounded(QSGD):
    """An unbiased compressor without a bound."""

    def omega(self, elements: int, workers: int = 1) -> Any:
        return None


@pytest.mark.parametrize(
    ("compressor", "memory", "words"),
    [
        ("sign-vote", "residual", "a worker cannot know what was lost: use memory none or average"),
        ("top-k", "diana", "needs an unbiased compressor"),
        ("sign-vote", "ef21", "needs a contractive compressor"),
        (Unbounded(2), "diana", "qsgd declares no omega"),
    ],
)
def test_a_pairing_that_makes_no_sense_is_refused(compressor: Any, memory: str, words: str) -> None:
    with pytest.raises(IncompatibleError, match=words):
        Reducer(compressor_of(compressor, {}), make_memory(memory))


def test_unknown_names_and_options_are_listed() -> None:
    with pytest.raises(MisuseError, match="unknown compressor 'topk': expected one of identity, .*top-k"):
        make_compressor("topk")
    with pytest.raises(MisuseError, match="compressor top-k has no option 'k': expected fraction"):
        make_compressor("top-k", k=3)
    with pytest.raises(MisuseError, match=r"fraction must be a number in \(0, 1\], got 2"):
        make_compressor("top-k", fraction=2)


def test_options_can_change_from_step_to_step_and_all_else_stays() -> None:
    gradients = [torch.randn(64, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    reducer = Reducer(make_compressor("top-k", fraction=0.25), make_memory("residual"))
    sent = []
    for gradient, fraction in zip(gradients, (0.25, 0.125, 1.0), strict=True):
        reducer.set_options(fraction=fraction)
        sent.append(reduce_in_process([reducer], "x", [gradient])[0])
    assert [int(each.count_nonzero()) for each in sent] == [16, 8, 64]
    # The earlier error was sent with all of the last gradient.
    assert torch.allclose(sum(sent), sum(gradients), atol=1e-6)
    assert reducer.statistics["x"].steps == 3
    with pytest.raises(MisuseError, match="compressor top-k has no option 'bits': expected fraction"):
        reducer.set_options(bits=4)
    assert reducer.compressor.options == {"fraction": 1.0}


def test_a_compressor_with_state_keeps_it_when_its_options_change() -> None:
    reducer = Reducer(make_compressor("powersgd"), make_memory("none"))
    reduce_in_process([reducer], "x", [torch.ones(8, 8)])
    reducer.set_options(rank=1)
    assert "q" in reducer.compressor.state["x"]


def test_switching_keeps_steps_statistics_and_memory_or_changes_nothing() -> None:
    reducer = Reducer(make_compressor("top-k", fraction=0.25), make_memory("residual"))
    reduce_in_process([reducer], "x", [torch.arange(8.0)])
    lost = reducer.memory.state["x"]["residual"]
    reducer.switch_to(make_compressor("identity"))
    # The payload has the error, too.
    assert reduce_in_process([reducer], "x", [torch.zeros(8)])[0].tolist() == lost.tolist()
    assert reducer.statistics["x"].steps == 2
    with pytest.raises(IncompatibleError):
        reducer.switch_to(make_compressor("sign-vote"), make_memory("ef21"))
    assert reducer.compressor.name == "identity"
    assert reducer.memory.name == "residual"


def test_a_checkpoint_restores_options_and_refuses_another_compressor() -> None:
    scheduled = Reducer(make_compressor("top-k", fraction=0.25), make_memory("residual"))
    scheduled.set_options(fraction=0.5)
    restored = Reducer(make_compressor("top-k"), make_memory("residual"))
    restored.load_state_dict(scheduled.state_dict())
    assert restored.compressor.options == {"fraction": 0.5}
    with pytest.raises(MisuseError, match="written with compressor top-k, and this one is identity"):
        Reducer(make_compressor("identity")).load_state_dict(scheduled.state_dict())


def test_a_checkpoint_restores_the_memory_s_options_and_refuses_another_memory() -> None:
    saved = Reducer(make_compressor("terngrad"), make_memory("diana", alpha=0.125))
    reduce_in_process([saved], "x", [torch.ones(8)])
    restored = Reducer(make_compressor("terngrad"), make_memory("diana", alpha=0.5))
    restored.load_state_dict(saved.state_dict())
    assert restored.memory.options == {"alpha": 0.125}
    again = [reduce_in_process([each], "x", [torch.arange(8.0)])[0] for each in (saved, restored)]
    assert torch.equal(*again)
    other = Reducer(make_compressor("terngrad"), make_memory("residual"))
    with pytest.raises(MisuseError, match="written with memory diana, and this one is residual"):
        other.load_state_dict(saved.state_dict())
    assert other.memory.state == {}


def test_a_checkpoint_without_its_memory_s_name_is_refused_with_what_it_lacks() -> None:
    reducer = Reducer(make_compressor("top-k"), make_memory("residual"))
    former = {name: each for name, each in reducer.state_dict().items() if not name.startswith("memory_")}
    with pytest.raises(
        MisuseError, match="the checkpoint lacks memory_name and memory_options: expected what"
    ):
        reducer.load_state_dict(former)


@pytest.mark.parametrize("rank", [1, 4])
def test_another_rank_of_powersgd_holds_from_the_next_step_on(rank: int) -> None:
    reducer = Reducer(make_compressor("powersgd", rank=2))
    tensor = torch.randn(32, 24, generator=torch.Generator().manual_seed(0))
    reduce_in_process([reducer], "x", [tensor])
    reducer.set_options(rank=rank)
    (result,) = reduce_in_process([reducer], "x", [tensor])
    assert torch.linalg.matrix_rank(result) == rank


@pytest.mark.parametrize(
    ("name", "options", "other", "differs"),
    [
        ("top-k", {}, {"name": "qsgd"}, "compressor is top-k at rank 0 and qsgd at rank 2"),
        ("qsgd", {"levels": 7}, {"levels": 5}, "option levels is 7 at rank 0 and 5 at rank 2"),
        ("top-k", {"memory": "residual"}, {"memory": "none"}, "memory is residual at rank 0 and none at rank 2"),
        ("thc", {"seed": 1}, {"seed": 2}, "seed is 1 at rank 0 and 2 at rank 2"),
        ("top-k", {"division": {"block": 8}}, {"division": {"block": 4}}, "block is 8 at rank 0 and 4 at rank 2"),
    ],
)  # fmt: skip
def test_workers_whose_settings_differ_get_an_error_that_names_them_before_the_first_step(
    name: str, options: dict[str, Any], other: dict[str, Any], differs: str
) -> None:
    def made(rank: int) -> Reducer:
        given = {"name": name, **options, **(other if rank == 2 else {})}
        memory = make_memory(given.pop("memory", "none"))
        own = {each: given.pop(each) for each in ("seed", "division") if each in given}
        return Reducer(make_compressor(**given), memory, rank, 3, **own)

    reducers = [made(rank) for rank in range(3)]
    with pytest.raises(
        MisuseError, match=f"the ranks compress differently: {differs}: give all ranks the same"
    ):
        reduce_in_process(reducers, "x", [torch.ones(8)] * 3)


def test_clipping_leaves_a_tensor_of_equal_values() -> None:
    (result,) = reduce_in_process(
        [Reducer(make_compressor("terngrad", clip=2.5))], "x", [torch.full((6,), 5.0)]
    )
    assert result.tolist() == [5.0] * 6


def test_settings_are_compared_once() -> None:
    rounds: list[str] = []

    def counted(requests: Sequence[CompressedRound]) -> Any:
        rounds.append(requests[0].op)
        return combined(requests)

    reducers = [Reducer(make_compressor("identity"), rank=rank, workers=2) for rank in range(2)]
    for _ in range(2):
        reduce_in_process(reducers, "x", [torch.ones(8)] * 2, counted)
    assert rounds == ["max", "sum", "sum"]


def test_the_statistics_of_a_tensor_add_up_over_steps() -> None:
    reducer = Reducer(make_compressor("top-k", fraction=0.25), make_memory("residual"), measure_error=True)
    for _ in range(3):
        reduce_in_process([reducer], "x", [torch.arange(8.0)])
    reduce_in_process([reducer], "y", [torch.ones(4)])
    found = reducer.statistics["x"]
    assert (found.steps, found.bytes_before, found.bytes_payload) == (3, 3 * 32, 3 * 2 * 8)
    assert 0 < found.error < found.norm
    assert found.compress_ns > 0
    assert reducer.total().bytes_before == 3 * 32 + 16
