"""Checks of installed software."""

import importlib.metadata
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

from netsum.doctor.finding import Finding
from netsum.extras import DISTRIBUTIONS, install_command
from netsum.programs import ProgramMissingError, compiled_program, fault_of_build
from netsum_common.lane_counts import SOFTWARE_LANES
from netsum_common.targets.bmv2 import PACKAGE, PROGRAM
from topologies.find_mininet import find_mininet
from topologies.namespaces import missing_tools

P4C_PACKAGE = (
    "install p4lang's package p4lang-p4c, https://github.com/p4lang/p4c#installing-packaged-versions-of-p4c"
)

NEEDED = ("prometheus_client", "tornado", "llvmlite")
"""Modules that a run with a switch on this machine needs beyond what netsum always installs."""


def extras() -> Finding:
    """Look which optional packages of a run are installed."""
    missing = [module for module in NEEDED if find_spec(module) is None]
    if missing:
        return Finding(
            "Extras",
            f"without {', '.join(DISTRIBUTIONS[module] for module in missing)}",
            "every run with a switch on this machine",
            "; ".join(install_command(module) for module in missing),
            required=True,
        )
    return Finding("Extras", "controller and sim are installed")


def bytecode() -> Finding:
    """Look whether Python keeps the bytecode of modules; else each process of a run compiles NumPy's and Numba's anew."""
    numba = find_spec("numba")
    if sys.dont_write_bytecode and not (numba and numba.cached and Path(numba.cached).exists()):
        return Finding(
            "Bytecode",
            "not written, as PYTHONDONTWRITEBYTECODE is set",
            "a quick start: each process takes seconds longer",
            f"unset PYTHONDONTWRITEBYTECODE, or once: python -m compileall -q {sysconfig.get_path('purelib')}",
        )
    return Finding("Bytecode", "written, or compiled already")


def programs() -> Finding:
    """Look whether the compiled P4 programs are there, and are those of the P4 sources."""
    try:
        for lanes in SOFTWARE_LANES:
            compiled_program(lanes)
    except ProgramMissingError as error:
        return Finding("Compiled P4", "missing", "every run", str(error), required=True)
    there = ", ".join(f"{lanes} lanes" for lanes in SOFTWARE_LANES)
    if fault := fault_of_build():
        return Finding(
            "Compiled P4",
            f"{there}, not of the sources in p4/",
            "runs of the P4 program in p4/v1model",
            fault,
        )
    return Finding("Compiled P4", there)


def namespace_tools() -> Finding:
    """Look for the programs that make interfaces."""
    lacking = missing_tools()
    if lacking:
        return Finding(
            "iproute2, ethtool", f"without {', '.join(lacking)}", "testbeds", "apt install iproute2 ethtool"
        )
    return Finding("iproute2, ethtool", "installed")


def mininet() -> Finding:
    """Look for Mininet, in our environment or the distribution's."""
    remedy = "apt install mininet"
    if find_mininet() is None or shutil.which("mnexec") is None:
        return Finding("Mininet", "not installed", "`netsum testbed`", remedy)
    return tool("Mininet", "mn", "`netsum testbed`", remedy)


def bmv2() -> Finding:
    """Look for BMv2."""
    needed_for = "--switch bmv2 (the embedded engine runs the same program without it)"
    return tool("BMv2", PROGRAM, needed_for, f"install {PACKAGE}")


def p4c() -> Finding:
    """Look for the P4 compiler."""
    program = "p4c-bm2-ss" if shutil.which("p4c") is None else "p4c"  # p4c only calls it.
    return tool("p4c", program, "changing the P4 program (the compiled one is included)", P4C_PACKAGE)


def tshark() -> Finding:
    """Look for Wireshark's terminal version, and whether it knows the protocol."""
    found = tool(
        "tshark", "tshark", "reading captures with the dissector", "apt install tshark (or wireshark)"
    )
    if not found.well:
        return found
    from netsum.packets.wireshark import PLUGIN, plugin_folder

    installed = plugin_folder() / PLUGIN.name
    if not installed.is_file():
        known = f"the dissector is in {PLUGIN}; `netsum wireshark --install` makes it known"
    elif installed.read_bytes() != PLUGIN.read_bytes():
        known = f"{installed} is another version: `netsum wireshark --install`"
    else:
        known = f"knows the protocol ({installed})"
    return Finding(found.subject, f"{found.found}; {known}")


def scapy() -> Finding:
    """Look for scapy."""
    return _package("scapy", "packets by hand (`netsum.packets.layer`)", install_command("scapy"))


def torch() -> Finding:
    """Look for PyTorch."""
    return _package(
        "torch", '`init_process_group("netsum")`', f"{install_command('torch')}, see docs/torch.md"
    )


def _package(name: str, needed_for: str, remedy: str) -> Finding:
    try:
        return Finding(name, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, "not installed", needed_for, remedy)


def tool(subject: str, program: str, needed_for: str, remedy: str) -> Finding:
    """Look for a program, and ask it for its version."""
    path = shutil.which(program)
    if path is None:
        return Finding(subject, "not installed", needed_for, remedy)
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(subject, f"{path} does not run ({error})", needed_for, remedy)
    lines = [*said.stdout.splitlines(), *said.stderr.splitlines()]
    version = next(
        (line.strip(" .") for line in lines if any(letter.isdigit() for letter in line)), "installed"
    )
    return Finding(subject, version)
