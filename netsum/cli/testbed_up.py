"""`netsum testbed up`: bring up a topology."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from netsum.cli import completions
from netsum.cli.testbed_state import print_up
from netsum.cli.texts import epilog
from netsum.command_errors import CommandError, UsageError
from netsum.options import json_option, lanes_option
from netsum_common.lane_counts import Lanes
from netsum_common.options import argument, option
from netsum_common.targets import PROCESS_TARGETS

if TYPE_CHECKING:
    SwitchKind = str  # The name of the target that runs the P4 program.
else:
    SwitchKind = Literal[tuple(PROCESS_TARGETS)]
import contextlib
import socket
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from controller.user_programs.files import UserProgram
    from topologies.topology import Topology


RUNS = Path("runs")  # The parent of the runs' folders, relative to the working directory.

EPILOG = epilog(
    "netsum testbed up star-4  # four hosts on an embedded switch, links of 100 Mbit/s, and a controller",
    "netsum testbed up leaf-spine-4 --web  # and a page in the browser that shows it",
    "netsum testbed up star-4 --switch bmv2 --lanes 64 --rate 10mbit  # the same on BMv2, slower",
    "netsum testbed up dumbbell --testbed mine --pcap  # two switches and cross traffic; all packets in files",
    "netsum testbed up my-network.json --no-controller  # switches without a program, for your own controller",
    "netsum testbed up pod-topo/topology.json  # with runtime_json: the program and entries of p4lang's tutorials",
    "netsum testbed up star-2 --program my.json --entries s1=my-entries.json"
    "  # your own program on all switches, with table entries",
    ok="all of it is up",
)


@dataclass(frozen=True)
class UpOptions:
    """A testbed to bring up."""

    topology: str = argument(
        "A topology that comes with netsum (`netsum testbed topologies`), or a JSON file.",
        complete=completions.topologies,
    )
    switch: SwitchKind = option("Switch that runs the P4 program.", "embedded")
    lanes: Lanes | None = lanes_option(
        None,
        "int32 values a packet carries. Default: what the MTU has room for, 256 with 1500; 64 with BMv2.",
    )
    rate: str | None = option("Rate of every link, as 100mbit, instead of the file's.", metavar="RATE")
    loss: str | None = option(
        "Loss of every link, each way, as 0.1, instead of the file's.", metavar="PERCENT"
    )
    queue: int | None = option("Queue of every link with a rate.", within=(1, 1_000_000), metavar="PACKETS")
    testbed: str | None = option("Name of the testbed. Default: the topology's name.", metavar="NAME")
    controller: bool = option("Start a controller, which programs the switches and which workers join.", True)
    program: tuple[str, ...] = option(
        "Your own program, compiled for BMv2, instead of netsum's; no controller is started then. Once for all switches, "
        "or for each.",
        (),
        metavar="[SWITCH=]FILE",
    )
    p4info: tuple[str, ...] = option(
        "P4Info of that program. Default: the one beside it.", (), metavar="[SWITCH=]FILE"
    )
    entries: tuple[str, ...] = option(
        "Table entries, multicast groups and clone sessions for it: a runtime_json of p4lang's tutorials.",
        (),
        metavar="[SWITCH=]FILE",
    )
    web: bool = option(
        "Serve the window of the controller: a page that shows network and jobs.", False, "--web"
    )
    pcap: bool = option("Write the packets of every switch port to the run folder.", False, "--pcap")
    foreground: bool = option("Stay until Ctrl-C, and take it down then.", False, "--foreground")
    as_json: bool = json_option()


def up(options: UpOptions) -> None:
    """Bring up a topology: it stays until `netsum testbed down`.

    Every host and switch has a network namespace of its own; the rates, queues and losses of the links hold in both
    directions. Logs and packets go to `runs/NAME-DATE-TIME`.
    """
    from controller.user_programs.files import keep_copies
    from host_agent.wire.constants import UDP_PORT
    from netsum.programs import check_lanes, compiled_program, usual_lanes, warn_if_stale
    from topologies import keeper
    from topologies.mininet_testbed import missing_for_mininet
    from topologies.run_folder import find_testbed, new_run_folder

    switch = options.switch
    network = read_topology(options.topology, options.rate, options.loss, options.queue)
    own = own_programs(options.topology, network, options.program, options.p4info, options.entries)
    if own and (options.lanes is not None or not options.controller):
        wrong = "--lanes" if options.lanes is not None else "--no-controller"
        raise UsageError(
            f"{wrong} applies to netsum's program, but {network.name} runs your own: leave it out"
        )
    controller = options.controller and not own
    if options.web and not controller:
        raise UsageError("--web requires a controller: leave out --no-controller and --program")
    name = options.testbed or network.name
    lane_count = options.lanes or usual_lanes(PROCESS_TARGETS[switch].usual_lanes, network.mtu)
    if controller:
        check_lanes(lane_count, network.mtu, network.name)
    shipped = [compiled_program(lane_count).json] if controller else []
    for compiled in (*shipped, *(user.json for user in own.values())):
        warn_if_stale(compiled)
    lacking = missing_for_mininet() or PROCESS_TARGETS[switch].lacking()
    if lacking is not None:
        raise CommandError(lacking)
    folder = new_run_folder(RUNS.resolve(), name)
    keep_copies(folder, own)
    plan = keeper.TestbedPlan(
        name=name,
        topology=network,
        kind=switch,
        lanes=lane_count,
        folder=folder,
        udp_port=UDP_PORT,
        capture=options.pcap,
        controller=controller_command(lane_count, options.web) if controller else None,
        own_programs=tuple(own),
        loader=loader_command(),
    )
    if not options.foreground:
        print_up(keeper.detach(plan), options.as_json)
        return
    keeper.keep(plan, lambda: print_up(find_testbed(name), options.as_json))


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
