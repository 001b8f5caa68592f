"""`netsum compression`: what gradients can be compressed with, and what that is worth."""

from typing import Annotated

import typer

from netsum.cli.options import AsJson
from netsum.cli.texts import epilog

compression_app = typer.Typer(
    help="Compressors of gradients: what there is, what each declares about itself.", no_args_is_help=True
)


@compression_app.command(
    "list",
    epilog=epilog(
        ("netsum compression list", "all compressors and memories"),
        ("netsum compression list --workers 8 --elements 1000000", "payloads of a million elements"),
    ),
)
def list_compressors(
    elements: Annotated[
        int, typer.Option(min=1, help="Elements of the tensor that bounds and payloads are computed for.")
    ] = 65536,
    workers: Annotated[int, typer.Option(min=1, max=32, help="Workers of the group.")] = 4,
    as_json: AsJson = False,
) -> None:
    """List compressors: class, route, bias, bound, and how small a payload is.

    The route follows from whether payloads can be added: `slots` as integers by the switch, `sum` as floats by an all-reduce,
    `gather` not at all. Bounds are of one worker's error relative to its tensor: omega (variance, unbiased ones) or delta
    (contraction). Payloads are measured on normally distributed values, agreements included.
    """
    from host_agent.compression.survey import survey
    from netsum.terminal import Rows, print_json

    rows = survey(elements, workers)
    if as_json:
        print_json([vars(row) for row in rows])
        return
    table = Rows("compressor", "class", "route", "biased", "bound", ">ratio", "~?source")
    for row in rows:
        table.add(
            row.name,
            row.family,
            row.route,
            "yes" if row.biased else "no",
            row.bound,
            f"{row.ratio:.1f}",
            row.source,
        )
    table.print()


@compression_app.command("memories", epilog=epilog(("netsum compression memories", "what there is")))
def list_memories(as_json: AsJson = False) -> None:
    """List memories: what is done with what compression lost."""
    from host_agent.compression import MEMORIES
    from netsum.terminal import Rows, print_json

    facts = [(each.name, (each.__doc__ or "").partition("\n")[0], each.source) for each in MEMORIES.values()]
    if as_json:
        print_json([{"name": name, "what": what, "source": source} for name, what, source in facts])
        return
    table = Rows("memory", "~what it does", "~?source")
    for fact in facts:
        table.add(*fact)
    table.print()
