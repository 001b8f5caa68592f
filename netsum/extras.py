"""The optional packages that netsum uses, and how to install each.

A command names the package itself: netsum need not come from a package index, so ``pip install 'netsum[…]'`` may not find it.
"""

import importlib.metadata
import re
from typing import Final

DISTRIBUTIONS: Final = {
    "prometheus_client": "prometheus-client",
    "tornado": "tornado",
    "llvmlite": "llvmlite",
    "p4runtime_sh": "p4runtime-shell",
    "p4": "p4runtime-shell",
    "typer": "typer",
    "rich": "rich",
    "torch": "torch",
    "grpc": "grpcio",
    "google": "protobuf",
    "matplotlib": "matplotlib",
    "scapy": "scapy",
    "pyarrow": "pyarrow",
    "distributed": "dask[distributed]",
}
"""Import name to the distribution that brings it, where a package may be missing."""

_TOGETHER: Final = {"p4runtime-shell": ("p4runtime-shell", "setuptools")}
"""Packages that must be installed with a distribution."""


def install_command(module: str) -> str:
    """Return the command that installs a module. `module`: as it is imported, such as ``p4runtime_sh``."""
    distribution = DISTRIBUTIONS.get(module, module)
    wanted = [_requirement(each) for each in _TOGETHER.get(distribution, (distribution,))]
    return f"pip install {' '.join(wanted)}"


def _requirement(distribution: str) -> str:
    """Return netsum's requirement of a distribution, with its versions."""
    try:
        requirements = importlib.metadata.requires("netsum") or []
    except importlib.metadata.PackageNotFoundError:  # Run from a checkout that is not installed.
        requirements = []
    for line in requirements:
        requirement = line.partition(";")[0].strip()
        if re.split(r"[<>=!~\[ ]", requirement, maxsplit=1)[0] == distribution:
            return f"'{requirement}'" if set("<>=![ ") & set(requirement) else requirement
    return distribution
