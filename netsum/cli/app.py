"""The `netsum` command, put together from its groups. What commands do is imported when they run, so that ``--help`` is fast."""

from typing import Annotated

import typer

from netsum.cli import allreduce, doctor, explore, record, repro, shell, wireshark
from netsum.cli.aggregator import aggregator_app
from netsum.cli.bench import bench_app
from netsum.cli.compression import compression_app
from netsum.cli.controller import controller_app
from netsum.cli.exits import PANELS, CommandGroup
from netsum.cli.job import job_app
from netsum.cli.parameters import Commands
from netsum.cli.run import run_app
from netsum.cli.sim import sim_app
from netsum.cli.strategies import strategies_app
from netsum.cli.switch import switch_app
from netsum.cli.testbed import testbed_app

app = Commands(
    name="netsum",
    cls=CommandGroup,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="`netsum help COMMAND` is `netsum COMMAND --help`. Laboratory commands compute and measure; no network needs them.",
)

TRY, OPERATE, LOOK, LABORATORY = PANELS

NAMED_BY_VERSION = ("numpy", "numba", "llvmlite", "grpcio", "protobuf", "torch")


def _print_version(wanted: bool) -> None:
    if wanted:
        import platform
        from importlib.metadata import PackageNotFoundError, version

        print(f"netsum {version('netsum')}")
        print(f"Python {platform.python_version()}, {platform.platform()}, {platform.machine()}")
        for package in NAMED_BY_VERSION:
            try:
                print(f"{package} {version(package)}")
            except PackageNotFoundError:
                print(f"{package}: not installed")
        raise typer.Exit


@app.callback()
def netsum(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print what a bug report needs: the versions of netsum and of what it runs on.",
        ),
    ] = False,
) -> None:
    """In-network aggregation that anyone can run: P4 switches add the gradients of a training job."""


app.add_typer(run_app, name="run", rich_help_panel=TRY)
app.command("allreduce", rich_help_panel=TRY, epilog=allreduce.EPILOG)(allreduce.allreduce)
sim_app.command(
    "record",
    epilog=record.EPILOG,
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True},
)(record.sim_record)
app.add_typer(sim_app, name="sim", rich_help_panel=LABORATORY)
app.command("doctor", rich_help_panel=TRY, epilog=doctor.EPILOG)(doctor.doctor)
app.add_typer(switch_app, name="switch", rich_help_panel=OPERATE)
app.add_typer(job_app, name="job", rich_help_panel=OPERATE)
app.add_typer(controller_app, name="controller", rich_help_panel=OPERATE)
app.add_typer(aggregator_app, name="aggregator", rich_help_panel=OPERATE)
app.add_typer(testbed_app, name="testbed", rich_help_panel=OPERATE)
app.add_typer(bench_app, name="bench", rich_help_panel=LABORATORY)
app.add_typer(compression_app, name="compression", rich_help_panel=LABORATORY)
app.add_typer(strategies_app, name="strategies", rich_help_panel=LABORATORY)
app.command("shell", rich_help_panel=LOOK, epilog=shell.EPILOG)(shell.shell)
app.command(
    "repro",
    rich_help_panel=LABORATORY,
    epilog=repro.EPILOG,
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True},
)(repro.repro)
app.command("explore", rich_help_panel=LABORATORY, epilog=explore.EPILOG)(explore.explore)
app.command("wireshark", rich_help_panel=LOOK, epilog=wireshark.EPILOG)(wireshark.wireshark)
