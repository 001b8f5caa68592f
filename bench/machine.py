"""What a measurement was made on, and when."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path

__all__ = ["machine_and_date"]


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
