"""`netsum testbed`: hosts, switches and links of a topology file, in network namespaces of this machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netsum.cli import completions
from netsum.cli.faults import CommandError, told_in_a_sentence
from netsum.cli.options import AsJson, Lanes, SwitchKind
from netsum.cli.testbed_state import condition, path_text, require_ready, show, tell_up
from netsum.cli.texts import epilog

if TYPE_CHECKING:
    from topologies.topology import Topology

testbed_app = typer.Typer(no_args_is_help=True)

RUNS = Path("runs")
"""Where the folders of runs go, as seen from the working directory."""

TestbedName = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]",
        help="The testbed; default: NETSUM_TESTBED, else the only one.",
        autocompletion=completions.testbeds,
    ),
]
TestbedOption = Annotated[
    str | None,
    typer.Option(
        "--name",
        help="The testbed; default: NETSUM_TESTBED, else the only one.",
        autocompletion=completions.testbeds,
    ),
]


@testbed_app.callback()
def testbed_group() -> None:
    """Bring up a network on this machine: hosts and switches in network namespaces, links with rates (Mininet, root)."""


@testbed_app.command(
    "up",
    epilog=epilog(
        (
            "netsum testbed up star-4",
            "four hosts on an embedded switch, links of 100 Mbit/s, and a controller",
        ),
        ("netsum testbed up star-4 --switch bmv2 --lanes 64 --rate 10mbit", "the same on BMv2, slower"),
        (
            "netsum testbed up dumbbell --name mine --pcap",
            "two switches and cross traffic; all packets in files",
        ),
        (
            "netsum testbed up my-network.json --no-controller",
            "switches without a program, for your own controller",
        ),
        ok="all of it is up",
    ),
)
@told_in_a_sentence
def up(
    topology: Annotated[
        str,
        typer.Argument(
            help="One that comes with netsum (`netsum testbed topologies`), or a JSON file.",
            autocompletion=completions.topologies,
        ),
    ],
    switch: Annotated[SwitchKind, typer.Option(help="Who runs the P4 program.")] = SwitchKind.embedded,
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
        int | None, typer.Option(min=1, metavar="PACKETS", help="Queue of every link with a rate.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="What to call the testbed. Default: the topology's name.")
    ] = None,
    controller: Annotated[
        bool, typer.Option(help="Start a controller, which programs the switches and which workers join.")
    ] = True,
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
    from host_agent.wire.constants import UDP_PORT
    from topologies import keeper
    from topologies.mininet_testbed import missing_for_mininet
    from topologies.run_folder import find_testbed, new_run_folder
    from topologies.switch_process import missing_for_switch

    network = _topology(topology, rate, loss, queue)
    kind = switch.value
    lacking = missing_for_mininet() or missing_for_switch(kind)
    if lacking is not None:
        raise CommandError(lacking)
    name = name or network.name
    lane_count = int(lanes or (Lanes.narrow if switch is SwitchKind.bmv2 else Lanes.wide))
    plan = keeper.Plan(
        name=name,
        topology=network,
        kind=kind,
        lanes=lane_count,
        folder=new_run_folder(RUNS.resolve(), name),
        udp_port=UDP_PORT,
        capture=pcap,
        controller=_controller_command(lane_count) if controller else None,
    )
    if not foreground:
        tell_up(keeper.detach(plan), as_json)
        return
    keeper.keep(plan, lambda: tell_up(find_testbed(name), as_json))


@testbed_app.command(
    "down",
    epilog=epilog(
        ("netsum testbed down", "the only one there is"),
        ("netsum testbed down --all", "every one of this machine, also what crashed ones left"),
        ok="nothing of it is left but its run folder",
    ),
)
@told_in_a_sentence
def down(
    name: TestbedName = None,
    everything: Annotated[bool, typer.Option("--all", help="All testbeds of this machine.")] = False,
) -> None:
    """Take a testbed down, also what a crashed one left; processes that run on its hosts are ended."""
    from topologies.keeper import take_down
    from topologies.run_folder import find_testbed, running_testbeds

    for testbed in running_testbeds() if everything else [find_testbed(name)]:
        take_down(testbed)
        print(f"the testbed {testbed.name} is down; its logs are in {path_text(testbed.state['folder'])}")


@testbed_app.command(
    "exec",
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True},
    epilog=epilog(
        ("netsum testbed exec h1 ping -c 3 10.0.0.2", "between hosts"),
        ("netsum testbed exec s1 tcpdump -n -i s1-eth1", "switches have namespaces too"),
        ("netsum testbed exec h1 bash", "a shell on the host"),
        ok="the command's own status",
        fault="the command's own status, or there is no such host",
        interrupted="",
    ),
)
@told_in_a_sentence
def execute(
    node: Annotated[str, typer.Argument(help="A host or a switch.", autocompletion=completions.nodes)],
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="Program and arguments.")],
    name: TestbedOption = None,
) -> None:
    """Run a command on a host; it finds the controller by NETSUM_CONTROLLER."""
    import os
    import sys

    from topologies.leftovers import MARK
    from topologies.namespaces import inside_of
    from topologies.run_folder import find_testbed

    testbed = find_testbed(name)
    require_ready(testbed)
    environment = {
        **os.environ,
        MARK: testbed.run_id,
        "NETSUM_TESTBED": testbed.name,
        # So that `netsum` is this one, whatever the shell's is.
        "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]),
    }
    if testbed.state["controller"] is not None:
        environment["NETSUM_CONTROLLER"] = testbed.controller_address
    inside = inside_of(testbed.namespace_pid(node))
    os.execvpe(inside[0], [*inside, *command], environment)


@testbed_app.command(
    "status",
    epilog=epilog(
        ("netsum testbed status", "all testbeds of this machine"),
        ("netsum testbed status star-4 --json", "one, as its testbed.json has it"),
        ok="told; with a NAME: it is up, and all of its processes run",
        fault="there is no testbed of that name, or something of it does not run",
        interrupted="",
    ),
)
@told_in_a_sentence
def status(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="One testbed; default: all.", autocompletion=completions.testbeds
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tell which testbeds there are, what each consists of, and whether it runs."""
    from netsum.cli.output import print_json
    from topologies.run_folder import find_testbed, running_testbeds

    testbeds = running_testbeds() if name is None else [find_testbed(name)]
    states = [{**testbed.state, "condition": condition(testbed)} for testbed in testbeds]
    if as_json:
        print_json(states if name is None else states[0])
    else:
        for state in states:
            show(state)
        if not states:
            print("no testbed is up: `netsum testbed up star-4`")
    if name is not None and states[0]["condition"] != "up":
        raise typer.Exit(1)


