"""The location of Mininet: the distribution installs it where a virtual environment does not look."""

import importlib.util
from importlib.machinery import ModuleSpec, PathFinder

DISTRIBUTION_PACKAGES = ("/usr/lib/python3/dist-packages",)


def find_mininet() -> ModuleSpec | None:
    """Find Mininet in our environment, else where Debian's package puts it; None if it is in neither."""
    return importlib.util.find_spec("mininet") or PathFinder.find_spec("mininet", DISTRIBUTION_PACKAGES)
