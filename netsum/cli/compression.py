"""`netsum compression`: what gradients can be compressed with, and what that is worth."""

from pathlib import Path
from typing import Annotated

import typer

from netsum.cli.options import AsJson
from netsum.cli.parameters import Commands
from netsum.cli.texts import epilog

compression_app = Commands(help="Compressors of gradients: what there is, what each declares about itself.")


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
    """List compressors: class, route, bias, bound, and how many times less data a worker receives.

    The route follows from whether payloads can be added: `slots` as integers by the switch, `sum` as floats by an all-reduce,
    `gather` not at all. Bounds are of all workers' errors relative to their tensors: omega (variance, unbiased ones) or delta
    (contraction); a training's step size divides by 1 + omega, or multiplies by delta. The ratio is a tensor's size to the
    data that each of this many workers receives: a sum once, gathered payloads from every worker. It is measured on normally
    distributed values, agreements included.
    """
    from host_agent.compression.survey import survey
    from netsum.terminal import Rows, print_json

    rows = survey(elements, workers)
    if as_json:
        print_json([vars(row) for row in rows])
        return
    table = Rows("compressor", "class", "route", "biased", "bound", f">ratio, n = {workers}", "~?source")
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
    """List memories: how each feeds the error of compression back."""
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


@compression_app.command(
    "bench",
    epilog=epilog(
        ("netsum compression bench --quick", "three compressors on two tasks, fewer steps"),
        (
            "netsum compression bench --methods none,top-k,powersgd --tasks char_lstm --seeds 5",
            "a comparison of your own",
        ),
        (
            "netsum compression bench --methods none,top-k@layer,top-k@model,top-k+none@model",
            "granularities, and another memory",
        ),
        ok="all was measured, or the time that --seconds allows is up",
        interrupted="Ctrl-C; what was measured is kept, and the same command goes on from there",
    ),
)
def bench(
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Two tasks, three compressors, one seed, fewer steps."),
    ] = False,
    tasks: Annotated[
        str,
        typer.Option(
            metavar="NAME,…",
            show_default="digits_cnn, char_lstm, wide_embedding, transformer_lm",
            help="Examples to train.",
        ),
    ] = "digits_cnn,char_lstm,wide_embedding,transformer_lm",
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[+MEMORY][@GRANULARITY],…",
            help="Compressors, `none` for no hook at all. Default: all.",
        ),
    ] = None,
    backends: Annotated[
        str, typer.Option(metavar="NAME,…", help="Backends over which they run.")
    ] = "netsum,gloo",
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Trainings of each point.")] = 3,
    topology: Annotated[
        str, typer.Option(help="As `netsum testbed up` takes it; a worker a host.")
    ] = "star-2",
    rate: Annotated[str, typer.Option(metavar="RATE", help="Rate of every link.")] = "100mbit",
    folder: Annotated[Path, typer.Option(metavar="FOLDER", help="Where results are kept.")] = Path(
        "runs/compression"
    ),
    seconds: Annotated[
        float | None, typer.Option(min=0, help="Begin no training after this time; call again to go on.")
    ] = None,
) -> None:
    """Train with compressed gradients on limited links, over the switch and Gloo: a table and a plot; needs root and PyTorch.

    Every training makes the same number of steps. Bytes are those that the interface of a worker's host has counted.
    """
    from netsum.bench.compression import run
    from netsum.bench.compression_points import METHODS

    run(
        tasks=tasks.split(","),
        methods=["none", *METHODS] if methods is None else methods.split(","),
        backends=backends.split(","),
        seeds=seeds,
        topology=topology,
        rate=rate,
        folder=folder,
        seconds=float("inf") if seconds is None else seconds,
        quick=quick,
    )
