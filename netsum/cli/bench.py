"""`netsum bench`: netsum beside Gloo."""

from importlib import import_module
from typing import Any

from netsum.bench import options
from netsum.cli.parameters import Commands
from netsum.cli.texts import epilog
from netsum.options import json_option

bench_app = Commands(help="Compare all-reduces of netsum and of Gloo.")


def _add(name: str, module: str, kind: Any, *examples: str, ok: str) -> None:
    """Add a command: `run` of a module of `netsum.bench`, with the options that `kind` declares, returns what `--json` prints."""

    def measure(options: Any, as_json: bool = json_option()) -> None:
        from netsum.bench.machine import command_line, machine_and_date
        from netsum.terminal import print_result

        where = {"command": command_line(), "machine": machine_and_date()}
        run = import_module(f"netsum.bench.{module}").run
        print_result(as_json, lambda: {**where, "results": run(options)})

    measure.__annotations__["options"], measure.__doc__ = kind, kind.__doc__
    bench_app.command(name, epilog=epilog(*examples, ok=ok))(measure)


_add(
    "allreduce",
    "allreduce",
    options.GlooComparisonOptions,
    "netsum bench allreduce  # star-4 at 100 Mbit/s: about ten minutes",
    "netsum bench allreduce --topology star-8 --rate 50mbit --loss 0  # eight workers, no loss",
    "netsum bench allreduce --loss 0 --densities 10,1 --bits 8,4  # zeros and few bits, beside dense arrays",
    ok="all was measured, and every sum was right",
)
_add(
    "torch",
    "torch_times",
    options.TorchOptions,
    "netsum bench torch  # two and four processes on loopback, 4 KiB to 64 MiB, and the examples",
    "netsum bench torch --workers 2 --examples ''  # the all-reduces alone",
    "sudo netsum bench torch --topology star-4 --sizes 16MiB --collectives reduce_scatter,all_gather --examples ''"
    "  # what FSDP does, on limited links, with the bytes that a rank receives",
    "sudo netsum bench torch --topology star-4 --sizes ''  # the examples on four hosts at 100 Mbit/s",
    ok="all was measured, and every sum was right",
)
