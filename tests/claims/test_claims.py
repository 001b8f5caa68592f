"""The claims on strategies, and their examples: small runs, and the command's verdicts."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")
pytest.importorskip("sklearn", reason="needs scikit-learn")

from netsum.bench.machine import use_examples  # noqa: E402
from tests.claims import codistillation, slow_links  # noqa: E402
from tests.claims import ddnn_network as ddnn  # noqa: E402
from tests.claims import incremental_training as incremental  # noqa: E402
from tests.claims.__main__ import CLAIMS, claim_of, main, show  # noqa: E402
from tests.claims.claim import Claim, ClaimResult  # noqa: E402
from tests.claims.dynamic import halves  # noqa: E402
from tests.claims.fedavg import Networks, crossings, curves  # noqa: E402
from tests.strategies.training import mlp  # noqa: E402
from tests.virtual.group import run_workers  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("name", CLAIMS)
def test_every_claim_has_a_sentence_and_a_source(name: str) -> None:
    claim = claim_of(name)
    assert claim.name == name
    assert claim.sentence
    assert claim.source


def test_an_unknown_claim_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tests.claims", "diloko"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "invalid choice: 'diloko' (choose from" in capsys.readouterr().err


def test_what_does_not_hold_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = ClaimResult((">rounds",), [("12",)], [("fewer rounds", True), ("fewer bytes", False)], "digits")
    assert not outcome.holds
    show(Claim("mine", "less of all", "me", lambda echo: outcome), outcome)
    printed = capsys.readouterr().out
    assert "holds: fewer rounds\nDOES NOT HOLD: fewer bytes\n" in printed


def test_dynamic_averaging_is_silent_when_nothing_moves_and_speaks_after_the_drift() -> None:
    quiet, drift = halves("dynamic-averaging", {"threshold": 4.0, "every": 4}, steps=400)
    periodic = halves("local-sgd", {"sync_every": 4}, steps=400)
    assert drift[1] > quiet[1] * 0.5
    assert all(often[1] > 3 * rare[1] for rare, often in zip((quiet, drift), periodic, strict=True))


def test_rounds_are_counted_on_the_best_accuracy_so_far_and_between_rounds() -> None:
    curve = [0.1, 0.5, 0.3, 0.7, 0.6, 0.9]
    assert crossings(curve, 0.6) == pytest.approx(2.5)  # From 0.5, not from 0.3.
    assert crossings(curve, 0.8) == pytest.approx(4.5)
    assert crossings(curve, 0.95) is None
    assert crossings(curve, 0.1) == 0


def test_fedavg_trains_with_each_rate_as_if_it_were_the_only_one() -> None:
    rates = (0.05, 0.4)
    inputs, targets = torch.rand(10, 64), torch.arange(10)
    torch.manual_seed(3)
    together = Networks((*rates, 1e30))  # The last one diverges.
    optimizer = torch.optim.SGD(together.parameters(), 1.0)
    for _ in range(3):
        optimizer.zero_grad()
        together.loss(inputs, targets).backward()
        optimizer.step()
    for each, rate in enumerate(rates):
        torch.manual_seed(3)
        alone: Any = mlp(64)
        optimizer = torch.optim.SGD(alone.parameters(), rate)
        for _ in range(3):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(alone(inputs), targets).backward()
            optimizer.step()
        torch.testing.assert_close(together(inputs)[each], alone(inputs))
    assert not together(inputs)[2].isfinite().all()


def test_fedavg_learns_faster_with_more_local_epochs() -> None:
    options: dict[str, Any] = {"rates": (0.2,), "clients": 6, "fraction": 0.5, "limit": 6}
    (one,), (ten,) = curves(1, 40, 1, **options), curves(10, 40, 1, **options)
    assert len(one) == len(ten) == 7
    assert one[0] == ten[0]
    assert max(ten) > max(one)


def trainings(**losses: list[float]) -> Any:
    """Two trainings of each arrangement with one rate; the predictions of codistillation's differ less."""
    names = {
        "small": codistillation.SMALL,
        "large": codistillation.LARGE,
        "two": codistillation.TWO,
    }
    return {
        names[short]: {
            0.1: [
                codistillation.Training(each, torch.tensor([[0.5 + apart, 0.5 - apart]]))
                for apart in (0.0, 0.1 if short == "two" else 0.2)
            ]
        }
        for short, each in losses.items()
    }


