"""The demo as a user runs it: right, with the same bits under all losses, and gone when it ends."""

import re
import signal
from pathlib import Path

import numpy as np
import pytest

from netsum.digits.training import train_alone
from tests.integration.digits_runs import (
    DEADLINE_S,
    ON_BOTH_SWITCHES,
    ON_EVERY_TESTBED,
    SMALL,
    MarkedCommand,
    TestbedKind,
    netsum_command,
    skip_if_lacking,
    train,
    undisturbed,
    wait_until,
)
from topologies.loopback import LoopbackTestbed
from topologies.mininet_testbed import Bmv2Star

pytestmark = [pytest.mark.slow]


@ON_EVERY_TESTBED
def test_loss_changes_no_bit(kind: TestbedKind, tmp_path: Path) -> None:
    clean = undisturbed(kind)
    lossy = train(kind, tmp_path, drop_ppm=10_000)
    assert set(clean.digests) == set(lossy.digests)
    assert len(set(clean.digests)) == 1
    assert clean.losses == lossy.losses
    assert clean.counters["results"] == lossy.counters["results"]
    assert clean.counters["contributions"] == SMALL.workers * clean.counters["results"]
    assert sum(one["retransmissions"] for one in lossy.statistics) > 0
    alone = train_alone(SMALL)
    np.testing.assert_allclose(clean.losses, alone.losses, rtol=0, atol=1e-6)
    np.testing.assert_allclose(clean.parameters, alone.parameters, rtol=0, atol=1e-6)
    assert clean.losses[-1] < clean.losses[0]


@ON_BOTH_SWITCHES
def test_the_command(kind: TestbedKind, tmp_path: Path) -> None:
    skip_if_lacking(kind)
    switch = "bmv2" if kind is Bmv2Star else "embedded"
    with netsum_command("run", "digits", "--steps", "10", "--switch", switch, folder=tmp_path) as command:
        said, _ = command.process.communicate(timeout=800)
        assert command.process.returncode == 0, said
        assert re.search(r"same bits as loss-free\s+yes", said), said
        assert re.search(r"workers bit-identical\s+yes\s+yes", said), said
        assert_nothing_left(command, tmp_path)
    shown = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"```\n(4 workers, .*?)```", shown, re.DOTALL)
    labels = re.findall(r"^(\S.*?)(?:  |:|$)", table, re.MULTILINE)[1:]
    printed = re.findall(r"^(\S.*?)(?:  |:|$)", said, re.MULTILINE)
    assert [label for label in printed if label in labels] == labels


def test_without_bmv2_the_command_names_it_and_what_runs_without(tmp_path: Path) -> None:
    arguments = ["run", "digits", "--switch", "bmv2", "--workers", "2", "--steps", "3", "--drop-percent", "0"]
    with netsum_command(*arguments, folder=tmp_path, PATH=str(tmp_path)) as command:
        said, _ = command.process.communicate(timeout=800)
        assert command.process.returncode == 1, said
        assert said.startswith(
            "netsum: BMv2 (simple_switch_grpc) is not installed: get p4lang's package p4lang-bmv2"
        )
        assert "`netsum run digits` runs the embedded switch on loopback without it" in said
        assert len(said.splitlines()) == 1
        assert_nothing_left(command, tmp_path)


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        (LoopbackTestbed, signal.SIGINT),
        (LoopbackTestbed, signal.SIGTERM),
        pytest.param(Bmv2Star, signal.SIGINT, marks=[pytest.mark.bmv2, pytest.mark.root]),
    ],
)
def test_an_interrupted_command_leaves_nothing(
    kind: TestbedKind, tmp_path: Path, how: signal.Signals
) -> None:
    skip_if_lacking(kind)
    switch = "bmv2" if kind is Bmv2Star else "embedded"
    with netsum_command("run", "digits", "--steps", "100000", "--switch", switch, folder=tmp_path) as command:
        wait_until(lambda: len(command.descendants()) >= 5)
        command.process.send_signal(how)
        said, _ = command.process.communicate(timeout=DEADLINE_S)
        assert command.process.returncode == 128 + how, said
        assert "Traceback" not in said
        assert_nothing_left(command, tmp_path)


@ON_BOTH_SWITCHES
def test_a_killed_command_leaves_no_process(kind: TestbedKind, tmp_path: Path) -> None:
    skip_if_lacking(kind)
    switch = "bmv2" if kind is Bmv2Star else "embedded"
    with netsum_command("run", "digits", "--steps", "100000", "--switch", switch, folder=tmp_path) as command:
        wait_until(lambda: len(command.descendants()) >= 5)
        command.process.kill()
        wait_until(lambda: not command.descendants())


def assert_nothing_left(command: MarkedCommand, folder: Path) -> None:
    assert not command.descendants()
    assert not list((folder / "tmp").iterdir())
    assert not (folder / "runs").exists()
