"""What benchmarks share that are started as modules, ``python -m netsum.bench.NAME``: ranges of arguments, and how they end."""

import argparse
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from netsum_common.errors import NetsumError


def whole(text: str) -> int:
    """Read a whole number of at least 1, for argparse."""
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, not {text!r}")
    return int(text)


def positive(text: str) -> float:
    """Read a finite number above 0, for argparse."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, not {text!r}")
    return number


@contextmanager
def one_sentence() -> Iterator[None]:
    """Exit with one sentence if the block is interrupted, or raises what is foreseeable."""
    try:
        yield
    except NetsumError as error:
        sys.exit(f"netsum: {error}")
    except KeyboardInterrupt:
        print("netsum: interrupted", file=sys.stderr)
        sys.exit(130)
