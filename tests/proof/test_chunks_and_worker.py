"""Chunk numbers of 32 bits, and the worker core's source, against the model."""

import pytest

pytest.importorskip("z3", reason="needs an SMT solver: pip install z3-solver")

from tests.proof import chunks, worker, worker_faults
from tests.proof.__main__ import PARTS, main
from tests.proof.induction import Verdict


def test_chunk_numbers_that_wrap_are_as_good_as_rounds_without_end() -> None:
    assert [v for v in chunks.lemmas() if not v.holds] == []


def test_the_worker_core_sends_and_accepts_as_the_model_does() -> None:
    assert [v for v in worker.lemmas() if not v.holds] == []


@pytest.mark.parametrize(
    "name",
    [
        "_may_send_next: not: slots[slot_of(core, chunk)].in_flight != 0",
        "_send_next: plus 1: slot.chunk",
        "_verdict_on_result: not: slot.in_flight == 0",
        "on_datagram: left out: token == core.token",
        "_on_status: left out: held",
        "_verdict_on_loss: left out: level > core.reach",
    ],
)
def test_a_fault_of_the_worker_core_is_noticed(name: str) -> None:
    sources = next(sources for fault, sources in worker_faults.faults() if fault == name)
    assert worker_faults.verdict(name, sources).answer == "noticed"


def test_the_command_prints_each_lemma_and_says_by_its_status_whether_all_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["proof", "chunks"])
    assert main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith(f"{len(lines) - 1} of {len(lines) - 1} lemmas shown")
    monkeypatch.setitem(PARTS, "chunks", lambda _: iter([Verdict("a lemma", "unknown", "unsat", 0.0)]))
    assert main() == 1
    assert capsys.readouterr().out.startswith("NOT SHOWN unknown")
    monkeypatch.setattr("sys.argv", ["proof", "none"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "no part none" in capsys.readouterr().err
