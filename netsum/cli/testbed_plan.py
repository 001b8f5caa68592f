"""The plan of `netsum testbed up`: the topology, the controller's command line, the user's own programs."""

import contextlib
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from netsum.command_errors import CommandError

if TYPE_CHECKING:
    from controller.user_programs.files import UserProgram
    from topologies.topology import Topology


def read_topology(name: str, rate: str | None, loss: str | None, queue: int | None) -> "Topology":
    """Return a topology by its name or file, with the command line's options for all links."""
    from netsum.option_values import loss_of, rate_of
    from topologies.topology_file import load_topology

    rate_bps = None if rate is None else rate_of(rate)
    loss_ppm = None if loss is None else loss_of(loss)
    return load_topology(name).with_links(rate_bps=rate_bps, loss_ppm=loss_ppm, queue_pkts=queue)


def own_programs(
    name: str, network: "Topology", programs: Sequence[str], p4infos: Sequence[str], entries: Sequence[str]
) -> "dict[str, UserProgram]":
    """Return which programs of the user's own a topology and the command line give which switches, read and checked."""
    from controller.user_programs.files import FileOptions, choose

    switches = list(network.switches)
    return choose(
        network.switches,
        Path(name).absolute().parent,
        FileOptions.read("--program", programs, switches),
        FileOptions.read("--p4info", p4infos, switches),
        FileOptions.read("--entries", entries, switches),
    )


WEB_PORTS = range(8080, 8180)
"""The window takes the first that is free: every testbed of a machine can have one."""


def controller_command(lanes: int, web: bool) -> list[str]:
    """Return the command line of the testbed's controller; with `web` it serves the window, after a restart at the same port."""
    return [
        sys.executable,
        "-P",
        "-c",
        "from netsum.cli import main; main()",
        "controller",
        "serve",
        "--lanes",
        str(lanes),
        *(["--http", f"127.0.0.1:{_free_port()}"] if web else []),
    ]


def _free_port() -> int:
    for port in WEB_PORTS:
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise CommandError(
        f"--web: the ports {WEB_PORTS[0]} to {WEB_PORTS[-1]} of 127.0.0.1 are in use: free one of them"
    )


def loader_command() -> list[str]:
    """Return the command line that gives switches programs of the user's own."""
    return [sys.executable, "-P", "-m", "controller.user_programs.load"]
