"""Machine, date and command of a measurement; and the example programs that several benchmarks train."""

import datetime
import os
import platform
import shlex
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from netsum.command_errors import CommandError

_EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def use_examples() -> None:
    """Make the modules of examples/ importable.

    Raises CommandError if they are not there: they are part of the source checkout and not installed.
    """
    if not _EXAMPLES.is_dir():
        raise CommandError(
            f"this benchmark trains the examples, and there is no {_EXAMPLES}: run it in netsum's source checkout"
        )
    if str(_EXAMPLES) not in sys.path:
        sys.path.insert(0, str(_EXAMPLES))


def example(name: str) -> Any:
    """Return a module of examples/."""
    use_examples()
    return import_module(name)


def command_line() -> str:
    """Return the command that runs, as it was typed, for a report."""
    return shlex.join(["netsum", *sys.argv[1:]])


def machine_and_date(**libraries: str) -> str:
    """Return one line for a report: processor, cores, system, Python, further libraries with their versions, and the time."""
    versions = {"Python": platform.python_version(), **libraries}
    return (
        f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}; "
        f"{', '.join(f'{name} {version}' for name, version in versions.items())}; "
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC"
    )


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
