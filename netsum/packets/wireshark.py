"""Paths of the protocol's dissector for Wireshark, and of Wireshark's plugins.

The dissector is one file of Lua; p4/spec/generate.py writes the protocol's specification at its head.
"""

import os
import shutil
import subprocess
from pathlib import Path

PLUGIN = Path(__file__).with_name("netsum.lua")
PERSONAL_PLUGINS = Path(".local/lib/wireshark/plugins")
"""Below the home folder; the default of Wireshark on Linux."""


def plugin_folder() -> Path:
    """Return the folder from which Wireshark loads a user's own dissectors."""
    tshark = shutil.which("tshark")
    if tshark is not None:
        said = subprocess.run(
            [tshark, "-G", "folders"], capture_output=True, text=True, timeout=60, check=False
        )
        for line in said.stdout.splitlines():
            name, _, folder = line.partition(":")
            if name == "Personal Lua Plugins" and folder.strip():
                return Path(folder.strip())
    return Path.home() / PERSONAL_PLUGINS


def install(folder: Path) -> Path:
    """Put the dissector into a folder, in place of an older one; `OSError` if it cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / PLUGIN.name
    # Renamed into place: Wireshark may be reading the old one.
    part = folder / f".{PLUGIN.name}.{os.getpid()}"
    try:
        shutil.copyfile(PLUGIN, part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return target
