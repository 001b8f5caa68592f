"""`netsum testbed`: hosts, switches and links of a topology file, in network namespaces of this machine."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import typer

from netsum.cli import completions, testbed_up
from netsum.cli.exits import fail
from netsum.cli.options import running_testbed_option
from netsum.cli.parameters import Commands
from netsum.cli.testbed_state import as_document, condition, node_environment, path_text, require_ready, show
from netsum.cli.texts import epilog
from netsum.command_errors import UsageError
from netsum.options import json_option
from netsum_common.options import argument, option

testbed_app = Commands()

PROGRAM_MISSING = 127  # The status that shells give a command that they do not find.
NODE = argument("A host or a switch.", complete=completions.nodes)


@dataclass(frozen=True)
class LinkOptions:
    """A link, and what changes of it."""

    one: str = argument("A host or a switch.", complete=completions.nodes)
    other: str = argument("The other end of the link.", complete=completions.nodes)
    state: Literal["up", "down"] | None = argument(
        "Plug the cable in, or pull it out.", None, metavar="up|down"
    )
    rate: str | None = option("Rate from now on, such as 10mbit, or unlimited.", metavar="RATE")
    loss: str | None = option("Loss from now on, each way, such as 0.1.", metavar="PERCENT")
    latency: str | None = option("Latency from now on, such as 5ms (needs netem).", metavar="DELAY")
    queue: str | None = option("Queue before the link from now on.", metavar="PACKETS")
    testbed: str | None = running_testbed_option()


@testbed_app.callback()
def testbed_group() -> None:
    """Bring up a network on this machine: hosts and switches in network namespaces, links with rates (Mininet, root)."""


testbed_app.command("up", epilog=testbed_up.EPILOG)(testbed_up.up)


@testbed_app.command(
    "down",
    epilog=epilog(
        "netsum testbed down  # the only one there is",
        "netsum testbed down --all  # every one of this machine, also what crashed ones left",
        ok="nothing of it is left but its run folder",
    ),
)
def down(
    testbed: str | None = running_testbed_option(),
    everything: bool = option("All testbeds of this machine.", False, "--all"),
    as_json: bool = json_option(),
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
        "netsum testbed exec h1 ping -c 3 10.0.0.2  # between hosts",
        "netsum testbed exec s1 tcpdump -n -i s1-eth1  # switches have namespaces too",
        "netsum testbed exec h1 bash  # a shell on the host",
        ok="the command's own status",
        fault="the command's own status, or there is no such host",
        interrupted="",
    ),
)
def execute(
    node: str = NODE,
    command: tuple[str, ...] = argument("Program and arguments.", metavar="COMMAND..."),
    testbed: str | None = running_testbed_option(),
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
        "netsum testbed status  # all testbeds of this machine",
        "netsum testbed status --testbed star-4 --json  # one, as its testbed.json has it",
        ok="printed; with --testbed: it is up, and all of its processes run",
        fault="there is no testbed of that name, or something of it does not run",
        interrupted="",
    ),
)
def status(
    testbed: str | None = running_testbed_option("One testbed. Default: all."), as_json: bool = json_option()
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
        "netsum testbed restart s1  # the switch comes back empty; the controller programs it again",
        "netsum testbed restart controller  # running jobs go on",
        ok="it is ready again",
    ),
)
def restart(
    process: str = argument("A switch, or `controller`.", complete=completions.processes),
    testbed: str | None = running_testbed_option(),
) -> None:
    """End a switch or the controller, if it still runs, and start it anew."""
    from topologies import keeper
    from topologies.run_folder import find_testbed

    found = find_testbed(testbed)
    require_ready(found)
    keeper.restart(found, process)


@testbed_app.command(
    "captures",
    epilog=epilog(
        "netsum testbed captures  # one file per port, beside those of the switches",
        "netsum testbed captures --port s1-eth1  # of one port",
        ok="the captures are merged",
        fault="the testbed has no captures: it was brought up without --pcap",
    ),
)
def captures(
    testbed: str | None = running_testbed_option(),
    port: str | None = option("A switch's interface, such as s1-eth1; default: all."),
    as_json: bool = json_option(),
) -> None:
    """Merge what came in and what left by each port, over all starts of its switch, into one pcapng file with directions."""
    from host_agent.words import plural
    from netsum.terminal import echo, print_json
    from topologies.captures import captured_ports, merge
    from topologies.children import TestbedError
    from topologies.run_folder import find_testbed

    found = find_testbed(testbed)
    folder = Path(found.state["folder"]) / "pcaps"
    ports = [port] if port is not None else captured_ports(folder)
    if not ports:
        raise TestbedError(f"the testbed {found.name} has no captures: bring it up with --pcap")
    merged = []
    for each in ports:
        path = folder / f"{each}.pcapng"
        packets = merge(folder, each, path)
        merged.append({"port": each, "file": str(path), "packets": packets})
        if not as_json:
            echo(f"{each}: {plural(packets, 'packet')} in {path_text(path)}")
    if as_json:
        print_json(merged)


@testbed_app.command(
    "link",
    epilog=epilog(
        "netsum testbed link h1 s1 down  # pull the cable of h1",
        "netsum testbed link h1 s1 up  # plug it in again",
        "netsum testbed link h1 s1 --rate 10mbit --loss 1  # from now on 10 Mbit/s, and 1 % lost each way",
        ok="done",
        interrupted="",
    ),
)
def link(options: LinkOptions) -> None:
    """Pull a cable out, plug it in again, or change rate, loss, latency and queue of a link while it carries packets.

    Changes apply to both directions. Packets that wait in the link's queue at that moment are lost.
    """
    from netsum.cli.testbed_links import CHANGES, change, read_changes
    from netsum.terminal import echo
    from topologies.run_folder import find_testbed

    words = {key: getattr(options, key) for key in CHANGES}
    changes = read_changes({key: text for key, text in words.items() if text is not None}, "--")
    state = options.state
    if state is None and not changes:
        raise UsageError("expected up, down, --rate, --loss, --latency or --queue")
    found = find_testbed(options.testbed)
    require_ready(found)
    up = None if state is None else state == "up"
    echo(change(found, options.one, options.other, up=up, changes=changes))


@testbed_app.command(
    "shell",
    epilog=epilog(
        "netsum testbed shell  # a prompt: pingall, iperf h1 h2, h1 ip route, link h1 s1 loss=1, help",
        "echo pingall | netsum testbed shell --testbed star-4  # one command from a script",
        ok="the prompt was left; of a script: all of its commands succeeded",
        fault="a command of the script failed, or there is no such testbed",
    ),
)
def shell(testbed: str | None = running_testbed_option()) -> None:
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
    "topologies", epilog=epilog("netsum testbed topologies  # what `up` takes by name", interrupted="")
)
def list_topologies(as_json: bool = json_option()) -> None:
    """List the topologies that come with netsum."""
    from netsum.terminal import echo, print_table
    from topologies.topology_file import FILES, load_topology, shipped_topologies

    rows = [(one.name, one.description) for one in map(load_topology, shipped_topologies())]
    found = [{"name": name, "description": text, "file": str(FILES / f"{name}.json")} for name, text in rows]
    print_table(as_json, found, ("topology", "~description"), rows)
    if not as_json:
        echo(f"their files: {path_text(FILES)}")
