"""Settings of all tests: random data, signals, order, seconds, and a second run of the tests that a first one skipped."""

import os
import re
import signal
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The first call of a compiled function loads or compiles it, and the machine may be running everything else as well: no
# deadlines. A landing must not depend on luck, so only NETSUM_LONG_TESTS=1 draws anew each time.
settings.register_profile(
    "netsum",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="NETSUM_LONG_TESTS" not in os.environ,
)
settings.load_profile("netsum")

# A shell starts what runs in its background with SIGINT ignored, which what tests start would inherit: Ctrl-C would not end it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

LONG = (
    "test_testbed_faults.py",
    "test_faults.py",
    "test_symmetry.py",
    "test_testbed_faults_tree.py",
    "test_digits.py",
    "test_xdp.py",
    "test_mininet_testbed.py",
)
"""The files that take longest: those that wait beside those that compute."""
WAITING = ("integration", "netsum", "topologies", "veth")
"""Folders whose tests mostly wait: for processes, links and deadlines. Those of the others compute."""
BUDGET = re.compile(r"\|`(tests/\w+)`\|(\d+)(?=\|)")
"""A pair of cells in CONTRIBUTING.md's table of the seconds that each folder may take."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("netsum")
    group.addoption("--record-skipped", metavar="FILE", help="write the ids of skipped tests and files here")
    group.addoption(
        "--record-failed", metavar="FILE", help="write the ids of failed tests here, if all tests ran"
    )
    group.addoption("--only-recorded", metavar="FILE", help="run only what --record-skipped wrote")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Run one process more than there are processors, because many tests wait for a deadline to pass."""
    return (os.cpu_count() or 1) + 1


def pytest_configure(config: pytest.Config) -> None:
    for outcome in ("skipped", "failed"):
        path = config.getoption(f"--record-{outcome}")
        if path and not hasattr(config, "workerinput"):  # not in xdist's workers
            config.pluginmanager.register(Recorder(Path(path), outcome))


class Recorder:
    """Writes down tests and files of one outcome, one a line."""

    def __init__(self, path: Path, outcome: str) -> None:
        self._path = path
        self._outcome = outcome
        self._found: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome == self._outcome:
            self._found.add(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.outcome == self._outcome:
            self._found.add(report.nodeid)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if self._outcome == "failed" and exitstatus != pytest.ExitCode.TESTS_FAILED:
            return  # Some tests may not have run.
        self._path.write_text("".join(f"{each}\n" for each in sorted(self._found)), encoding="utf-8")


def _recorded(path: Path, items: Iterable[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Divide tests into those that a file lists, by themselves or with their whole file, and the others."""
    listed = set(path.read_text(encoding="utf-8").splitlines())
    wanted: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        known = item.nodeid in listed or item.nodeid.partition("::")[0] in listed
        (wanted if known else others).append(item)
    return wanted, others


def mixed(files: Iterable[Path]) -> list[Path]:
    """Put the long files first, and mix those that wait with those that compute, so that both kinds end together."""
    long: list[Path] = []
    kinds: tuple[list[Path], list[Path]] = ([], [])
    for file in dict.fromkeys(files):
        (long if file.name in LONG else kinds[any(part in WAITING for part in file.parts)]).append(file)
    place = {file: at / len(kind) for kind in kinds for at, file in enumerate(kind)}
    return sorted(long, key=lambda file: LONG.index(file.name)) + sorted(place, key=lambda file: place[file])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the files of processes that share the work file by file."""
    if config.getoption("--only-recorded"):
        items[:], others = _recorded(Path(config.getoption("--only-recorded")), items)
        config.hook.pytest_deselected(items=others)
    if hasattr(config, "workerinput"):
        place = {file: at for at, file in enumerate(mixed(item.path for item in items))}
        items.sort(key=lambda item: place[item.path])


def over_budget(reports: Iterable[pytest.TestReport], text: str) -> list[str]:
    """Return a line for each folder whose tests took more seconds than the table in a text allows."""
    taken: Counter[str] = Counter()
    for report in reports:
        taken["/".join(report.nodeid.split("/")[:2])] += report.duration  # type: ignore[assignment]
    return [
        f"{folder}: {taken[folder]:.0f} s of tests, {seconds} in CONTRIBUTING.md: see --durations"
        for folder, seconds in BUDGET.findall(text)
        if taken[folder] > int(seconds)
    ]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name the folders of tests that took longer than they may; a busy machine is slow, so that no run fails by it."""
    if config.getoption("--only-recorded"):
        return  # The tests of optional parts have no budget.
    table = config.rootpath / "CONTRIBUTING.md"
    reports = [
        each
        for found in terminalreporter.stats.values()
        for each in found
        if isinstance(each, pytest.TestReport)
    ]
    for line in over_budget(reports, table.read_text(encoding="utf-8") if table.exists() else ""):
        terminalreporter.write_line(line)
