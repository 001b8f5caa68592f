"""The benchmarks live in the source checkout, beside the README that quotes them; they are not installed."""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from host_agent.errors import NetsumError

CHECKOUT = Path(__file__).resolve().parents[2]


class BenchMissingError(NetsumError):
    """There is no such benchmark here."""


def run_bench(name: str, arguments: Sequence[str]) -> None:
    """Run ``bench/NAME.py`` of the checkout with command line arguments.

    Raises
    ------
    BenchMissingError
        This netsum does not run from a checkout.
    """
    if not (CHECKOUT / "bench" / f"{name}.py").is_file():
        raise BenchMissingError(f"{CHECKOUT} has no bench/{name}.py: run netsum from its source checkout")
    sys.path.insert(0, str(CHECKOUT))
    main: Callable[[Sequence[str]], None] = import_module(f"bench.{name}").main
    main(arguments)
