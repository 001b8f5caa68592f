"""Commands in a network namespace of their own, whose only interface is loopback. Linux."""

import subprocess
from collections.abc import Sequence

import pytest

_OWN = ("unshare", "--map-root-user", "--net")


def isolated(setup: str, command: Sequence[str]) -> list[str]:
    """Return a command that runs another one in a namespace of its own, after shell commands that set up the namespace."""
    return [*_OWN, "sh", "-ec", f'{setup}; exec "$@"', "sh", *command]


def skip_without_namespaces() -> None:
    """Skip the test where no namespace can be made."""
    if subprocess.run([*_OWN, "true"], capture_output=True, check=False).returncode:
        pytest.skip(f"needs network namespaces: {' '.join(_OWN)}")
