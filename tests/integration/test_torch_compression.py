"""Compressed gradients through the slots: the same bits as computed in one process, with and without loss, and DDP's hook."""

import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch
import torch.distributed as dist

from host_agent.compression import (
    COMPRESSORS,
    CommunicatorExchange,
    CompressionState,
    Summability,
    TorchExchange,
    compress,
    compression_hook,
    make_compressor,
    make_memory,
    reduce_in_process,
)
from host_agent.compression.exchange import run
from host_agent.errors import MisuseError
from tests.integration.compressed_worker import reducer
from tests.integration.kernel_counts import ROUTES
from tests.integration.torch_ranks import Ranks
from tests.own_network import skip_without_namespaces

pytestmark = pytest.mark.torch

EXACT = [name for name, each in COMPRESSORS.items() if each.summability is not Summability.FLOATS]
"""Integers are summed exactly, and a gathered payload is copied."""
STEPS = 3


def _gradient(step: int, rank: int) -> torch.Tensor:
    return torch.randn(30, 50, generator=torch.Generator().manual_seed(100 * step + rank))


def through_slots(rank: int, world: int, names: list[str], over: str) -> dict[str, list[torch.Tensor]]:
    group = dist.distributed_c10d._get_default_group()
    exchange: Any = TorchExchange() if over == "torch" else CommunicatorExchange(group.communicator)
    results = {}
    for name in names:
        own = reducer(name, rank, world)
        results[name] = [run(own.rounds("x", _gradient(step, rank)), exchange) for step in range(STEPS)]
    return results


def _in_process(name: str, world: int) -> list[torch.Tensor]:
    reducers = [reducer(name, rank, world) for rank in range(world)]
    return [
        reduce_in_process(reducers, "x", [_gradient(step, rank) for rank in range(world)])[0]
        for step in range(STEPS)
    ]


@pytest.mark.parametrize("over", ["torch", "communicator"])
def test_integers_and_gathered_payloads_are_exact(ranks: Ranks, over: str) -> None:
    for outcome in ranks.run(through_slots, EXACT, over):
        for name in EXACT:
            for got, wanted in zip(outcome[name], _in_process(name, ranks.world), strict=True):
                assert torch.equal(got, wanted), name


def test_one_percent_loss_changes_no_bit(ranks: Ranks, ranks_with_loss: Ranks) -> None:
    names = list(COMPRESSORS)
    expected = ranks.run(through_slots, names, "torch")[0]
    for outcome in ranks_with_loss.run(through_slots, names, "torch"):
        for name in names:
            assert all(torch.equal(a, b) for a, b in zip(outcome[name], expected[name], strict=True)), name


SETTINGS: list[dict[str, Any]] = [
    {"compressor": "identity"},
    {"compressor": "identity", "granularity": "bucket"},
    {"compressor": "identity", "granularity": "model"},
    {"compressor": "block-float", "bits": 8},
    {"compressor": "top-k", "fraction": 0.2, "memory": "residual"},
    {"compressor": "top-k", "fraction": 0.2, "memory": "residual", "granularity": "model"},
    {"compressor": "powersgd", "rank": 2, "memory": "residual", "skip_below": 64},
    {"compressor": "terngrad", "memory": "diana", "granularity": "bucket"},
]


def trained(rank: int, world: int, settings: dict[str, Any], switch_at: int | None = None) -> dict[str, Any]:
    torch.manual_seed(0)
    here = torch.get_default_device()
    inner = torch.nn.Sequential(torch.nn.Linear(20, 40), torch.nn.Tanh(), torch.nn.Linear(40, 5))
    model = torch.nn.parallel.DistributedDataParallel(inner, bucket_cap_mb=0.002)
    state = compress(model, **settings)
    descent = torch.optim.SGD(model.parameters(), 0.1)
    teacher = torch.randn(20, 5, generator=torch.Generator(here).manual_seed(99))
    losses = []
    for step in range(15):
        if step == switch_at:
            state.switch_to(make_compressor("block-float", bits=8))
        inputs = torch.randn(16, 20, generator=torch.Generator(here).manual_seed(100 * step + rank))
        descent.zero_grad()
        loss = (model(inputs) - inputs @ teacher).square().mean()
        loss.backward()
        descent.step()
        losses.append(loss.item())
    total = state.total()
    return {
        "parameters": torch.cat([each.detach().flatten() for each in model.parameters()]),
        "losses": losses,
        "keys": sorted(state.reducer.state_dict()["memory"]),
        "ratio": (total.bytes_payload + total.bytes_agreed) / total.bytes_before,
    }


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda each: "-".join(map(str, each.values())))
def test_ddp_trains_with_the_same_bits_at_all_ranks(ranks: Ranks, settings: dict[str, Any]) -> None:
    outcomes = ranks.run(trained, settings)
    assert all(torch.equal(each["parameters"], outcomes[0]["parameters"]) for each in outcomes)
    assert all(each["losses"][-1] < each["losses"][0] for each in outcomes)
    if settings["compressor"] == "identity":
        torch.testing.assert_close(outcomes[0]["parameters"], _alone(ranks.world), rtol=0, atol=1e-5)
        assert outcomes[0]["ratio"] == 1.0
    else:
        assert outcomes[0]["ratio"] < 0.7


