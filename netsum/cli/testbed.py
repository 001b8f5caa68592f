"""`netsum testbed`: hosts, switches and links of a topology file, in network namespaces of this machine."""

from typing import Annotated, Literal

import typer

from netsum.cli import completions, testbed_captures, testbed_up
from netsum.cli.exits import fail
from netsum.cli.options import AsJson, TestbedOption
from netsum.cli.parameters import Commands
from netsum.cli.testbed_state import as_document, condition, node_environment, path_text, require_ready, show
from netsum.cli.texts import epilog
from netsum.command_errors import UsageError

testbed_app = Commands()

LinkState = Literal["up", "down"]  # Whether a cable is plugged in.
PROGRAM_MISSING = 127  # The status that shells give a command that they do not find.


@testbed_app.callback()
def testbed_group() -> None:
    """Bring up a network on this machine: hosts and switches in network namespaces, links with rates (Mininet, root)."""


testbed_app.command("up", epilog=testbed_up.EPILOG)(testbed_up.up)


@testbed_app.command(
    "down",
    epilog=epilog(
        ("netsum testbed down", "the only one there is"),
        ("netsum testbed down --all", "every one of this machine, also what crashed ones left"),
        ok="nothing of it is left but its run folder",
    ),
)
def down(
    testbed: TestbedOption = None,
    everything: Annotated[bool, typer.Option("--all", help="All testbeds of this machine.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take a testbed down, also the remains of a crashed one; processes that run on its hosts are ended."""
    from netsum.terminal import echo, print_json
    from topologies.keeper import take_down
    from topologies.run_folder import find_testbed, running_testbeds

    if everything and testbed is not None:
        raise UsageError("--all takes down every testbed: leave out --testbed")
    taken_down = []
    for found in running_testbeds() if everything else [find_testbed(testbed)]:
        gone = found.folder_deleted
        take_down(found)
        folder = found.state["folder"]
        taken_down.append({"name": found.name, "folder": folder})
        if not as_json:
            logs = "its run folder was deleted" if gone else f"its logs are in {path_text(folder)}"
            echo(f"the testbed {found.name} is down; {logs}")
    if as_json:
        print_json(taken_down)
    elif not taken_down:
        echo("no testbed is up")


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
def execute(
    node: Annotated[str, typer.Argument(help="A host or a switch.", autocompletion=completions.nodes)],
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="Program and arguments.")],
    testbed: TestbedOption = None,
) -> None:
    """Run a command on a host; it finds the controller by NETSUM_CONTROLLER."""
    import os
    import shutil

    from topologies.namespaces import inside_of
    from topologies.run_folder import find_testbed

    found = find_testbed(testbed)
    require_ready(found)
    inside = inside_of(found.namespace_pid(node))
    environment = node_environment(found)
    if shutil.which(command[0], path=environment["PATH"]) is None:
        fail(f"there is no program {command[0]}", PROGRAM_MISSING)
    os.execvpe(inside[0], [*inside, *command], environment)


@testbed_app.command(
    "status",
    epilog=epilog(
        ("netsum testbed status", "all testbeds of this machine"),
        ("netsum testbed status --testbed star-4 --json", "one, as its testbed.json has it"),
        ok="printed; with --testbed: it is up, and all of its processes run",
        fault="there is no testbed of that name, or something of it does not run",
        interrupted="",
    ),
)
def status(
    testbed: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="One testbed. Default: all.", autocompletion=completions.testbeds),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the testbeds, with the parts of each and whether it runs."""
    from netsum.terminal import echo, print_json
    from topologies.run_folder import find_testbed, running_testbeds

    testbeds = running_testbeds() if testbed is None else [find_testbed(testbed)]
    conditions = [condition(each) for each in testbeds]
    if as_json:
        states = [as_document(each, said) for each, said in zip(testbeds, conditions, strict=True)]
        print_json(states if testbed is None else states[0])
    else:
        for each, said in zip(testbeds, conditions, strict=True):
            show(each, said)
        if not testbeds:
            echo("no testbed is up: `netsum testbed up star-4`")
    if testbed is not None and conditions[0] != "up":
        raise typer.Exit(1)


@testbed_app.command(
    "restart",
    epilog=epilog(
        ("netsum testbed restart s1", "the switch comes back empty; the controller programs it again"),
        ("netsum testbed restart controller", "running jobs go on"),
        ok="it is ready again",
    ),
)
def restart(
    process: Annotated[
        str, typer.Argument(help="A switch, or `controller`.", autocompletion=completions.processes)
    ],
    testbed: TestbedOption = None,
) -> None:
    """End a switch or the controller, if it still runs, and start it anew."""
    from topologies import keeper
    from topologies.run_folder import find_testbed

    found = find_testbed(testbed)
    require_ready(found)
    keeper.restart(found, process)


testbed_app.command("captures", epilog=testbed_captures.EPILOG)(testbed_captures.captures)


@testbed_app.command(
    "link",
    epilog=epilog(
        ("netsum testbed link h1 s1 down", "pull the cable of h1"),
        ("netsum testbed link h1 s1 up", "plug it in again"),
        ("netsum testbed link h1 s1 --rate 10mbit --loss 1", "from now on 10 Mbit/s, and 1 % lost each way"),
        ok="done",
        interrupted="",
    ),
)
def link(
    one: Annotated[str, typer.Argument(help="A host or a switch.", autocompletion=completions.nodes)],
    other: Annotated[str, typer.Argument(help="What it is linked to.", autocompletion=completions.nodes)],
    state: Annotated[
        LinkState | None, typer.Argument(metavar="[up|down]", help="Plugged in, or pulled out.")
    ] = None,
    rate: Annotated[
        str | None, typer.Option(metavar="RATE", help="Rate from now on, such as 10mbit, or unlimited.")
    ] = None,
    loss: Annotated[
        str | None, typer.Option(metavar="PERCENT", help="Loss from now on, each way, such as 0.1.")
    ] = None,
    latency: Annotated[
        str | None, typer.Option(metavar="DELAY", help="Latency from now on, such as 5ms (needs netem).")
    ] = None,
    queue: Annotated[
        str | None, typer.Option(metavar="PACKETS", help="Queue before the link from now on.")
    ] = None,
    testbed: TestbedOption = None,
) -> None:
    """Pull a cable out, plug it in again, or change rate, loss, latency and queue of a link while it carries packets.

    Changes apply to both directions. Packets that wait in the link's queue at that moment are lost.
    """
    from netsum.cli.testbed_links import change, read_changes
    from netsum.terminal import echo
    from topologies.run_folder import find_testbed

    options = {"rate": rate, "loss": loss, "latency": latency, "queue": queue}
    changes = read_changes({key: text for key, text in options.items() if text is not None}, "--")
    if state is None and not changes:
        raise UsageError("expected up, down, --rate, --loss, --latency or --queue")
    found = find_testbed(testbed)
    require_ready(found)
    up = None if state is None else state == "up"
    echo(change(found, one, other, up=up, changes=changes))


@testbed_app.command(
    "shell",
    epilog=epilog(
        ("netsum testbed shell", "a prompt: pingall, iperf h1 h2, h1 ip route, link h1 s1 loss=1, help"),
        ("echo pingall | netsum testbed shell --testbed star-4", "one command from a script"),
        ok="the prompt was left; of a script: all of its commands succeeded",
        fault="a command of the script failed, or there is no such testbed",
    ),
)
def shell(testbed: TestbedOption = None) -> None:
    """Open a prompt on a running testbed, as Mininet's: pings between all hosts, iperf, commands on nodes, links that change.

    Where standard input is no terminal, its lines are run as a script.
    """
    import sys

    from netsum.cli.testbed_shell import TestbedShell
    from netsum.terminal import echo
    from topologies.run_folder import find_testbed

    found = find_testbed(testbed)
    require_ready(found)
    script = None if sys.stdin.isatty() else sys.stdin
    prompt = TestbedShell(found, script)
    if script is None:
        echo("`help` lists the commands; Ctrl-D leaves the prompt, and the testbed stays up")
    prompt.cmdloop()
    if script is not None and prompt.failed:
        raise typer.Exit(1)


@testbed_app.command(
    "topologies", epilog=epilog(("netsum testbed topologies", "what `up` takes by name"), interrupted="")
)
def list_topologies(as_json: AsJson = False) -> None:
    """List the topologies that come with netsum."""
    from netsum.terminal import ProgressRows, echo, print_json
    from topologies.topology_file import FILES, load_topology, shipped_topologies

    topologies = [load_topology(name) for name in shipped_topologies()]
    if as_json:
        found = [
            {"name": one.name, "description": one.description, "file": str(FILES / f"{one.name}.json")}
            for one in topologies
        ]
        print_json(found)
        return
    rows = ProgressRows("topology", "~description")
    for one in topologies:
        rows.add(one.name, one.description)
    rows.print()
    echo(f"their files: {path_text(FILES)}")
