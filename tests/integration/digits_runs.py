"""Common parts of the tests of whole runs: small tasks on both switches, and remains of a command."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from host_agent.communicator import compile_ahead
from host_agent.wire.constants import UDP_PORT
from netsum.digits.task import DigitsTask
from netsum.programs import compiled_program
from netsum.star_service import star_service
from tests.integration.digits_training import LivesOutcome, TrainingRun
from topologies.hosts import SwitchTestbed
from topologies.loopback import LoopbackTestbed
from topologies.mininet_testbed import Bmv2Star, EmbeddedStar, MininetStar

SMALL = DigitsTask(workers=3, lanes=64, steps=20, hidden=(24,), batch=16, slots=16, timeout_s=60.0)
"""For runs that must come to their end: the machine may be running all other tests at once."""
SOON = replace(SMALL, timeout_s=4.0)
"""For runs in which something is missing until its deadline has passed, and which may begin again."""
NAMING = replace(SMALL, timeout_s=8.0)
"""For runs in which the missing worker alone must be named: a busy machine may keep a live one waiting for seconds."""

DEADLINE_S = 400.0
"""Deadline of every wait for another process."""

ON_BOTH_SWITCHES = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(LoopbackTestbed, id="embedded"),
        pytest.param(Bmv2Star, id="bmv2", marks=[pytest.mark.bmv2, pytest.mark.root]),
    ],
)

ON_EVERY_TESTBED = pytest.mark.parametrize(
    "kind", [*ON_BOTH_SWITCHES.args[1], pytest.param(EmbeddedStar, id="mininet", marks=pytest.mark.root)]
)

TestbedKind = type[LoopbackTestbed] | type[MininetStar]
OnStep = Callable[[SwitchTestbed, TrainingRun, int], None]


def skip_if_lacking(kind: TestbedKind) -> None:
    if issubclass(kind, MininetStar) and (lacking := kind.lacking()):
        pytest.skip(lacking)


def train(
    kind: TestbedKind,
    folder: Path,
    task: DigitsTask = SMALL,
    *,
    drop_ppm: int = 0,
    restarts: int = 0,
    on_step: OnStep = lambda testbed, run, step: None,
) -> LivesOutcome:
    """Train on a testbed of its own, with something that happens after steps."""
    skip_if_lacking(kind)
    compile_ahead()
    with kind(task.workers, UDP_PORT, folder, drop_ppm=drop_ppm) as testbed:

        def happen(step: int, _: float) -> None:
            on_step(testbed, run, step)

        with (
            star_service(testbed, compiled_program(task.lanes), folder) as controller,
            TrainingRun(testbed, task, controller, restarts=restarts, on_step=happen) as run,
        ):
            return run.train()


_undisturbed: dict[TestbedKind, LivesOutcome] = {}


def undisturbed(kind: TestbedKind) -> LivesOutcome:
    """The outcome when nothing happens, which every other one must equal bit for bit."""
    if kind not in _undisturbed:
        _undisturbed[kind] = _train_undisturbed(kind)
    return _undisturbed[kind]


def _train_undisturbed(kind: TestbedKind) -> LivesOutcome:
    with tempfile.TemporaryDirectory() as folder:
        return train(kind, Path(folder))


class MarkedCommand:
    """A netsum command whose descendants are all known by a mark in their environment."""

    def __init__(self, command: subprocess.Popen[str], mark: str) -> None:
        self.process = command
        self._mark = mark.encode()

    def descendants(self) -> list[int]:
        """The processes that live and carry the mark, the command itself aside."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self._mark in (path / "environ").read_bytes() and int(path.name) != self.process.pid:
                    found.append(int(path.name))
        return found


@contextlib.contextmanager
def netsum_command(*arguments: str, folder: Path, **environment: str) -> Iterator[MarkedCommand]:
    """Run ``netsum`` in a folder, with its temporary files there too."""
    mark = f"NETSUM_TEST_MARK={uuid.uuid4().hex}"
    name, value = mark.split("=")
    (folder / "tmp").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", "from netsum.cli import main; main()", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env={**os.environ, name: value, "TMPDIR": str(folder / "tmp"), "COLUMNS": "250", **environment},
    ) as process:
        command = MarkedCommand(process, mark)
        try:
            yield command
        finally:
            process.kill()
            for pid in command.descendants():  # Only when a test fails.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s"
        time.sleep(0.05)
