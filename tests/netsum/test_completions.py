"""Completions for the shell."""

import pytest

from netsum.cli import completions
from netsum.cli.app import app
from topologies.run_folder import running_testbeds


def test_topologies_and_what_runs() -> None:
    assert completions.topologies("star-") == ["star-2", "star-4", "star-8"]
    assert completions.testbeds("no-such-") == []
    # Others' testbeds come and go.
    before, offered, after = running_testbeds(), completions.testbeds(""), running_testbeds()
    assert set(offered) <= {testbed.name for testbed in (*before, *after)}
    assert completions.nodes("no-such-") == []


def test_the_shell_asks_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_NETSUM_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "netsum testbed up tw")
    monkeypatch.setenv("COMP_CWORD", "3")
    with pytest.raises(SystemExit):
        app(prog_name="netsum")
    assert capsys.readouterr().out.split() == ["two-jobs"]
