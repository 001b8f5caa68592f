"""`netsum strategies`: how workers of a training can share what they learn."""

import typer

from netsum.cli.options import AsJson
from netsum.cli.texts import epilog

strategies_app = typer.Typer(
    help="Strategies of distributed training: what is sent, how often, to which workers.",
    no_args_is_help=True,
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
    from netsum.terminal import Rows, print_json

    facts = [
        (name, kind.summary, ", ".join(map(str, own_options_of(kind))), kind.source)
        for name, kind in sorted(STRATEGIES.items())
    ]
    if as_json:
        print_json([dict(zip(("name", "summary", "options", "source"), each, strict=True)) for each in facts])
        return
    table = Rows("strategy", "~what it does", "~options", "~?source")
    for each in facts:
        table.add(*each)
    table.print()
