"""Commands in network namespaces, and what a machine needs for these. Linux, root.

Failures raise `TestbedError` with the reason.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Sequence

from topologies.children import TestbedError

COMMAND_TIMEOUT_S = 60.0


def missing_tools() -> list[str]:
    """Return which of the programs used here are not installed."""
    return [tool for tool in ("ip", "tc", "ethtool") if shutil.which(tool) is None]


def missing_for_namespaces() -> str | None:
    """Return why this process cannot use namespaces, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root: run it with sudo"
    lacking = missing_tools()
    if lacking:
        return f"the testbed needs {' and '.join(lacking)}: install the packages iproute2 and ethtool"
    return None


def run(*command: str, node: str = "") -> str:
    """Run a command and return its output.

    `command`: program and arguments, after the prefix of `inside_of`. `node`: the host or switch where the command runs, for
    errors.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise TestbedError(f"{_named(command, node)} did not end within {COMMAND_TIMEOUT_S:g} s") from None
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split())
        raise TestbedError(f"{_named(command, node)} failed: {said or f'status {done.returncode}'}")
    return done.stdout


def _named(command: Sequence[str], node: str) -> str:
    """Format a command for a message, without the prefix that enters a namespace."""
    entering = inside_of(0)
    if tuple(command[: len(entering) - 1]) == entering[:-1]:
        node, command = node or command[len(entering) - 1], command[len(entering) :]
    return f"`{' '.join(command)}`" + (f" on {node}" if node else "")


def inside_of(pid: int) -> tuple[str, ...]:
    """Return the prefix of a command line that runs in the namespaces of a process, such as a Mininet node's shell."""
    return ("mnexec", "-a", str(pid))


def await_interface(prefix: Sequence[str], interface: str, deadline: float) -> None:
    """Wait until an interface carries packets; earlier packets are lost.

    `prefix`: the prefix of a command line that runs in the interface's namespace. `deadline`: a time of `time.monotonic`.
    """
    while " state UP " not in run(*prefix, "ip", "-o", "link", "show", "dev", interface):
        if time.monotonic() > deadline:
            raise TestbedError(
                f"the interface {interface} does not come up: its cable's other end is down, or gone"
            )
        time.sleep(0.01)
