"""`netsum switch`: the embedded switch as a process, and the switches of a controller."""

from typing import TYPE_CHECKING

from netsum.cli import completions
from netsum.cli.clients import as_operator
from netsum.cli.controller_choice import announce, choose_controller
from netsum.cli.options import Connection, LogFormat, log_format_option
from netsum.cli.parameters import Commands
from netsum.cli.texts import epilog
from netsum.command_errors import CommandError, UsageError
from netsum.options import json_option
from netsum_common.options import argument
from netsum_common.switch_options import ServeError, ServeOptionError, ServeOptions

if TYPE_CHECKING:
    from controller.service.client import OperatorClient
    from host_agent.job_api.jobs_pb2 import SwitchView

switch_app = Commands()

SWITCH = argument(
    "The switch. Default: the controller's only one.", "", metavar="NAME", complete=completions.switches
)


@switch_app.callback()
def switch_group() -> None:
    """Run an embedded P4 switch, and inspect switches."""


@switch_app.command(
    "serve",
    epilog=epilog(
        "netsum switch serve --ports 4  # P4Runtime on 127.0.0.1:9559, ports on UDP 28275 to 28278",
        "netsum switch serve --drop-ppm 10000  # with 1 % of the packets lost each way",
        "netsum switch serve --program my.json --p4info my.p4info.txtpb  # any v1model program",
        "sudo netsum switch serve --interface 1@eth1 --interface 2@eth2 --pcap pcaps  # between two interfaces",
        "sudo netsum switch serve --engine xdp --interface 1@eth1 --interface 2@eth2  # the same in the kernel",
        ok="ended by Ctrl-C or SIGTERM",
        interrupted="",
    ),
)
def switch_serve(options: ServeOptions, log_format: LogFormat = log_format_option()) -> None:
    """Run the embedded switch until Ctrl-C: P4Runtime on one side, ports on the other.

    Ports are UDP sockets on loopback, or with `--interface` network interfaces. The switch is empty until a controller gives it a
    program: `netsum controller serve`, `netsum shell`, or `--program`.
    """
    from netsum.programs import warn_if_stale
    from netsum_common.logs import configure_logs
    from sim.switch.serve import run

    configure_logs(log_format)
    if options.program is not None:
        warn_if_stale(options.program)
    try:
        run(options)
    except ServeOptionError as error:
        raise UsageError(str(error)) from None
    except ServeError as error:
        raise CommandError(str(error)) from None


@switch_app.command(
    "list",
    epilog=epilog(
        "netsum switch list  # the switches of the controller",
        "netsum switch list --json | jq -r '.[] | select(.state != \"ready\") | .reason'  # what is wrong with which",
    ),
)
@as_operator
def list_switches(client: "OperatorClient", as_json: bool = json_option()) -> None:
    """List the switches of a controller: their state and their free slots."""
    from controller.service.client import as_dict
    from netsum.terminal import print_table

    views = client.switches()
    rows = []
    for view in views:
        free = f"{view.free_slots:,} of {view.slots:,}"
        names = (view.name, switch_state(view), view.ip, str(view.lanes), free, str(len(view.jobs)))
        rows.append((*names, view.reason, view.address))
    headings = ("switch", "state", "address", ">lanes", ">free slots", ">jobs", "~reason", "?P4Runtime")
    print_table(as_json, map(as_dict, views), headings, rows)


@switch_app.command(
    "show",
    epilog=epilog(
        "netsum switch show  # the only switch there is",
        "netsum switch show s1 --testbed star-4  # a switch of a testbed",
    ),
)
@as_operator
def show(client: "OperatorClient", name: str = SWITCH, as_json: bool = json_option()) -> None:
    """Show a switch: its program, its slots and jobs, and the entries that its controller found wrong and repaired."""
    import datetime

    from controller.service.client import as_dict
    from netsum.terminal import print_facts, print_json

    view = client.switch(name)
    if as_json:
        print_json(as_dict(view))
        return
    put_right = view.reconciliation
    at = datetime.datetime.fromtimestamp(put_right.at).astimezone().isoformat(sep=" ", timespec="seconds")
    changes = f"{put_right.kept} entries kept, {put_right.written} written, {put_right.changed} changed, "
    changes += f"{put_right.removed} removed"
    print_facts(
        [
            ("switch", view.name),
            ("state", switch_state(view) + (f": {view.reason}" if view.reason else "")),
            ("P4Runtime", f"{view.address}, device {view.device_id}"),
            ("address", view.ip),
            ("program", f"{view.program}, {view.lanes} lanes"),
            ("slots", f"{view.free_slots:,} of {view.slots:,} free, {view.largest_free:,} in a row"),
            ("jobs", ", ".join(view.jobs) or "none"),
            ("ports", len(view.ports)),
            ("connected again", view.reconnects),
            ("came back empty", view.restarts),
            ("reconciled", f"{at}: {changes}" if view.HasField("reconciliation") else ""),
            *(("found", finding) for finding in put_right.findings),
        ]
    )


