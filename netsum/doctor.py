"""Looks at this machine for what netsum uses, and says what to do about what is missing."""

import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from netsum.programs import LANES, ProgramMissingError, compiled_program
from topologies.bmv2 import BMV2_PACKAGE, SWITCH_PROGRAM
from topologies.namespaces import missing_tools

SOCKET_BUFFER_BYTES = 4 << 20
"""Holds full windows (64 packets of 1,086 bytes) of dozens of workers while the receiver is not scheduled."""

P4C_PACKAGE = (
    "install p4lang's package p4lang-p4c, https://github.com/p4lang/p4c#installing-packaged-versions-of-p4c"
)


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes
    ----------
    subject
        What was looked at.
    found
        What is there.
    needed_for
        What does not work without it; empty if all is well.
    remedy
        What to do; empty if all is well.
    """

    subject: str
    found: str
    needed_for: str = ""
    remedy: str = ""

    @property
    def well(self) -> bool:
        """Whether nothing need be done."""
        return not self.remedy


def examine() -> list[Finding]:
    """Run every check; takes well under a second and changes nothing."""
    checks: tuple[Callable[[], Finding], ...] = (
        _extras,
        _programs,
        _loopback,
        lambda: _socket_buffer("rmem_max"),
        lambda: _socket_buffer("wmem_max"),
        _root,
        _namespace_tools,
        _bmv2,
        _p4c,
    )
    return [check() for check in checks]


def _extras() -> Finding:
    modules = {"p4runtime_sh": "controller", "llvmlite": "sim", "p4": "sim", "sklearn": "demo"}
    lacking = sorted({extra for module, extra in modules.items() if find_spec(module) is None})
    if lacking:
        return Finding(
            "Extras",
            f"without {', '.join(lacking)}",
            "the demo",
            f"pip install 'netsum[{','.join(lacking)}]'",
        )
    return Finding("Extras", "controller, sim and demo are installed")


def _programs() -> Finding:
    try:
        for lanes in LANES:
            compiled_program(lanes)
    except ProgramMissingError as error:
        return Finding("Compiled P4", "missing", "every run", str(error))
    return Finding("Compiled P4", " and ".join(f"{lanes} lanes" for lanes in LANES))


def _loopback() -> Finding:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("127.0.1.1", 0))
        except OSError as error:
            return Finding(
                "Loopback",
                f"127.0.1.1: {error.strerror}",
                "runs without root",
                "bring lo up with 127.0.0.0/8",
            )
    return Finding("Loopback", "127.0.0.0/8 can be bound")


def _socket_buffer(limit: str) -> Finding:
    subject = f"net.core.{limit}"
    try:
        found = int(Path(f"/proc/sys/net/core/{limit}").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return Finding(subject, "cannot be read (not Linux, or a restricted container)")
    if found < SOCKET_BUFFER_BYTES:
        return Finding(
            subject,
            f"{found:,} bytes",
            "speed: bursts overflow the sockets and are sent again",
            f"sudo sysctl -w {subject}={SOCKET_BUFFER_BYTES}",
        )
    return Finding(subject, f"{found:,} bytes")


def _root() -> Finding:
    if os.geteuid() != 0:
        return Finding("Root", "no", "network namespaces (BMv2)", "sudo, for runs with --switch bmv2 only")
    return Finding("Root", "yes")


def _namespace_tools() -> Finding:
    lacking = missing_tools()
    if lacking:
        return Finding(
            "iproute2, ethtool",
            f"without {', '.join(lacking)}",
            "network namespaces (BMv2)",
            "apt install iproute2 ethtool",
        )
    return Finding("iproute2, ethtool", "installed")


def _bmv2() -> Finding:
    needed_for = "--switch bmv2 (the embedded engine runs the same program without it)"
    return _tool("BMv2", SWITCH_PROGRAM, needed_for, f"install {BMV2_PACKAGE}")


def _p4c() -> Finding:
    return _tool("p4c", "p4c", "changing the P4 program (the compiled one is included)", P4C_PACKAGE)


def _tool(subject: str, program: str, needed_for: str, remedy: str) -> Finding:
    path = shutil.which(program)
    if path is None:
        return Finding(subject, "not installed", needed_for, remedy)
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(subject, f"{path} does not run ({error})", needed_for, remedy)
    lines = (said.stdout or said.stderr).strip().splitlines()
    version = next((line.strip() for line in lines if any(letter.isdigit() for letter in line)), "installed")
    return Finding(subject, version)
