"""`netsum testbed up`: bring up a topology."""

from pathlib import Path
from typing import Annotated

import typer

from netsum.cli import completions
from netsum.cli.options import AsJson, SwitchKind
from netsum.cli.testbed_plan import controller_command, loader_command, own_programs, read_topology
from netsum.cli.testbed_state import print_up
from netsum.cli.texts import epilog
from netsum.command_errors import CommandError, UsageError
from netsum_common.lane_counts import Lanes
from netsum_common.targets import PROCESS_TARGETS

IP_HEADERS_BYTES = 28  # IPv4 and UDP.

RUNS = Path("runs")  # The parent of the runs' folders, relative to the working directory.

EPILOG = epilog(
    (
        "netsum testbed up star-4",
        "four hosts on an embedded switch, links of 100 Mbit/s, and a controller",
    ),
    ("netsum testbed up leaf-spine-4 --web", "and a page in the browser that shows it"),
    ("netsum testbed up star-4 --switch bmv2 --lanes 64 --rate 10mbit", "the same on BMv2, slower"),
    (
        "netsum testbed up dumbbell --testbed mine --pcap",
        "two switches and cross traffic; all packets in files",
    ),
    (
        "netsum testbed up my-network.json --no-controller",
        "switches without a program, for your own controller",
    ),
    (
        "netsum testbed up pod-topo/topology.json",
        "with runtime_json: the program and entries of p4lang's tutorials",
    ),
    (
        "netsum testbed up star-2 --program my.json --entries s1=my-entries.json",
        "your own program on all switches, with table entries",
    ),
    ok="all of it is up",
)


def up(
    topology: Annotated[
        str,
        typer.Argument(
            help="A topology that comes with netsum (`netsum testbed topologies`), or a JSON file.",
            autocompletion=completions.topologies,
        ),
    ],
    switch: Annotated[SwitchKind, typer.Option(help="Who runs the P4 program.")] = "embedded",
    lanes: Annotated[
        Lanes | None, typer.Option(help="int32 values a packet carries. Default: 256; 64 with BMv2.")
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="Rate of every link, as 100mbit, instead of the file's."),
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(metavar="PERCENT", help="Loss of every link, each way, as 0.1, instead of the file's."),
    ] = None,
    queue: Annotated[
        int | None,
        typer.Option(min=1, max=1_000_000, metavar="PACKETS", help="Queue of every link with a rate."),
    ] = None,
    testbed: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What to call the testbed. Default: the topology's name."),
    ] = None,
    controller: Annotated[
        bool, typer.Option(help="Start a controller, which programs the switches and which workers join.")
    ] = True,
    program: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[SWITCH=]FILE",
            help="Your own program, compiled for BMv2, instead of netsum's; no controller is started then. Once for all "
            "switches, or for each.",
        ),
    ] = None,
    p4info: Annotated[
        list[str] | None,
        typer.Option(metavar="[SWITCH=]FILE", help="P4Info of that program. Default: the one beside it."),
    ] = None,
    entries: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[SWITCH=]FILE",
            help="Table entries, multicast groups and clone sessions for it: a runtime_json of p4lang's tutorials.",
        ),
    ] = None,
    web: Annotated[
        bool,
        typer.Option("--web", help="Serve the window of the controller: a page that shows network and jobs."),
    ] = False,
    pcap: Annotated[
        bool, typer.Option("--pcap", help="Write the packets of every switch port to the run folder.")
    ] = False,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay until Ctrl-C, and take it down then.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Bring up a topology: it stays until `netsum testbed down`.

    Every host and switch has a network namespace of its own; the rates, queues and losses of the links hold in both
    directions. Logs and packets go to `runs/NAME-DATE-TIME`.
    """
    from controller.user_programs.files import keep_copies
    from host_agent.wire.constants import HEADER_BYTES, LANE_BYTES, UDP_PORT
    from netsum.programs import compiled_program, warn_if_stale
    from topologies import keeper
    from topologies.mininet_testbed import missing_for_mininet
    from topologies.run_folder import find_testbed, new_run_folder

    network = read_topology(topology, rate, loss, queue)
    own = own_programs(topology, network, program or [], p4info or [], entries or [])
    if own and (lanes is not None or not controller):
        option = "--lanes" if lanes is not None else "--no-controller"
        raise UsageError(f"{option} is of netsum's program, and {network.name} runs your own: leave it out")
    controller = controller and not own
    if web and not controller:
        raise UsageError("--web shows what a controller knows: leave out --no-controller and --program")
    name = testbed or network.name
    lane_count = int(lanes or PROCESS_TARGETS[switch].usual_lanes)
    needed = IP_HEADERS_BYTES + HEADER_BYTES + LANE_BYTES * lane_count
    if controller and network.mtu < needed:
        raise UsageError(
            f"packets with {lane_count} lanes need an MTU of at least {needed:,} bytes, and {network.name} has "
            f"{network.mtu:,}: "
            + ("use --lanes 64, or a larger mtu" if lane_count > 64 else "use a larger mtu")
        )
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
        capture=pcap,
        controller=controller_command(lane_count, web) if controller else None,
        own_programs=tuple(own),
        loader=loader_command(),
    )
    if not foreground:
        print_up(keeper.detach(plan), as_json)
        return
    keeper.keep(plan, lambda: print_up(find_testbed(name), as_json))