@switch_app.command(
    "ports",
    epilog=epilog(
        "netsum switch ports  # packets and bytes of every port, and what was dropped there",
        "netsum switch ports s1 --json | jq '.[] | {name, rx_dropped, tx_dropped}'  # what was dropped",
    ),
)
def ports(*, name: str = SWITCH, as_json: bool = json_option(), connection: Connection) -> None:
    """Show the ports of a switch: peer, packets, bytes, drops; also of a testbed without a controller.

    Packets and bytes are known where the switch runs on this machine, from the embedded engine or the interfaces' counters.
    """
    from controller.service.client import OperatorClient
    from netsum.cli.ports import ports_of, switch_of_testbed
    from netsum.terminal import ProgressRows, echo, print_json

    choice = choose_controller(connection.controller, connection.testbed, alone=True)
    announce(choice)
    if choice.address:
        with OperatorClient(choice.address, tls=connection.tls) as client:
            view = client.switch(name)
    else:
        assert choice.testbed is not None
        view = switch_of_testbed(choice.testbed, name)
    found = ports_of(view)
    if as_json:
        print_json(found)
        return
    rows = ProgressRows(">port", "interface", "to", "state", "", ">packets", ">bytes", ">dropped", key=4)
    for port in found:
        state = {True: "up", False: "down", None: ""}[port["up"]]
        names = (str(port["number"]), port["name"], port["peer"], f"{state} {port.get('mode') or ''}".strip())
        for way, first in (("rx", names), ("tx", ("",) * len(names))):
            counts = (port.get(f"{way}_{what}") for what in ("packets", "bytes", "dropped"))
            rows.add(*first, way, *("" if count is None else f"{count:,}" for count in counts))
    rows.print()
    for port in found:
        if port.get("mode_reason"):
            echo(f"port {port['number']}: {port['mode_reason']}")


@switch_app.command(
    "counters",
    epilog=epilog(
        "netsum switch counters  # what the P4 program counted, for each job and for packets that name none",
        "netsum switch counters --json | jq .unadmitted.malformed  # malformed packets",
    ),
)
@as_operator
def counters(client: "OperatorClient", name: str = SWITCH, as_json: bool = json_option()) -> None:
    """Show the P4 program's counters: packets by outcome, for each job; unadmitted packets name no running job."""
    from netsum.terminal import ProgressRows, print_json, visible

    switch = client.switch(name)
    jobs = {
        job.name: dict(sorted(job.counters.items()))
        for job in client.jobs()
        if job.switch == switch.name and job.job_id
    }
    unadmitted = dict(sorted(switch.unadmitted.items()))
    if as_json:
        print_json({"switch": switch.name, "jobs": jobs, "unadmitted": unadmitted})
        return
    if not unadmitted:
        raise CommandError(
            f"the switch {switch.name} cannot be asked: {switch.reason or switch_state(switch)}"
        )
    rows = ProgressRows("packets", *(f">{visible(job)}" for job in jobs), ">unadmitted")
    for counter, count in unadmitted.items():
        rows.add(
            counter.replace("_", " "),
            *(f"{counts.get(counter, 0):,}" for counts in jobs.values()),
            f"{count:,}",
        )
    rows.print()


def switch_state(view: "SwitchView") -> str:
    """Return a switch's state as a word."""
    from host_agent.job_api import jobs_pb2

    return str(jobs_pb2.SwitchState.Name(view.state)).lower().replace("_", " ")
