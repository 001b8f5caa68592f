"""`netsum strategies`: ways in which the workers of a training exchange gradients or parameters."""

from pathlib import Path
from typing import Annotated

import typer

from netsum.cli.options import AsJson
from netsum.cli.parameters import Commands
from netsum.cli.texts import epilog

strategies_app = Commands(
    help="Strategies of distributed training: what is sent, how often, to which workers."
)


@strategies_app.command(
    "list",
    epilog=epilog(("netsum strategies list", "names, what each does, options, sources")),
)
def list_strategies(as_json: AsJson = False) -> None:
    """List strategies for `netsum.strategy(NAME, model, optimizer, …)`; needs PyTorch.

    All take `group`, `scaler` and, where they average, `compression` and `memory` besides the options listed.
    """
    from host_agent.strategies import STRATEGIES
    from host_agent.strategies.registry import own_options_of
    from netsum.terminal import ProgressRows, print_json

    facts = [
        (name, kind.summary, ", ".join(map(str, own_options_of(kind))), kind.source)
        for name, kind in sorted(STRATEGIES.items())
    ]
    if as_json:
        print_json([dict(zip(("name", "summary", "options", "source"), each, strict=True)) for each in facts])
        return
    table = ProgressRows("strategy", "~what it does", "~options", "~?source")
    for each in facts:
        table.add(*each)
    table.print()


@strategies_app.command(
    "bench",
    epilog=epilog(
        ("netsum strategies bench --quick", "four strategies on one task: about a minute"),
        (
            "netsum strategies bench --strategies synchronous,diloco,easgd --workers 8 --seeds 5",
            "a comparison of your own",
        ),
        (
            "netsum strategies bench --rates 10mbit --rtts 1ms,50ms --step-time 100ms",
            "other links and a slower model: trainings with the same step time are not run again",
        ),
        (
            "netsum strategies bench --strategies synchronous,backup,downpour --slowest 5",
            "what one slow worker costs",
        ),
        ok="all was run, or the time that --seconds allows is up",
        interrupted="Ctrl-C; what was run is kept, and the same command goes on from there",
    ),
)
def bench(
    quick: Annotated[
        bool, typer.Option("--quick", help="One task, four strategies, four workers, one seed.")
    ] = False,
    tasks: Annotated[
        str, typer.Option(metavar="NAME,…", help="On scikit-learn's digits; `skewed`: few digits a worker.")
    ] = "digits,skewed,softmax",
    strategies: Annotated[
        str | None, typer.Option(metavar="NAME,…", help="As tables name them. Default: all.")
    ] = None,
    workers: Annotated[
        str, typer.Option(metavar="COUNT,…", help="That train; a parameter server is one more.")
    ] = "4,8",
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Trainings of each.")] = 3,
    steps: Annotated[int, typer.Option(min=40, max=100_000, help="Of each worker.")] = 240,
    step_time: Annotated[str, typer.Option(metavar="TIME", help="What a step computes.")] = "5ms",
    slowest: Annotated[
        float,
        typer.Option(
            metavar="FACTOR", min=1, max=1000, help="How many times longer the last worker computes."
        ),
    ] = 1.0,
    rates: Annotated[
        str, typer.Option(metavar="RATE,…", help="Of the links; the first is the table's.")
    ] = "100mbit,1mbit,10mbit,1gbit",
    rtts: Annotated[
        str, typer.Option(metavar="TIME,…", help="Round trips between hosts; the first is the table's.")
    ] = "200us,1ms,10ms,100ms",
    folder: Annotated[Path, typer.Option(metavar="FOLDER", help="Where results are kept.")] = Path(
        "runs/strategies"
    ),
    seconds: Annotated[
        float | None, typer.Option(min=0, help="Begin no training after this time; call again to go on.")
    ] = None,
) -> None:
    """Train the same task under every strategy: accuracy, bytes, and time on links of many kinds; needs PyTorch.

    All workers run in this process, in virtual time. Each worker's computing, sending and waiting is recorded; the time on other
    links is computed afterwards, with the simulator's times for collectives. Prints a table, and which strategy reaches the
    target first by rate, round trip and number of workers.
    """
    from netsum.bench.strategies import run
    from netsum.bench.strategies_points import RECIPES
    from netsum.option_values import whole_numbers

    run(
        tasks=tasks.split(","),
        strategies=list(RECIPES) if strategies is None else strategies.split(","),
        workers=whole_numbers(workers, "--workers", "4,8"),
        seeds=seeds,
        steps=steps,
        step_time=step_time,
        slowest=slowest,
        rates=rates.split(","),
        rtts=rtts.split(","),
        folder=folder,
        seconds=float("inf") if seconds is None else seconds,
        quick=quick,
    )