@testbed_app.command(
    "restart",
    epilog=epilog(
        ("netsum testbed restart s1", "the switch comes back empty; the controller programs it again"),
        ("netsum testbed restart controller", "running jobs go on"),
        ok="it is ready again",
    ),
)
@told_in_a_sentence
def restart(
    process: Annotated[str, typer.Argument(help="A switch, or `controller`.")], name: TestbedOption = None
) -> None:
    """End a switch or the controller, if it still runs, and start it anew."""
    from topologies import keeper
    from topologies.run_folder import find_testbed

    testbed = find_testbed(name)
    require_ready(testbed)
    keeper.restart(testbed, process)


@testbed_app.command(
    "link",
    epilog=epilog(
        ("netsum testbed link h1 s1 down", "pull the cable of h1"),
        ("netsum testbed link h1 s1 up", "plug it in again"),
        ok="done",
        interrupted="",
    ),
)
@told_in_a_sentence
def link(
    one: Annotated[str, typer.Argument(help="A host or a switch.", autocompletion=completions.nodes)],
    other: Annotated[str, typer.Argument(help="What it is linked to.", autocompletion=completions.nodes)],
    state: Annotated[str, typer.Argument(metavar="up|down", help="Plugged in, or pulled out.")],
    name: TestbedOption = None,
) -> None:
    """Pull a cable out, or plug it in again."""
    from topologies import namespaces
    from topologies.run_folder import find_testbed

    if state not in ("up", "down"):
        raise CommandError(f"expected up or down, not {state!r}")
    testbed = find_testbed(name)
    require_ready(testbed)
    for found in testbed.state["links"]:
        if {end.partition("-p")[0] for end in found["ends"]} == {one, other}:
            # The end at the switch: the host sees its carrier go, and keeps its addresses and routes.
            node, interface = found["ends"][1].partition("-p")[0], found["interfaces"][1]
            inside = namespaces.inside_of(testbed.namespace_pid(node))
            namespaces.run(*inside, "ip", "link", "set", interface, state)
            return
    raise CommandError(f"the testbed {testbed.name} has no link between {one} and {other}")


@testbed_app.command(
    "topologies", epilog=epilog(("netsum testbed topologies", "what `up` takes by name"), interrupted="")
)
@told_in_a_sentence
def list_topologies(as_json: AsJson = False) -> None:
    """List the topologies that come with netsum."""
    from netsum.cli.output import print_json
    from topologies.topology_file import FILES, load_topology, shipped_topologies

    topologies = [load_topology(name) for name in shipped_topologies()]
    if as_json:
        found = [
            {"name": one.name, "description": one.description, "file": str(FILES / f"{one.name}.json")}
            for one in topologies
        ]
        print_json(found)
        return
    for one in topologies:
        print(f"{one.name:10} {one.description}")
    print(f"their files: {path_text(FILES)}")


def _topology(name: str, rate: str | None, loss: str | None, queue: int | None) -> "Topology":
    from netsum.links_text import loss_of, rate_of
    from topologies.topology_file import load_topology

    rate_bps = None if rate is None else rate_of(rate)
    loss_ppm = None if loss is None else loss_of(loss)
    return load_topology(name).with_links(rate_bps=rate_bps, loss_ppm=loss_ppm, queue_pkts=queue)


def _controller_command(lanes: int) -> list[str]:
    import sys

    return [
        sys.executable,
        "-P",
        "-c",
        "from netsum.cli import main; main()",
        "controller",
        "serve",
        "--lanes",
        str(lanes),
    ]
