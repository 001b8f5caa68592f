"""`netsum controller`: the service that hosts join jobs over."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from netsum.cli.options import LogFormat, log_format_option
from netsum.cli.parameters import Commands
from netsum.cli.texts import epilog
from netsum.command_errors import UsageError
from netsum.options import lanes_option
from netsum_common.lane_counts import Lanes
from netsum_common.options import option

controller_app = Commands(help="Run the controller, which programs the switches and lets hosts join jobs.")

_TLS: Final = "TLS"


@dataclass(frozen=True)
class ControllerOptions:
    """Options of the controller."""

    testbed: str | None = option("The testbed whose switches it programs.", metavar="NAME")
    config: Path | None = option("TOML file that names switches and hosts.", metavar="FILE")
    listen: tuple[str, ...] = option(
        "HOST:PORT or unix:PATH for the job API; several. Default: 127.0.0.1:28276, of a testbed controller.sock in its "
        "run folder.",
        (),
        metavar="ADDRESS",
    )
    state: Path | None = option(
        "State file. Default: controller.sqlite3, in the run folder or beside the config.", metavar="FILE"
    )
    lanes: Lanes | None = lanes_option(
        None, "int32 values a packet carries: chooses among netsum's programs. Default: the testbed's, 256."
    )
    program: Path | None = option(
        "Compiled program for the switches, such as the .conf of one for Tofino; needs --p4info."
    )
    p4info: Path | None = option("P4Info of that program, in text form.")
    slots: int = option("Slots of a job that requests no number; a power of two.", 64, within=(1, None))
    share: Literal["fixed", "fair", "weighted", "demand"] = option(
        "How jobs share the slots of a switch: as requested (fixed), alike, by weight, or by the slots that they request "
        "(demand). A request is then the most that a job gets.",
        "fixed",
    )
    least_slots: int = option(
        "Fewest slots of a job where jobs share them, a power of two.", 1, within=(1, None)
    )
    grace: float = option(
        "Seconds a worker may be away after its connection broke, before it has left.",
        2.0,
        within=(0.0, None),
    )
    recovery: float = option(
        "Seconds that workers have to attach again after a restart of the controller.",
        30.0,
        within=(0.0, None),
    )
    idle: float = option("Seconds a created job waits for a worker.", 600.0, within=(0.0, None))
    http: str | None = option(
        "Serve the window, a page that shows network, jobs and events, and /metrics for Prometheus.",
        None,
        "--http",
        "--metrics",
        metavar="HOST:PORT",
    )
    http_token: str = option(
        "What a browser and Prometheus must send for --http.", "", metavar="TOKEN", env="NETSUM_HTTP_TOKEN"
    )
    election_id: int = option("The controller with the highest is primary at a switch.", 1, within=(1, None))
    tls_cert: Path | None = option("PEM certificate of the job API.", panel=_TLS)
    tls_key: Path | None = option("Private key of the certificate.", panel=_TLS)
    tls_ca: Path | None = option("Accept only clients with a certificate from this CA.", panel=_TLS)
    allow_remote: bool = option(
        "Listen without TLS where other machines can reach it.", False, "--allow-remote"
    )
    ready_fd: int | None = option("Descriptor to write a line of JSON to when all switches are ready.")


@controller_app.command(
    "serve",
    epilog=epilog(
        "netsum controller serve --testbed star-4  # the controller of a testbed that runs",
        "netsum controller serve --config network.toml  # of the switches and hosts that a file names",
        "netsum controller serve --config network.toml --listen 10.0.0.9:28276 --tls-cert c.pem --tls-key k.pem"
        "  # for other machines, over TLS",
        ok="it was stopped by Ctrl-C or SIGTERM; its jobs go on, and the next controller takes them up",
    ),
)
def controller_serve(given: ControllerOptions, log_format: LogFormat = log_format_option()) -> None:
    """Run the controller until Ctrl-C: connect to the switches over P4Runtime and serve the job API.

    Switches that restart are programmed again and their jobs get a new epoch. The controller itself may be killed and
    started again at any time: running jobs continue.
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
    testbed, config, state = given.testbed, given.config, given.state
    program, p4info = given.program, given.p4info
    if (testbed is None) == (config is None):
        raise ConfigError("no switches are given: expected either --testbed NAME or --config FILE")
    if (program is None) != (p4info is None):
        raise ConfigError("--program and --p4info must be given together")
    if program is not None and given.lanes is not None:
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
        shipped = compiled_program(given.lanes or int(of_testbed or 256))
        program, p4info = shipped.json, shipped.p4info
    warn_if_stale(program)

    def announce(listening: dict[str, object]) -> None:
        ready = f"ready: job API on {', '.join(map(str, listening['addresses']))}"  # type: ignore[call-overload]
        if listening["http"]:
            ready += f", window {listening['http']}"
        if not recorded(ready):
            echo(ready)
        if given.ready_fd is not None:
            with os.fdopen(given.ready_fd, "w") as pipe:
                pipe.write(json.dumps(listening) + "\n")

    options = ServiceOptions(
        network=network,
        program=program,
        p4info=p4info,
        state=state or home / "controller.sqlite3",
        listen=given.listen or (default_listen,),
        tls=TlsFiles(given.tls_ca, given.tls_cert, given.tls_key),
        allow_remote=given.allow_remote,
        http=None if given.http is None else _http_address(given.http),
        http_token=_checked_token(given.http_token),
        registry=RegistryOptions(
            slots=given.slots,
            grace_s=given.grace,
            recovery_s=given.recovery,
            idle_s=given.idle,
            share=given.share,
            least_slots=given.least_slots,
        ),
        election_id=given.election_id,
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