def gradients_with_and_without(rank: int, world: int) -> tuple[list[torch.Tensor], dict[str, int]]:
    gradients = []
    totals = {}
    for hooked in (False, True):
        torch.manual_seed(0)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 40))
        state = compress(model, "identity") if hooked else None
        model(torch.randn(8, 300, generator=torch.Generator().manual_seed(rank))).square().sum().backward()
        gradients.append(torch.cat([each.grad.flatten() for each in model.parameters()]))
        if state is not None:
            totals = vars(state.total())
    return gradients, totals


def test_identity_gives_the_bits_of_ddp_without_a_hook(ranks: Ranks) -> None:
    for (without, with_hook), total in ranks.run(gradients_with_and_without):
        assert torch.equal(without, with_hook)
        assert total["steps"] == 1
        assert total["bytes_before"] == total["bytes_payload"] == 4 * (300 * 40 + 40)
        assert total["bytes_sent"] > total["bytes_payload"]


@pytest.mark.slow
@pytest.mark.parametrize(("world", "lanes"), [(2, 256), (4, 64), (8, 256)])
def test_counted_bytes_are_those_of_the_kernel_on_every_route(world: int, lanes: int) -> None:
    skip_without_namespaces()
    command = [sys.executable, "-m", "tests.integration.kernel_counts", str(world), str(lanes)]
    for _ in range(3):  # On a busy machine ranks send again what comes between the two counts.
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, done.stderr
        rows = [line.split(" | ") for line in done.stdout.splitlines()]
        assert [row[2] for row in rows] == list(ROUTES)
        apart = [row for row in rows if _bytes(row[4]) != pytest.approx(_bytes(row[3]), rel=0.01)]
        if not apart:
            break
    assert not apart


def _bytes(cell: str) -> int:
    return int(cell.replace(",", ""))


def _alone(world: int) -> torch.Tensor:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(20, 40), torch.nn.Tanh(), torch.nn.Linear(40, 5))
    descent = torch.optim.SGD(model.parameters(), 0.1)
    teacher = torch.randn(20, 5, generator=torch.Generator().manual_seed(99))
    for step in range(15):
        inputs = torch.cat(
            [
                torch.randn(16, 20, generator=torch.Generator().manual_seed(100 * step + rank))
                for rank in range(world)
            ]
        )
        descent.zero_grad()
        (model(inputs) - inputs @ teacher).square().mean().backward()
        descent.step()
    return torch.cat([each.detach().flatten() for each in model.parameters()])


def test_state_survives_the_rebuilding_of_buckets(ranks: Ranks) -> None:
    settings = {"compressor": "top-k", "fraction": 0.2, "memory": "residual", "granularity": "bucket"}
    keys = ranks.run(trained, settings)[0]["keys"]
    assert keys == ["0.bias", "0.weight", "2.bias", "2.weight"]


def test_the_compressor_can_be_switched_in_mid_training(ranks: Ranks) -> None:
    settings = {"compressor": "top-k", "fraction": 0.05, "memory": "residual"}
    outcomes = ranks.run(trained, settings, 5)
    assert all(torch.equal(each["parameters"], outcomes[0]["parameters"]) for each in outcomes)
    assert outcomes[0]["losses"][-1] < ranks.run(trained, settings)[0]["losses"][-1]


def refused(rank: int, world: int) -> str:
    try:
        compress(torch.nn.Linear(2, 2), "top-k")
    except MisuseError as error:
        return str(error)
    return ""


def test_a_model_that_is_not_wrapped_is_refused(ranks: Ranks) -> None:
    assert "expected a DistributedDataParallel model, got Linear" in ranks.run(refused)[0]


def counted(rank: int, world: int) -> dict[str, int]:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 40))
    state = compress(model, "block-float", bits=8, skip_below=64)
    for _ in range(2):
        model(torch.ones(1, 300)).sum().backward()
    return {name: each.bytes_sent for name, each in state.statistics.items()}


def test_bytes_on_the_wire_are_counted_by_layer(ranks_with_256_lanes: Ranks) -> None:
    for sent in ranks_with_256_lanes.run(counted):
        assert sorted(sent) == ["bias…bias", "weight"]
        # 8 bits with room for the sum: a third of float32, and headers.
        assert 2 * 12_000 * 4 / 3 < sent["weight"] < 2 * 12_000 * 2


def of_two_settings(rank: int, world: int, settings: list[dict[str, Any]]) -> tuple[str, str]:
    inner = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Linear(5, 2))
    model = torch.nn.parallel.DistributedDataParallel(inner, bucket_cap_mb=0.0001)
    compress(model, **settings[rank % 2])
    try:
        model(torch.ones(1, 3)).sum().backward()
    except Exception as error:
        dist.all_reduce(torch.ones(1))  # No rank has begun anything that the others have not.
        return type(error).__name__, str(error)
    return "", ""