def test_codistillation_is_judged_by_steps_to_the_larger_groups_least_loss() -> None:
    large = [1.5, 1.01, 1.005, 1.0]
    better = codistillation.outcome(trainings(small=large, large=large, two=[1.5, 1.2, 0.9, 0.8]))
    assert [holds for _, holds in better.findings] == [True, False, True, True]
    assert better.rows[-3:] == [
        ("other digit", codistillation.SMALL, "0.0% ± 0.0%"),
        ("other digit", codistillation.LARGE, "0.0% ± 0.0%"),
        ("other digit", codistillation.TWO, "0.0% ± 0.0%"),
    ]
    never = codistillation.outcome(
        trainings(small=[1.5, 1.5, 1.5, 1.5], large=large, two=[1.5, 1.4, 1.3, 1.2])
    )
    assert [holds for _, holds in never.findings] == [False, False, False, True]


def test_codistillation_trains_each_arrangement() -> None:
    for kind in codistillation.KINDS.values():
        one, again, other = (codistillation.train(kind, 0.01, seed, steps=25) for seed in (0, 0, 1))
        assert len(one.losses) == 5
        assert one.losses[-1] < one.losses[0]
        assert one.losses == again.losses != other.losses
        assert codistillation.churn([one, again]) == ([0.0], [0.0])
        assert codistillation.churn([one, other])[0][0] > 0


def test_growing_does_not_change_what_the_network_computes() -> None:
    model = incremental.Classifier()
    images = torch.randn(2, 1, 16, 16)
    before = model(images)
    model.blocks.append(incremental.Block())
    torch.testing.assert_close(model(images), before)


def test_training_in_stages_keeps_the_model_alike_at_all_workers() -> None:
    stages = ((8, 1, 0.5), (16, 2, 0.5))
    (looks, nothing), _ = run_workers(
        2, lambda rank, group, world: incremental.train(stages, 20, rank, 0, group)
    )
    assert [(look.step, look.side) for look in looks] == [(10, 8), (20, 16)]
    assert nothing == []


def test_early_exits_move_work_downward_as_the_threshold_rises() -> None:

    def node(rank: int, group: Any, world: Any) -> Any:
        lower = group.divided([1, 2, 3]) if rank else None
        return ddnn.run(rank, 4, group, lower, 80)

    passages = run_workers(4, node)[0][ddnn.CLOUD]
    assert all(sum(each.leave) == pytest.approx(1) for each in passages)
    assert passages[0].leave == [0, 0, 1]
    assert passages[-1].leave == [1, 0, 0]
    shares = [each.leave[0] for each in passages]
    assert shares == sorted(shares)
    assert passages[0].to_edge == 2 * 4 * (10 + 16)
    assert passages[-1].to_cloud == 0
    assert passages[0].accuracy > 0.4


def test_a_training_on_many_links_is_run_once_and_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_examples()
    short = replace(slow_links.GRID["plain"], steps=3, values=(2e-3,))
    monkeypatch.setattr(slow_links, "GRID", {"plain": short})
    networks = [slow_links.link(text) for text in ("10mbit/50ms", "1gbit/5ms")]
    assert [slow_links.slots_of(each) for each in networks] == [64, 1024]
    first = slow_links.rows_of("plain", slow_links.Trainings(tmp_path), networks, 2)
    monkeypatch.setattr(slow_links, "train", None)
    assert slow_links.rows_of("plain", slow_links.Trainings(tmp_path), networks, 2) == first
    seconds, sent = first
    assert len(seconds) == 1 + len(networks)
    assert seconds[1] == seconds[2], "three steps fit into the time on either link"
    assert sent[1:3] == ["-", "-"], "a step sends more"
