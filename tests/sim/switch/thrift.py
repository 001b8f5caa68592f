"""Commands for BMv2 over Thrift, which has what P4Runtime lacks, such as the depth of its queues."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

CLIENT: Final = "simple_switch_CLI"


def run_client(
    commands: Sequence[str], *options: str, inside: Sequence[str] = (), timeout_s: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """Run BMv2's command line on several commands, and return its status and output."""
    return subprocess.run(
        [*inside, CLIENT, *options],
        input="\n".join(commands) + "\n",
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env=_system_environment(),
    )


def _system_environment() -> dict[str, str]:
    """Return the environment without an activated virtual environment.

    The client is a Python program of the distribution. It finds its module `thrift` with the distribution's Python only.
    """
    ours = {Path(os.environ["VIRTUAL_ENV"], "bin")} if os.environ.get("VIRTUAL_ENV") else set()
    if sys.prefix != sys.base_prefix:
        ours.add(Path(sys.prefix, "bin"))
    kept = [each for each in os.environ.get("PATH", os.defpath).split(os.pathsep) if Path(each) not in ours]
    hidden = ("VIRTUAL_ENV", "PYTHONHOME", "PYTHONPATH")
    return {
        **{name: value for name, value in os.environ.items() if name not in hidden},
        "PATH": os.pathsep.join(kept),
    }