@pytest.mark.parametrize(
    ("one", "other", "differs"),
    [
        ({"seed": 1}, {"seed": 2}, "seed is 1 at rank 0 and 2 at rank 1"),
        ({}, {"granularity": "model"}, "granularity is layer at rank 0 and model at rank 1"),
        ({"compressor": "identity"}, {}, "compressor is identity at rank 0 and top-k at rank 1"),
        ({"skip_below": 1000}, {}, "skip_below is 1000 at rank 0 and 0 at rank 1"),
    ],
)
def test_ranks_whose_settings_differ_get_an_error_before_the_first_step(
    ranks: Ranks, one: dict[str, Any], other: dict[str, Any], differs: str
) -> None:
    settings = [{"compressor": "top-k", **each} for each in (one, other)]
    for kind, text in ranks.run(of_two_settings, settings):
        assert (kind, text[: text.index(": give")]) == (
            "MisuseError",
            f"the ranks compress differently: {differs}",
        )


def of_sparse_gradients(rank: int, world: int, by_hand: bool) -> tuple[str, str]:
    """Return the error and the call that raised it."""
    inner = torch.nn.Sequential(torch.nn.Embedding(10, 4, sparse=True), torch.nn.Linear(4, 2))
    model = torch.nn.parallel.DistributedDataParallel(inner)
    try:
        if by_hand:
            names = {parameter: name for name, parameter in inner.named_parameters()}
            parts = make_compressor("top-k"), make_memory("none")
            # In the background, other buckets would be under way when the error comes.
            state = CompressionState(*parts, names=names, in_background=False)
            model.register_comm_hook(state, compression_hook)
        else:
            compress(model, "top-k")
    except MisuseError as error:
        return str(error), "compress"
    try:
        model(torch.tensor([rank])).sum().backward()
    except MisuseError as error:
        return str(error), "backward"
    return "", ""


@pytest.mark.parametrize(("by_hand", "call"), [(False, "compress"), (True, "backward")])
def test_sparse_gradients_are_refused_by_name_and_by_compress_before_the_first_step(
    ranks: Ranks, by_hand: bool, call: str
) -> None:
    for text, raised_by in ranks.run(of_sparse_gradients, by_hand):
        assert text.startswith("compression takes dense gradients, and that of 0.weight is sparse: ")
        assert raised_by == call


def with_a_frozen_embedding(rank: int, world: int) -> int:
    inner = torch.nn.Sequential(torch.nn.Embedding(10, 4, sparse=True), torch.nn.Linear(4, 2))
    inner[0].requires_grad_(False)
    model = torch.nn.parallel.DistributedDataParallel(inner)
    state = compress(model, "top-k")
    model(torch.tensor([rank])).sum().backward()
    return state.total().steps


def test_a_sparse_module_that_is_not_trained_is_no_reason_to_refuse(ranks: Ranks) -> None:
    assert ranks.run(with_a_frozen_embedding) == [2] * ranks.world


class OneOfTwo(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(32, 64), torch.nn.Linear(32, 64)])
        self.last = torch.nn.Linear(64, 8)

    def forward(self, inputs: torch.Tensor, which: int) -> torch.Tensor:
        return self.last(self.layers[which](inputs))


def using_one_of_two(rank: int, world: int, name: str, options: dict[str, Any]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(OneOfTwo(), bucket_cap_mb=0.01, **options)
    compress(model, name, memory="none")
    for step in range(20):
        which = step + rank if "find_unused_parameters" in options else 0
        model(torch.ones(4, 32), which % 2).sum().backward()
    return [each.grad for each in model.parameters() if each.grad is not None]


@pytest.mark.parametrize("name", ["block-float", "top-k"])
@pytest.mark.parametrize("option", ["find_unused_parameters", "static_graph"])
def test_the_hook_and_collectives_of_ddp_itself_have_one_order_at_all_ranks(
    ranks: Ranks, name: str, option: str
) -> None:
    outcomes = ranks.run(using_one_of_two, name, {option: True})
    for outcome in outcomes[1:]:
        assert all(torch.equal(a, b) for a, b in zip(outcome, outcomes[0], strict=True))


class Broken(COMPRESSORS["identity"]):  # type: ignore[misc, valid-type, name-defined]
    name = "broken"

    def compress(self, tensor: torch.Tensor, shared: Any, context: Any) -> Any:
        raise ValueError("this compressor cannot")


def failing(rank: int, world: int) -> str:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
    compress(model, Broken())
    try:
        model(torch.ones(1, 3)).sum().backward()
    except ValueError as error:
        return str(error)
    return ""


def test_an_error_of_a_compressor_reaches_the_trainer(ranks: Ranks) -> None:
    assert ranks.run(failing) == ["this compressor cannot"] * ranks.world
