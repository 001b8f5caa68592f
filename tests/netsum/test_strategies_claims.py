"""The claims on strategies, and their examples: small runs, and what the command makes of an outcome."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")
pytest.importorskip("sklearn", reason="needs scikit-learn")

from bench.claims.claim import Claim, Outcome  # noqa: E402
from bench.claims.dynamic import halves  # noqa: E402
from bench.strategies_claims import CLAIMS, claim_of, show  # noqa: E402
from netsum.virtual.group import run_workers  # noqa: E402

pytestmark = pytest.mark.torch
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a module of examples/ by name."""
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    return import_module


@pytest.mark.parametrize("name", CLAIMS)
def test_every_claim_has_a_sentence_and_a_source(name: str) -> None:
    claim = claim_of(name)
    assert claim.name == name
    assert claim.sentence
    assert claim.source


def test_what_does_not_hold_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = Outcome((">rounds",), [("12",)], [("fewer rounds", True), ("fewer bytes", False)], "digits")
    assert not outcome.holds
    show(Claim("mine", "less of all", "me", lambda say: outcome), outcome)
    printed = capsys.readouterr().out
    assert "holds: fewer rounds\nDOES NOT HOLD: fewer bytes\n" in printed


def test_dynamic_averaging_is_silent_when_nothing_moves_and_speaks_after_the_drift() -> None:
    quiet, drift = halves("dynamic-averaging", {"threshold": 4.0, "every": 4}, steps=400)
    periodic = halves("local-sgd", {"every": 4}, steps=400)
    assert drift[1] > quiet[1] * 0.5
    assert all(often[1] > 3 * rare[1] for rare, often in zip((quiet, drift), periodic, strict=True))


def test_growing_does_not_change_what_the_network_computes(example: Any) -> None:
    incremental = example("incremental")
    model = incremental.Network()
    images = torch.randn(2, 1, 16, 16)
    before = model(images)
    model.blocks.append(incremental.Block())
    torch.testing.assert_close(model(images), before)


def test_training_in_stages_keeps_the_model_alike_at_all_workers(example: Any) -> None:
    incremental = example("incremental")
    stages = ((8, 1, 0.5), (16, 2, 0.5))
    (looks, nothing), _ = run_workers(
        2, lambda rank, group, world: incremental.train(stages, 20, rank, 0, group)
    )
    assert [(look.step, look.side) for look in looks] == [(10, 8), (20, 16)]
    assert nothing == []


def test_early_exits_move_work_downward_as_the_threshold_rises(example: Any) -> None:
    ddnn = example("ddnn")

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
