"""Processes of this machine."""

import contextlib
from pathlib import Path


def with_words(*words: str) -> list[int]:
    """Return the processes whose command lines have all of these words."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # The process may have ended meanwhile.
            line = (entry / "cmdline").read_bytes().split(b"\0")
            if all(word.encode() in line for word in words):
                found.append(int(entry.name))
    return found
