"""The runs of `netsum repro`: the same training under one condition after the other."""

import contextlib
import math
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from netsum.command_errors import CommandError, UsageError
from netsum.repro.recordings import SHOW_STACKS, Difference, first_difference
from topologies.children import Child

OVER: Final = {
    "exact": {"NETSUM_REPRO_OVER": "netsum", "NETSUM_EXACT": "1"},
    "plain": {"NETSUM_REPRO_OVER": "netsum", "NETSUM_EXACT": "0"},
    "gloo": {"NETSUM_REPRO_OVER": "gloo"},
}
OF_ITS_OWN_SWITCH: Final = ("lanes", "loss", "tree")
"""Environment of a switch that is started where NETSUM_CONTROLLER names no network."""
NETSUM_ALONE: Final = (*OF_ITS_OWN_SWITCH, "link")
CONDITIONS: Final[dict[str, dict[str, str]]] = {
    "buckets": {"NETSUM_REPRO_BUCKET": "1024"},
    "order": {"NETSUM_REPRO_ORDER": "reversed"},
    "lanes": {"NETSUM_LANES": "64"},
    "loss": {"NETSUM_DROP_PPM": "10000"},
    "tree": {"NETSUM_SWITCHES": "2"},
    "link": {"NETSUM_LINK": "udp"},
}
MEANING: Final = {
    "buckets": "the size of gradient buckets",
    "order": "the order of the ranks",
    "lanes": "the values a packet carries",
    "loss": "lost packets",
    "tree": "the tree of switches",
    "link": "the link to the switch",
    "workers": "the number of workers",
    "controller": "the network",
}
_LEAST_LIMIT_S, _LIMIT = 120.0, 20.0
"""Limits of a run in seconds and in multiples of the first run's time: a hanging run ends before --timeout."""
_SEED: Final = {"NETSUM_REPRO_SEED": "1"}
_FRAME: Final = re.compile(r'File "(.*)", line (\d+) in (.*)')
_LIBRARIES: Final = (sys.prefix, sys.base_prefix, os.fspath(Path(__file__).parents[2] / "host_agent"))
_PROCESSES: Final = re.compile(r"(--nproc[-_]per[-_]node)(=|$)(.*)")


@dataclass
class ComparedRun:
    """A run beside the first run over the same sums."""

    # over, condition: names of `OVER`, and of `CONDITIONS`, "repeated", "seeded", "workers N" or "controller ADDRESS".
    over: str
    condition: str
    # "same", "different", or "not applied" if the training has nothing that the condition changes.
    result: str
    first: Difference | None = None  # The first difference.

    def to_json(self) -> dict[str, Any]:
        """Return it as a document."""
        first = None if self.first is None else asdict(self.first)
        return {"over": self.over, "condition": self.condition, "result": self.result, "first": first}


@dataclass
class Findings:
    """All runs, and a sentence for each cause of a difference."""

    runs: list[ComparedRun] = field(default_factory=list)
    causes: list[str] = field(default_factory=list)

    @property
    def reproducible(self) -> bool:
        """Whether no run differs from the first one over the same sums."""
        return not self.causes


@dataclass(frozen=True)
class Training:
    """The user's training command."""

    command: Sequence[str]
    folder: Path  # Folder of the records and outputs of all runs.
    steps: int  # Optimizer steps to record.
    timeout_s: float  # How long a run may take.

    def run(
        self, name: str, environment: Mapping[str, str], workers: int | None = None, limit_s: float = math.inf
    ) -> Path:
        """Run it once, and return the folder with its records; `CommandError` if it failed, or took too long."""
        folder = self.folder / name.replace(" ", "-").replace("/", "-")
        folder.mkdir(parents=True)
        own = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "1", **environment}
        own |= {"NETSUM_REPRO": os.fspath(folder), "NETSUM_REPRO_STEPS": str(self.steps)}
        output = folder / "output.txt"
        command = self.command if workers is None else with_workers(self.command, workers)
        child = Child(f"the training ({name})", command, output, environment=own)
        limit_s = min(limit_s, self.timeout_s)
        deadline = time.monotonic() + limit_s
        try:
            while child.running:
                if time.monotonic() > deadline:
                    raise CommandError(f"{child.name} was not done within {limit_s:g} s{_killed(folder)}")
                time.sleep(0.05)
        finally:
            child.stop()
        if child.status:
            end = "\n".join(output.read_text(errors="replace").splitlines()[-5:])
            raise CommandError(
                f"{child.name} ended with status {child.status}; the end of its output:\n{end}"
            )
        return folder


