"""Lists the exercises by name in the summary: where each ran, or why it did not."""

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    outcomes: dict[str, dict[str, str]] = {}
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            _, found, case = report.nodeid.partition("test_exercises.py::test_exercise[")
            if found:
                name, _, kind = case.removesuffix("]").rpartition("-")
                why = f": {report.longrepr[2].removeprefix('Skipped: ')}" if outcome == "skipped" else ""
                outcomes.setdefault(name, {})[kind] = ("runs" if outcome == "passed" else outcome) + why
    if outcomes:
        terminalreporter.section("p4lang's exercises")
        for name, by_kind in sorted(outcomes.items()):
            said = ", ".join(f"{kind} {text}" for kind, text in sorted(by_kind.items()))
            terminalreporter.write_line(f"{name:<18} {said}")
