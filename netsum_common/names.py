"""The rule of names: jobs, switches, hosts, aggregators and testbeds.

A name is used unchanged as a word of a shell and as a part of file names and URLs. The hosts and switches of a testbed, after
which its interfaces are named, have shorter names (`topologies.topology.NODE_NAME`).
"""

import re

MOST = 100  # Characters of a name.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def check_name(name: str, most: int = MOST) -> str:
    """Return a valid name; raise ValueError with the expected form for any other text."""
    if len(name) > most or not _NAME.fullmatch(name):
        raise ValueError(
            f"expected a name of 1 to {most} letters, digits, dots, dashes and underscores, a letter or digit first, not "
            f"{name[: most + 1]!r}"
        )
    return name


def as_name(text: str) -> str:
    """Return a name made of a text, with dashes for characters that names do not have."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[: MOST // 2]
