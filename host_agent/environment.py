"""Variables of the environment that are 0 or 1."""

import os
from typing import Final

from host_agent.errors import MisuseError

CONGESTION_WINDOW: Final = "NETSUM_CONGESTION_WINDOW"
"""Whether worker cores have a congestion window: the internal switch while both behaviours are compared."""


def is_on(variable: str, default: bool = False) -> bool:
    """Return whether a variable is 1; `default`: the answer where it is not set or empty.

    Raises MisuseError if it is neither 0 nor 1.
    """
    text = os.environ.get(variable) or str(int(default))
    if text not in ("0", "1"):
        raise MisuseError(f"{variable}: expected 0 or 1, got {text!r}")
    return text == "1"
