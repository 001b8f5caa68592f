"""`netsum strategies`: ways in which the workers of a training exchange gradients or parameters."""

from netsum.cli.parameters import Commands
from netsum.cli.texts import epilog
from netsum.options import json_option

strategies_app = Commands(help="List strategies of distributed training.")


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
    from netsum.terminal import print_table

    facts = [
        (name, kind.summary, kind.use, kind.cost, ", ".join(map(str, own_options_of(kind))), kind.source)
        for name, kind in sorted(STRATEGIES.items())
    ]
    names = ("name", "summary", "use", "cost", "options", "source")
    headings = ("strategy", "~what it does", "~when to choose it", "~sent a step", "~?options", "~?source")
    print_table(as_json, (dict(zip(names, each, strict=True)) for each in facts), headings, facts)
