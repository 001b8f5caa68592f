"""`netsum strategies`: ways in which the workers of a training exchange gradients or parameters."""

from netsum.bench.options import StrategiesOptions
from netsum.cli.parameters import Commands
from netsum.cli.texts import epilog
from netsum.options import json_option

strategies_app = Commands(help="List and compare strategies of distributed training.")


@strategies_app.command(
    "list", epilog=epilog("netsum strategies list  # names, what each does, options, sources")
)
def list_strategies(as_json: bool = json_option()) -> None:
    """List strategies for `netsum.strategy(NAME, model, optimizer, …)`; needs PyTorch.

    Sent a step: by a worker, for a model of d bytes, n workers and H steps between averages.

    All take `group`, `scaler` and, where they average, `compression` and `memory` besides the options listed.
    """
    from host_agent.strategies import STRATEGIES
    from host_agent.strategies.registry import own_options_of
    from netsum.terminal import ProgressRows, print_json

    facts = [
        (name, kind.summary, kind.use, kind.cost, ", ".join(map(str, own_options_of(kind))), kind.source)
        for name, kind in sorted(STRATEGIES.items())
    ]
    if as_json:
        names = ("name", "summary", "use", "cost", "options", "source")
        print_json([dict(zip(names, each, strict=True)) for each in facts])
        return
    table = ProgressRows(
        "strategy", "~what it does", "~when to choose it", "~sent a step", "~?options", "~?source"
    )
    for each in facts:
        table.add(*each)
    table.print()


@strategies_app.command(
    "bench",
    epilog=epilog(
        "netsum strategies bench --quick  # four strategies on one task: about a minute",
        "netsum strategies bench --strategies synchronous,diloco,easgd --workers 8 --seeds 5  # a comparison of your own",
        "netsum strategies bench --rates 10mbit --rtts 1ms,50ms --step-time 100ms"
        "  # other links and a slower model: trainings with the same step time are not run again",
        "netsum strategies bench --strategies synchronous,backup,downpour --slowest 5  # what one slow worker costs",
        ok="all was run, or the time that --seconds allows is up",
        interrupted="Ctrl-C; what was run is kept, and the same command goes on from there",
    ),
)
def bench(options: StrategiesOptions) -> None:
    """Train the same task under every strategy: accuracy, bytes, and time on links of many kinds; needs PyTorch.

    All workers run in this process, in virtual time. Each worker's computing, sending and waiting is recorded; the time on other
    links is computed afterwards, with the simulator's times for collectives. Prints a table, and which strategy reaches the
    target first by rate, round trip and number of workers.
    """
    from netsum.bench.strategies import run
    from netsum.terminal import print_result

    print_result(options.as_json, lambda: run(options))
