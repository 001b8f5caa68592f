"""Parts of netsum, and the nets of each from cheap to dear.

A net is a command that runs in a copy of the project, and finds a mutant by its exit status.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

PYTEST: Final = ("-m", "pytest", "-x", "-q")
NO_TEST: Final = 5
"""Exit status of pytest where no test runs what a mutant changes."""


@dataclass(frozen=True)
class Net:
    """A net: a command of Python's arguments.

    `always`: it also runs where another net has found the mutant already. `first`: further arguments on the unchanged project,
    `later`: on mutants.
    """

    name: str
    arguments: tuple[str, ...]
    always: bool = False
    first: tuple[str, ...] = ()
    later: tuple[str, ...] = ()


def _tests(name: str, *arguments: str) -> Net:
    return Net(name, (*PYTEST, "-p", "no:cacheprovider", *arguments))


def _tests_of_changes(name: str, *arguments: str) -> Net:
    """Return a net of those tests that run what a mutant changes; of all of them where pytest-testmon is not installed.

    Not for code that Numba or the engine compiles: it runs unseen.
    """
    if find_spec("testmon") is None:
        return _tests(name, *arguments)
    return Net(name, (*PYTEST, *arguments), first=("--testmon",), later=("--testmon", "--testmon-nocollect"))


EXPLORER: Final = Net("explorer", ("-m", "tests.mutants.explored"), always=True)
CORE_TESTS: Final = tuple(
    f"tests/host_agent/test_{name}.py"
    for name in (
        *("arrivals", "departures", "recovery", "quorum_chunk", "silence", "tree_path"),
        *("congestion_window", "pacing", "schedule", "timeout"),
    )
)
_DATAPLANE: Final = _tests("data plane", "tests/dataplane", "--target", "embedded-64")
_NETWORK: Final = _tests("terrible network", "tests/integration/test_terrible_network.py")


@dataclass(frozen=True)
class Part:
    """A part of netsum: folders or files, left-out ones, its nets, and how many of 200 mutants it gets."""

    sources: tuple[str, ...]
    nets: tuple[Net, ...]
    mutants: int
    without: tuple[str, ...] = ()


PARTS: Final = {
    "program": Part(("p4/build/netsum_v1model_64.json",), (_DATAPLANE, _NETWORK, EXPLORER), 40),
    "core": Part(
        tuple(
            f"host_agent/protocol/{name}.py" for name in ("arrivals", "departures", "recovery", "beginning")
        ),
        (_tests("core", *CORE_TESTS), _NETWORK, EXPLORER),
        40,
    ),
    "controller": Part(
        ("controller",),
        (
            _tests_of_changes("controller", "tests/controller", "--ignore=tests/controller/world"),
            Net("world", ("-m", "tests.controller.world", "--minutes", "1", "--seeds", "0..9999")),
        ),
        50,
        without=("controller/service/web.py",),
    ),
    "engine compiler": Part(
        ("sim/switch/codegen", "sim/switch/loader.py", "sim/switch/ir.py", "sim/switch/layout.py"),
        (_tests("engine", "tests/sim/switch"), _DATAPLANE),
        40,
    ),
    "simulator": Part(
        ("sim/network",),
        (
            _tests("network", "tests/sim/network", "tests/integration/test_failures.py"),
            _tests("traces", "tests/sim/traces", "tests/sim/test_published_rates.py"),
            _tests("experiments", "tests/sim/experiments"),
        ),
        30,
    ),
}


@dataclass(frozen=True)
class Verdict:
    """A net's verdict: by what it found the mutant ("" : not), and seconds."""

    found: str
    seconds: float


def run(net: Net, tree: Path, limit_s: float, *, first: bool = False) -> Verdict:
    """Run a net in a copy of the project; one that does not end within `limit_s` has found the mutant.

    `first`: the project is not changed.
    """
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPATH": f"{tree}:{tree / 'p4'}", "HOME": str(tree)}
    began = time.monotonic()
    with subprocess.Popen(
        [sys.executable, *net.arguments, *(net.first if first else net.later)],
        cwd=tree,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=limit_s)
            passed = process.returncode == 0 or (net.later and process.returncode == NO_TEST)
            found = "" if passed else _first_finding(said, process.returncode)
        except subprocess.TimeoutExpired:
            found = f"does not end within {limit_s:.0f} s"
        finally:  # The processes that the net started end with it.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return Verdict(found, time.monotonic() - began)


def _first_finding(said: str, status: int) -> str:
    lines: Sequence[str] = said.splitlines()
    for pattern in (r"(?:FAILED|ERROR) (\S.*)", r"((?:.*)(?:violat|breaks).*)"):
        for line in lines:
            if match := re.match(pattern, line):
                return match[1][:160]
    return f"exit status {status}: {lines[-1][:120] if lines else ''}"
