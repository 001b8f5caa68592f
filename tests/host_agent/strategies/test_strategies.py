"""Common behaviour of strategies: errors that list the choices, checkpoints, one start and one end."""

import inspect
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch

import netsum
from host_agent.errors import MisuseError
from host_agent.strategies import STRATEGIES
from host_agent.strategies.asynchronous import StaleSynchronous
from host_agent.strategies.registry import options_of
from tests.host_agent.strategies import tasks
from tests.integration.torch_ranks import Ranks
from tests.virtual.group import run_workers

pytestmark = pytest.mark.torch


def _optimizer(model: Any) -> Any:
    return torch.optim.SGD(model.parameters(), 0.1)


def test_an_unknown_name_lists_the_names() -> None:
    model = tasks.linear_model()
    with pytest.raises(MisuseError, match=r"unknown strategy 'dilico': expected one of .*diloco.*local-sgd"):
        netsum.strategy("dilico", model, _optimizer(model))


def test_an_unknown_option_lists_the_options() -> None:
    model = tasks.linear_model()
    with pytest.raises(MisuseError, match=r"diloco has no option 'H': expected sync_every=50, after=0"):
        netsum.strategy("diloco", model, _optimizer(model), H=10)


def test_a_worker_that_asks_seldom_stays_within_the_bound() -> None:
    server: Any = object.__new__(StaleSynchronous)
    server.bound, server.fetch, server._clocks = 5, 4, {1: 8, 2: 8}
    assert [server.pull_is_due(clock) for clock in (8, 10, 11)] == [True, True, False]


