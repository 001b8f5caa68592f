"""`netsum controller`: the service that hosts join jobs over."""

import os
from pathlib import Path
from typing import Annotated

import typer

from netsum.cli.options import LogFormatOption, Share
from netsum.cli.parameters import Commands
from netsum.cli.texts import epilog
from netsum.command_errors import UsageError
from netsum_common.lane_counts import Lanes

controller_app = Commands(help="The controller: programs the switches, and hosts join jobs over it.")

_TLS = "TLS"


@controller_app.command(
    "serve",
    epilog=epilog(
        ("netsum controller serve --testbed star-4", "the controller of a testbed that runs"),
        ("netsum controller serve --config network.toml", "of the switches and hosts that a file names"),
        (
            "netsum controller serve --config network.toml --listen 10.0.0.9:28276 --tls-cert c.pem --tls-key k.pem",
            "for other machines, over TLS",
        ),
        ok="it was stopped by Ctrl-C or SIGTERM; its jobs go on, and the next controller takes them up",
    ),
)
def controller_serve(
    testbed: Annotated[
        str | None, typer.Option(metavar="NAME", help="The testbed whose switches it programs.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TOML file that names switches and hosts.")
    ] = None,
    listen: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="HOST:PORT or unix:PATH for the job API; several. Default: 127.0.0.1:28276, "
            "of a testbed controller.sock in its run folder.",
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Its memory. Default: controller.sqlite3, in the run folder or beside the config.",
        ),
    ] = None,
    lanes: Annotated[
        Lanes | None,
        typer.Option(
            help="int32 values a packet carries: chooses among netsum's programs. Default: the testbed's, 256."
        ),
    ] = None,
    program: Annotated[
        Path | None,
        typer.Option(
            help="Compiled program for the switches, such as the .conf of one for Tofino; needs --p4info."
        ),
    ] = None,
    p4info: Annotated[Path | None, typer.Option(help="P4Info of that program, in text form.")] = None,
    slots: Annotated[int, typer.Option(min=1, help="Slots of a job that does not say, a power of two.")] = 64,
    share: Annotated[
        Share,
        typer.Option(
            help="How jobs share the slots of a switch: as requested (fixed), alike, by weight, or by the slots that "
            "they request (demand). A request is then the most that a job gets.",
        ),
    ] = "fixed",
    least_slots: Annotated[
        int, typer.Option(min=1, help="Fewest slots of a job where jobs share them, a power of two.")
    ] = 1,
    grace: Annotated[
        float,
        typer.Option(
            min=0.0, help="Seconds a worker may be away after its connection broke, before it has left."
        ),
    ] = 2.0,
    recovery: Annotated[
        float,
        typer.Option(
            min=0.0, help="Seconds that workers have to attach again after a restart of the controller."
        ),
    ] = 30.0,
    idle: Annotated[float, typer.Option(min=0.0, help="Seconds a created job waits for a worker.")] = 600.0,
    http: Annotated[
        str | None,
        typer.Option(
            "--http",
            "--metrics",
            metavar="HOST:PORT",
            help="Serve the window, a page that shows network, jobs and events, and /metrics for Prometheus.",
        ),
    ] = None,
    http_token: Annotated[
        str,
        typer.Option(
            envvar="NETSUM_HTTP_TOKEN",
            metavar="TOKEN",
            help="What a browser and Prometheus must send for --http.",
        ),
    ] = "",
    election_id: Annotated[
        int, typer.Option(min=1, help="The controller with the highest is primary at a switch.")
    ] = 1,
    tls_cert: Annotated[
        Path | None, typer.Option(help="PEM certificate of the job API.", rich_help_panel=_TLS)
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key.", rich_help_panel=_TLS)] = None,
    tls_ca: Annotated[
        Path | None,
        typer.Option(help="Take only clients with a certificate from this CA.", rich_help_panel=_TLS),
    ] = None,
    allow_remote: Annotated[
        bool,
        typer.Option("--allow-remote", help="Listen without TLS where other machines can reach it."),
    ] = False,
    log_format: LogFormatOption = "text",
    ready_fd: Annotated[
        int | None, typer.Option(help="Descriptor to write a line of JSON to when all switches are ready.")
    ] = None,
) -> None:
    """Run the controller until Ctrl-C: connect to the switches over P4Runtime and serve the job API.

    Switches that restart are programmed again and their jobs get a new epoch. The controller itself may be killed and
    started again at any time: running jobs do not notice.
    """
    import asyncio
    import json

    from controller.errors import ConfigError
    from controller.service.network import lanes_of_testbed, network_of_testbed
    from controller.service.network_file import network_of_file
    from controller.service.registry import RegistryOptions
    from controller.service.serve import ServiceOptions, serve
    from host_agent.job_api import DEFAULT_CONTROLLER
    from netsum.programs import compiled_program, warn_if_stale
    from netsum.terminal import echo
    from netsum_common.channel import TlsFiles
    from netsum_common.logs import configure_logs, recorded
    from topologies.run_folder import find_testbed

    configure_logs(log_format)
    if (testbed is None) == (config is None):
        raise ConfigError("which switches? Give --testbed NAME or --config FILE, one of them")
    if (program is None) != (p4info is None):
        raise ConfigError("--program and --p4info go together: a compiled program, and what is in it")
    if program is not None and lanes is not None:
        raise ConfigError(
            "--lanes selects one of netsum's programs and --program names another: give only one of them"
        )
    for file in (program, p4info):
        if file is not None and not file.is_file():
            raise UsageError(f"cannot read {file}: there is no such file")
    if state is not None and (state.is_dir() or not state.parent.is_dir()):
        raise UsageError(f"--state: expected a file in a folder that exists, not {state}")
    if testbed is not None:
        running = find_testbed(testbed)
        network, of_testbed = network_of_testbed(running.folder), lanes_of_testbed(running.folder)
        home, default_listen = running.folder, running.controller_address
    else:
        assert config is not None
        network = network_of_file(config)
        home, default_listen, of_testbed = config.parent, DEFAULT_CONTROLLER, None
    if program is None or p4info is None:
        shipped = compiled_program(int(lanes or of_testbed or "256"))
        program, p4info = shipped.json, shipped.p4info
    warn_if_stale(program)

    def announce(listening: dict[str, object]) -> None:
        ready = f"ready: job API on {', '.join(map(str, listening['addresses']))}"  # type: ignore[call-overload]
        if listening["http"]:
            ready += f", window {listening['http']}"
        if not recorded(ready):
            echo(ready)
        if ready_fd is not None:
            with os.fdopen(ready_fd, "w") as pipe:
                pipe.write(json.dumps(listening) + "\n")

    options = ServiceOptions(
        network=network,
        program=program,
        p4info=p4info,
        state=state or home / "controller.sqlite3",
        listen=tuple(listen or [default_listen]),
        tls=TlsFiles(tls_ca, tls_cert, tls_key),
        allow_remote=allow_remote,
        http=None if http is None else _http_address(http),
        http_token=_checked_token(http_token),
        registry=RegistryOptions(
            slots=slots,
            grace_s=grace,
            recovery_s=recovery,
            idle_s=idle,
            share=share,
            least_slots=least_slots,
        ),
        election_id=election_id,
    )
    asyncio.run(serve(options, announce))


def _http_address(text: str) -> tuple[str, int]:
    from netsum_common.channel import ChannelError, split_host_port

    try:
        return split_host_port(text)
    except ChannelError:
        raise UsageError(f"--http: expected an address such as 127.0.0.1:8080, not {text!r}") from None


def _checked_token(text: str) -> str:
    import re

    if text and not re.fullmatch(r"[A-Za-z0-9_.~-]{16,}", text):
        raise UsageError("--http-token: expected at least 16 letters, digits, or any of _ . ~ -")
    return text
