"""The memory that this process has used, and the memory of the machine."""

import os
import re
import resource
from pathlib import Path


def most_bytes() -> int:
    """Return the most memory that this process has held at once, in bytes.

    In ``ru_maxrss`` Linux also counts the parent's memory, which the process had before it ran its program. The status file
    does not.
    """
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    except OSError:
        found = None
    return 1024 * (int(found[1]) if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def total_bytes() -> int:
    """Return the size of this machine's memory, in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
