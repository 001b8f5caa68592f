"""How much memory a process has used, and how much there is."""

import os
import re
import resource
from pathlib import Path


def most_bytes() -> int:
    """Return the most memory that this process has held at once, in bytes.

    Linux counts in ``ru_maxrss`` also what the process was before it ran its program: the parent, however large. The
    status file does not.
    """
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    except OSError:
        found = None
    return 1024 * (int(found[1]) if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def total_bytes() -> int:
    """Return how much memory this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
