"""`netsum compression`: compressors of gradients and memories of their errors."""

from netsum.cli.parameters import Commands
from netsum.cli.texts import epilog
from netsum.options import json_option
from netsum_common.options import option

compression_app = Commands(help="List the gradient compressors, with what each guarantees.")


@compression_app.command(
    "list",
    epilog=epilog(
        "netsum compression list  # all compressors and memories",
        "netsum compression list --workers 8 --elements 1000000  # payloads of a million elements",
    ),
)
def list_compressors(
    elements: int = option(
        "Elements of the tensor that bounds and payloads are computed for.", 65536, within=(1, None)
    ),
    workers: int = option("Workers of the group.", 4, within=(1, 32)),
    as_json: bool = json_option(),
) -> None:
    """List compressors: class, route, bias, bound, and how many times less data a worker receives.

    The route follows from whether payloads can be added: `slots` as integers by the switch, `sum` as floats by an all-reduce,
    `gather` not at all. Bounds are of all workers' errors relative to their tensors: omega (variance, unbiased ones) or delta
    (contraction); a training's step size divides by 1 + omega, or multiplies by delta. The ratio is a tensor's size to the
    data that each of this many workers receives: a sum once, gathered payloads from every worker. It is measured on normally
    distributed values, agreements included.
    """
    from host_agent.compression.survey import survey
    from netsum.terminal import print_table

    rows = survey(elements, workers)
    headings = ["compressor", "class", "route", "biased", "bound", f">ratio, n = {workers}"]
    cells = [
        (
            *(row.name, row.family, row.route, "yes" if row.biased else "no", row.bound),
            *(f"{row.ratio:.1f}", row.use, row.source),
        )
        for row in rows
    ]
    print_table(as_json, map(vars, rows), [*headings, "~when to choose it", "~?source"], cells)


@compression_app.command("memories", epilog=epilog("netsum compression memories  # what there is"))
def list_memories(as_json: bool = json_option()) -> None:
    """List memories: how each feeds the error of compression back."""
    from host_agent.compression import MEMORIES
    from netsum.terminal import print_table

    facts = [(each.name, (each.__doc__ or "").partition("\n")[0], each.source) for each in MEMORIES.values()]
    document = [{"name": name, "what": what, "source": source} for name, what, source in facts]
    print_table(as_json, document, ("memory", "~what it does", "~?source"), facts)
