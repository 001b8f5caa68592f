"""The rule of names: jobs, switches, hosts, aggregators and testbeds.

Names are words of a shell, parts of file names and of addresses of pages, as they are. The hosts and switches of a testbed, after
which its interfaces are named, have shorter ones (`topologies.topology.NODE_NAME`).
"""

import re

MOST = 100  # Characters of a name.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def check_name(name: str, most: int = MOST) -> str:
    """Return a name; raises ValueError with what was expected if it is none."""
    if len(name) > most or not _NAME.fullmatch(name):
        raise ValueError(
            f"expected a name of 1 to {most} letters, digits, dots, dashes and underscores, a letter or digit first, not "
            f"{name[: most + 1]!r}"
        )
    return name


def as_name(text: str) -> str:
    """Return a name made of a text: dashes for what names do not have."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[: MOST // 2]