def _killed(folder: Path) -> str:
    """Kill a training's processes that have loaded PyTorch, and return the calls in which their main threads were."""
    found = []
    for path in folder.glob("*.stack"):
        with contextlib.suppress(OSError):  # The process has ended meanwhile.
            if os.fsencode(f"NETSUM_REPRO={folder}\0") in Path("/proc", path.stem, "environ").read_bytes():
                os.kill(int(path.stem), SHOW_STACKS)
                found.append(path)
    time.sleep(1.0 if found else 0.0)
    places = []
    for path in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(path.stem), signal.SIGKILL)
        name, _, stacks = path.read_text().partition("\n")
        if frames := _FRAME.findall(stacks.rpartition("\n\n")[2]):  # The main thread is the last.
            own = next((each for each in frames if not each[0].startswith(_LIBRARIES)), frames[-1])
            places.append(f"\n{name} is in {frames[0][2]}, called from {own[0]}, line {own[1]}")
    return "".join(sorted(places))


def with_workers(command: Sequence[str], workers: int) -> list[str]:
    """Return a torchrun command for another number of processes; `UsageError` if it has no --nproc-per-node."""
    changed = list(command)
    for at, each in enumerate(changed):
        if found := _PROCESSES.fullmatch(each):
            if found[2]:
                changed[at] = f"{found[1]}={workers}"
            else:
                changed[at + 1] = str(workers)
            return changed
    raise UsageError("--workers changes --nproc-per-node: expected a torchrun command that has it")


def examine(
    training: Training,
    overs: Sequence[str],
    conditions: Mapping[str, Mapping[str, str]],
    workers: Sequence[int],
    report: Callable[[ComparedRun], None],
) -> Findings:
    """Run a training under all conditions. `overs`: names of `OVER`. `workers`: other numbers of workers to try."""
    if shutil.which(training.command[0]) is None:
        raise UsageError(f"there is no program {training.command[0]}")
    for count in workers:
        with_workers(training.command, count)
    for name in [each for each in os.environ if each.startswith("NETSUM_REPRO")]:
        del os.environ[
            name
        ]  # The variable belongs to another command's runs, of which this command is a part.
    findings = Findings()
    for over in overs:
        series = _Series(training, over, findings, report)
        series.examine(conditions, workers)
        if not series.grouped:  # One process: the sums are its own.
            break
    return findings


class _Series:
    """The runs over one kind of sums."""

    def __init__(
        self, training: Training, over: str, findings: Findings, report: Callable[[ComparedRun], None]
    ) -> None:
        self._training, self._over, self._findings, self._report = training, over, findings, report
        self._environment = dict(OVER[over])
        self._limit_s = math.inf
        began = time.monotonic()
        self._base = self._run("first", {})
        self._limit_s = _LEAST_LIMIT_S + _LIMIT * (time.monotonic() - began)
        self.grouped = (self._base / "grouped").exists()

    def examine(self, conditions: Mapping[str, Mapping[str, str]], workers: Sequence[int]) -> None:
        """Repeat the training as it is; if that changes nothing, or seeds help, under the conditions."""
        if self._compare("repeated", {}).first is not None:
            self._environment |= _SEED
            self._base = self._run("seeded first", {})
            if self._compare("seeded", {}).first is not None:
                self._found("differs from run to run whatever the seeds: a race, the time, or its input")
                return
            self._found("uses random numbers without a seed")
        if not self.grouped:
            return
        for name, environment in conditions.items():
            if self._over == "gloo" and name.partition(" ")[0] in (*NETSUM_ALONE, "controller"):
                continue
            if name in OF_ITS_OWN_SWITCH and "NETSUM_CONTROLLER" in os.environ:
                self._add(name, "not applied", None)
            elif self._compare(name, environment).first is not None:
                self._found(f"depends on {MEANING[name.partition(' ')[0]]}")
        for count in workers:
            if self._compare(f"workers {count}", {}, count).first is not None:
                self._found(f"depends on {MEANING['workers']}")

    def _compare(self, name: str, environment: Mapping[str, str], workers: int | None = None) -> ComparedRun:
        folder = self._run(name, environment, workers)
        first = first_difference(self._base, folder)
        result = "same" if first is None else "different"
        if environment and not (folder / "applied").exists():
            result = "not applied"
        if folder != self._base:
            shutil.rmtree(folder)
        return self._add(name, result, first)

    def _add(self, name: str, result: str, first: Difference | None) -> ComparedRun:
        compared = ComparedRun(self._over if self.grouped else "process", name, result, first)
        self._findings.runs.append(compared)
        self._report(compared)
        return compared

    def _run(self, name: str, environment: Mapping[str, str], workers: int | None = None) -> Path:
        environment = self._environment | dict(environment)
        return self._training.run(f"{self._over} {name}", environment, workers, self._limit_s)

    def _found(self, cause: str) -> None:
        where = f"over {self._over}: " if self.grouped else ""
        sentence = f"{where}the training {cause}"
        if sentence not in self._findings.causes:
            self._findings.causes.append(sentence)
