"""Ranks of a framework's job for tests: processes that run one file, and meet by the environment."""

import os
import subprocess
import sys
from pathlib import Path

from tests.free_ports import free_port

ROOT = Path(__file__).parents[2]


def run(
    world: int, file: str, *words: str, deadline_s: float = 400.0, **variables: str
) -> list[tuple[int, str]]:
    """Return every rank's exit status and output. `file`: beside this one. `variables`: of the environment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NETSUM_")}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    meeting = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    processes = [
        subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name(file)), *words],
            env=environment | meeting | variables | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(world)
    ]
    try:
        outputs = [each.communicate(timeout=deadline_s)[0] for each in processes]
    finally:
        for each in processes:
            each.kill()
    return [(each.returncode, output) for each, output in zip(processes, outputs, strict=True)]