def _post_local(rank: int, world: int) -> list[float]:
    """Return the distance from the optimum after the synchronous steps, and after two averages of models."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Linear(100, 10)
    goal = torch.randn(10, 100)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    inputs = torch.randn(28, 32, 100, generator=torch.Generator().manual_seed(rank))
    options = {"sync_every": 4, "after": 20, "compression": "top-k", "memory": "residual"}
    distances = []
    with netsum.strategy("local-sgd", model, optimizer, **options) as s:
        for step, each in enumerate(inputs):
            with s.step():
                torch.nn.functional.mse_loss(model(each), each @ goal.T).backward()
            if step in (19, 27):
                distances.append(float((model.weight - goal).norm()))
    return distances


def test_what_compression_left_of_gradients_is_not_added_to_changes_of_the_model(gloo_ranks: Ranks) -> None:
    for before, after in gloo_ranks.run(_post_local):
        assert after < before


def test_without_a_group_the_error_says_what_to_call() -> None:
    model = tasks.linear_model()
    with pytest.raises(MisuseError, match="call torch.distributed.init_process_group first"):
        netsum.strategy("diloco", model, _optimizer(model))


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_each_is_documented(name: str) -> None:
    kind = STRATEGIES[name]
    text = inspect.getdoc(kind) or ""
    assert "References\n----------" in text
    assert kind.summary
    assert kind.source
    for option in options_of(kind):
        assert any(option.name in (inspect.getdoc(base) or "") for base in kind.__mro__[:-1])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("local-sgd", {"sync_every": 0}),
        ("diloco", {"sync_every": 0}),
        ("fedavg", {"samples": 4, "fraction": 0}),
        ("admm", {"penalty": 0}),
        ("easgd", {"elasticity": 2}),
        ("dynamic-averaging", {"threshold": -1}),
        ("codistillation", {"share": "all"}),
        ("synchronous", {"accumulate": 0}),
        ("hierarchical", {"between": 0}),
        ("stale-synchronous", {"bound": 1, "fetch": 3}),
    ],
)
def test_options_are_checked_before_the_first_step(
    gloo_ranks: Ranks, name: str, options: dict[str, Any]
) -> None:
    refused = gloo_ranks.run(_refused, name, options)[0]
    assert refused.startswith(f"strategy {name}: {[*options][-1]} must be ") or "expected" in refused


def _refused(rank: int, world: int, name: str, options: dict[str, Any]) -> str:
    model = tasks.linear_model()
    with pytest.raises(MisuseError) as refusal:
        netsum.strategy(name, model, _optimizer(model), **options)
    return str(refusal.value)


CHECKPOINTED = {
    "local-sgd": {"sync_every": 3},
    "diloco": {"sync_every": 3},
    "dynamic-averaging": {"threshold": 0.5, "every": 3},
    "admm": {"every": 3},
    "hierarchical": {"every": 1, "between": 3},
}


@pytest.mark.parametrize("name", sorted(CHECKPOINTED))
def test_a_checkpoint_between_two_averages_continues_bit_by_bit(gloo_ranks: Ranks, name: str) -> None:
    for whole, continued in gloo_ranks.run(_checkpoint, name, CHECKPOINTED[name]):
        assert continued == whole


def _checkpoint(rank: int, world: int, name: str, options: dict[str, Any]) -> tuple[Any, Any]:
    inputs, targets = tasks.rows(rank)

    def run(s: Any, steps: int) -> None:
        for _ in range(steps):
            with s.step():
                tasks.mean_square(s.model, inputs, targets).backward()

    model = tasks.linear_model()
    with netsum.strategy(name, model, _optimizer(model), **options) as s:
        run(s, 4)
        strategy_state = s.state_dict()
        model_state = {key: value.clone() for key, value in model.state_dict().items()}
        run(s, 4)
    whole = tasks.summary(s)
    other = tasks.linear_model(seed=5)
    other.load_state_dict(model_state)
    again = netsum.strategy(name, other, _optimizer(other), **options)
    again.load_state_dict(strategy_state)
    with again:
        run(again, 4)
    return whole, tasks.summary(again)


FOR_SLOW_LINKS: dict[str, dict[str, Any]] = {
    "diloco": {"sync_every": 4, "fragments": 2, "fragment_sync_delay": 1, "should_quantize": True},
    "dion": {"rank": 1},
    "muon": {},
    "sparse-loco": {"sync_every": 3},
}


@pytest.mark.parametrize("name", FOR_SLOW_LINKS)
def test_a_slow_worker_delays_the_others_and_changes_no_bit(name: str) -> None:
    def trained(slowest: float) -> tuple[list[list[float]], float]:
        def body(rank: int, group: Any, world: Any) -> tuple[list[float], float]:
            model = tasks.linear_model(seed=rank + 1)
            # Dion and Muon update the matrix themselves.
            own = [model.bias] if name in ("dion", "muon") else model.parameters()
            optimizer = torch.optim.SGD(own, 0.05)
            with netsum.strategy(name, model, optimizer, group=group, **FOR_SLOW_LINKS[name]) as s:
                for _ in range(12):
                    with s.step():
                        world.compute(slowest if rank == 2 else 1.0)
                        tasks.mean_square(model, *tasks.rows(rank)).backward()
            return s.vector().tolist(), world.now

        results = run_workers(4, body)[0]
        return [model for model, _ in results], max(now for _, now in results)

    (even, soon), (slow, late) = trained(1.0), trained(10.0)
    assert (soon, late) == (12.0, 120.0)
    assert even == slow == [even[0]] * 4


def test_a_state_of_another_strategy_is_refused(gloo_ranks: Ranks) -> None:
    assert "not of 'diloco'" in gloo_ranks.run(_foreign_state)[0]


def _foreign_state(rank: int, world: int) -> str:
    model = tasks.linear_model()
    with pytest.raises(MisuseError) as refusal:
        netsum.strategy("local-sgd", model, _optimizer(model)).load_state_dict({"strategy": "diloco"})
    return str(refusal.value)


def test_an_exception_in_the_loop_sends_nothing_more(gloo_ranks: Ranks) -> None:
    assert gloo_ranks.run(_leave) == [("stopped", 1)] * 4


def _leave(rank: int, world: int) -> tuple[str, int]:
    model = tasks.linear_model()
    s = netsum.strategy("diloco", model, _optimizer(model))
    try:
        with s:
            with s.step():
                tasks.mean_square(model, *tasks.rows(rank)).backward()
            raise KeyboardInterrupt("stopped")
    except KeyboardInterrupt as stop:
        return str(stop), s.traffic.synchronizations
    raise AssertionError("the interruption was swallowed")


def test_the_strategy_of_the_documentation_runs(gloo_ranks: Ranks) -> None:
    page = (Path(__file__).parents[3] / "docs" / "strategies.md").read_text(encoding="utf-8")
    source = page.partition("## A new strategy in ten lines")[2].split("```python\n")[1].partition("```")[0]
    assert len([line for line in source.splitlines() if line.strip()]) <= 10
    results = gloo_ranks.run(_documented, source)
    assert [result["model"] for result in results] == [results[0]["model"]] * gloo_ranks.world
    assert results[0]["synchronizations"] == 1 + 4


def _documented(rank: int, world: int, source: str) -> dict[str, Any]:
    exec(source, {"__name__": "documented"})
    try:
        return tasks.summary(tasks.train("doubling", rank, 8))
    finally:
        del STRATEGIES["doubling"]


@pytest.mark.parametrize(("name", "options"), [("synchronous", {}), ("diloco", {"sync_every": 2})])
def test_compression_sends_less_and_all_have_one_model(
    gloo_ranks: Ranks, name: str, options: dict[str, Any]
) -> None:
    plain = gloo_ranks.run(_wide, name, options)
    small = gloo_ranks.run(_wide, name, {**options, "compression": "qsgd", "memory": "residual"})
    assert len({result[0] for result in small}) == 1
    assert small[1][1] * 3 < plain[1][1]
    assert small[0][2] < 0.5, "the loss falls below half of what it was"


def _wide(rank: int, world: int, name: str, options: dict[str, Any]) -> tuple[float, int, float]:
    torch.manual_seed(0)
    model = torch.nn.Linear(400, 1)
    inputs = torch.randn(8, 400, generator=torch.Generator().manual_seed(rank))
    optimizer = torch.optim.SGD(model.parameters(), 0.005)
    losses = []
    with netsum.strategy(name, model, optimizer, **options) as s:
        for _ in range(12):
            with s.step():
                loss = torch.nn.functional.mse_loss(model(inputs), inputs[:, :1])
                loss.backward()
            losses.append(loss.item())
    return s.vector().sum().item(), s.traffic.bytes_sent, losses[-1] / losses[0]


def test_compression_is_refused_where_nothing_is_averaged(gloo_ranks: Ranks) -> None:
    assert "downpour does not take compression" in gloo_ranks.run(
        _refused, "downpour", {"compression": "qsgd"}
    )[0].replace("expected", "")
