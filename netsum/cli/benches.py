"""The benchmarks live in the source checkout, beside the README that quotes them; they are not installed."""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from netsum.cli.faults import CommandError, told_in_a_sentence
from netsum.cli.options import Lanes

bench_app = typer.Typer(help="Measure what the README quotes.", no_args_is_help=True)

CHECKOUT = Path(__file__).resolve().parents[2]


def run_bench(name: str, arguments: Sequence[str]) -> None:
    """Run ``bench/NAME.py`` of the checkout with command line arguments.

    Raises
    ------
    CommandError
        This netsum does not run from a checkout.
    """
    if not (CHECKOUT / "bench" / f"{name}.py").is_file():
        raise CommandError(f"{CHECKOUT} has no bench/{name}.py: run netsum from its source checkout")
    sys.path.insert(0, str(CHECKOUT))
    main: Callable[[Sequence[str]], None] = import_module(f"bench.{name}").main
    main(arguments)


@bench_app.command("engine")
@told_in_a_sentence
def bench_engine(
    runs: Annotated[int, typer.Option(min=1, help="Runs of each switch and program.")] = 3,
    lanes: Annotated[Lanes | None, typer.Option(help="int32 values a packet carries; default: both.")] = None,
) -> None:
    """Packets/s of the embedded engine and, where it is installed, of BMv2: same program, same packets."""
    run_bench("engine", ["--runs", str(runs), *([] if lanes is None else ["--lanes", lanes])])


@bench_app.command("host")
@told_in_a_sentence
def bench_host(
    runs: Annotated[int, typer.Option(min=1, help="Runs of each operation.")] = 5,
    lanes: Annotated[Lanes, typer.Option(help="int32 values a packet carries.")] = Lanes.wide,
) -> None:
    """Nanoseconds an element costs the worker library to quantize, beside a plain copy."""
    run_bench("host", ["--runs", str(runs), "--lanes", lanes])


@bench_app.command("veth")
@told_in_a_sentence
def bench_veth(
    runs: Annotated[int, typer.Option(min=1, help="Runs of each switch and program.")] = 3,
    lanes: Annotated[Lanes | None, typer.Option(help="int32 values a packet carries; default: both.")] = None,
    workers: Annotated[int, typer.Option(min=1, max=32, help="Ports of the switch.")] = 2,
    slots: Annotated[int, typer.Option(min=1, help="Chunks under way; a power of two.")] = 64,
    packets: Annotated[int, typer.Option(min=1, help="Packets of a run.")] = 40_000,
    bmv2: Annotated[bool, typer.Option(help="Measure BMv2 too, if it is installed.")] = True,
) -> None:
    """Packets/s of the embedded switch and BMv2 as processes on the same virtual cables; needs root."""
    arguments = ["--runs", runs, "--workers", workers, "--slots", slots, "--packets", packets]
    arguments += [] if lanes is None else ["--lanes", lanes]
    arguments += [] if bmv2 else ["--no-bmv2"]
    run_bench("veth", list(map(str, arguments)))
