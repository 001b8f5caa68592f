"""`netsum switch`: the embedded switch as a process, and the switches of a controller."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netsum.cli import completions
from netsum.cli.clients import as_operator
from netsum.cli.controller_choice import announce, choose_controller
from netsum.cli.options import (
    AsJson,
    ControllerOption,
    ControllersTestbedOption,
    Engine,
    LogFormatOption,
    TlsCaOption,
    TlsCertOption,
    TlsKeyOption,
)
from netsum.cli.parameters import Commands
from netsum.cli.texts import epilog
from netsum.command_errors import CommandError, UsageError

if TYPE_CHECKING:
    from controller.service.client import OperatorClient
    from host_agent.job_api.jobs_pb2 import SwitchView

switch_app = Commands()

_PORTS, _RECORDS, _TLS = "Ports", "What it writes down", "TLS"

SwitchName = Annotated[
    str,
    typer.Argument(
        metavar="[NAME]",
        help="The switch. Default: the controller's only one.",
        show_default=False,
        autocompletion=completions.switches,
    ),
]


@switch_app.callback()
def switch_group() -> None:
    """Run an embedded P4 switch, and look at switches."""


@switch_app.command(
    "serve",
    epilog=epilog(
        ("netsum switch serve --ports 4", "P4Runtime on 127.0.0.1:9559, ports on UDP 28275 to 28278"),
        ("netsum switch serve --drop-ppm 10000", "with 1 % of the packets lost each way"),
        ("netsum switch serve --program my.json --p4info my.p4info.txtpb", "any v1model program"),
        (
            "sudo netsum switch serve --interface 1@eth1 --interface 2@eth2 --pcap pcaps",
            "between two interfaces",
        ),
        (
            "sudo netsum switch serve --engine xdp --interface 1@eth1 --interface 2@eth2",
            "the same in the kernel",
        ),
        ok="ended by Ctrl-C or SIGTERM",
        interrupted="",
    ),
)
def switch_serve(
    p4runtime: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where P4Runtime listens; port 0: any. Also unix:PATH.")
    ] = "127.0.0.1:9559",
    device_id: Annotated[
        int, typer.Option(min=0, max=(1 << 64) - 1, help="What controllers know the switch by.")
    ] = 1,
    cpu_port: Annotated[
        int,
        typer.Option(min=1, max=510, help="The port by which packets go from and to the controller."),
    ] = 510,
    program: Annotated[
        Path | None, typer.Option(help="BMv2 JSON of a program to begin with; needs --p4info.")
    ] = None,
    p4info: Annotated[Path | None, typer.Option(help="P4Info of that program, in text form.")] = None,
    cache_dir: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where compiled programs are kept. Default: NETSUM_CACHE_DIR."),
    ] = None,
    engine: Annotated[
        Engine,
        typer.Option(help="Who runs the program: this process, or the kernel (XDP, at interfaces, root)."),
    ] = "embedded",
    ports: Annotated[
        int, typer.Option(min=1, max=509, help="Number of switch ports, from 0.", rich_help_panel=_PORTS)
    ] = 4,
    udp_base: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="UDP port of switch port 0, of port 1 the next; 0: any. Default: the protocol's.",
            rich_help_panel=_PORTS,
        ),
    ] = None,
    udp_ports: Annotated[
        str | None,
        typer.Option(
            metavar="PORT,PORT...",
            help="UDP port of each switch port, such as 5000,5001, in place of --ports and --udp-base.",
            rich_help_panel=_PORTS,
        ),
    ] = None,
    udp_host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="IPv4 address of the UDP ports, of this machine.", rich_help_panel=_PORTS
        ),
    ] = "127.0.0.1",
    memory: Annotated[
        bool,
        typer.Option(
            "--memory", help="Beside UDP: workers of this machine share memory.", rich_help_panel=_PORTS
        ),
    ] = False,
    interface: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PORT@NAME",
            help="A network interface as a port, instead of UDP; several times (root).",
            rich_help_panel=_PORTS,
        ),
    ] = None,
    spin_us: Annotated[
        int,
        typer.Option(
            min=0,
            max=1_000_000,
            help="At interfaces: poll this many microseconds before sleeping.",
            rich_help_panel=_PORTS,
        ),
    ] = 0,
    drop_ppm: Annotated[
        int,
        typer.Option(
            min=0,
            max=1_000_000,
            help="Packets per million to lose, each way.",
            rich_help_panel=_PORTS,
        ),
    ] = 0,
    seed: Annotated[
        int,
        typer.Option(min=0, max=(1 << 63) - 1, help="Seed of the lost packets.", rich_help_panel=_PORTS),
    ] = 0,
    pass_dropped: Annotated[
        bool,
        typer.Option(
            "--pass-dropped",
            help="With XDP: what the program drops goes to this host's own stack.",
            rich_help_panel=_PORTS,
        ),
    ] = False,
    pin: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="With XDP: the switch stays in this folder of a BPF filesystem, and the next process takes it over.",
            rich_help_panel=_PORTS,
        ),
    ] = None,
    pcap: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Write the packets of every port to files there.", rich_help_panel=_RECORDS
        ),
    ] = None,
    pcap_limit: Annotated[
        int | None,
        typer.Option(
            min=24,
            max=(1 << 63) - 1,
            metavar="BYTES",
            help="Most bytes of such a file. Default: 1 GiB.",
            rich_help_panel=_RECORDS,
        ),
    ] = None,
    statistics: Annotated[
        Path | None,
        typer.Option(help="File for counts of packets, written at the end.", rich_help_panel=_RECORDS),
    ] = None,
    status: Annotated[
        Path | None,
        typer.Option(help="Unix socket that serves the counts of packets as JSON.", rich_help_panel=_RECORDS),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="PEM certificate of P4Runtime.", rich_help_panel=_TLS)
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key.", rich_help_panel=_TLS)] = None,
    tls_ca: Annotated[
        Path | None,
        typer.Option(help="Take only controllers with a certificate from this CA.", rich_help_panel=_TLS),
    ] = None,
    allow_remote: Annotated[
        bool,
        typer.Option("--allow-remote", help="Listen where other machines can reach it, unauthenticated."),
    ] = False,
    log_format: LogFormatOption = "text",
    ready_fd: Annotated[
        int | None,
        typer.Option(min=0, help="Descriptor to write a line of JSON to when the switch is ready."),
    ] = None,
) -> None:
    """Run the embedded switch until Ctrl-C: P4Runtime on one side, ports on the other.

    Ports are UDP sockets on loopback, or with `--interface` network interfaces. The switch is empty until a controller gives it a
    program: `netsum controller serve`, `netsum shell`, or `--program`.
    """
    from host_agent.wire.constants import UDP_PORT
    from netsum.programs import warn_if_stale
    from netsum_common.channel import TlsFiles
    from netsum_common.logs import configure_logs
    from sim.switch.ports.pcap import DEFAULT_LIMIT_BYTES
    from sim.switch.serve import (
        ServeError,
        ServeOptionError,
        ServeOptions,
        port_at_interface,
        port_numbers,
        run,
    )

    configure_logs(log_format)
    if program is not None:
        warn_if_stale(program)
    try:
        options = ServeOptions(
            p4runtime=p4runtime,
            allow_remote=allow_remote,
            tls=TlsFiles(tls_ca, tls_cert, tls_key),
            ports=ports,
            udp_base=UDP_PORT if udp_base is None else udp_base,
            udp_ports=None if udp_ports is None else port_numbers(udp_ports),
            udp_host=udp_host,
            interfaces=tuple(map(port_at_interface, interface)) if interface else None,
            engine=engine,
            pass_dropped=pass_dropped,
            pin=pin,
            spin_us=spin_us,
            device_id=device_id,
            cpu_port=cpu_port,
            drop_ppm=drop_ppm,
            seed=seed,
            json=program,
            p4info=p4info,
            cache_dir=cache_dir,
            ready_fd=ready_fd,
            statistics=statistics,
            memory=memory,
            status=status,
            pcap=pcap,
            pcap_limit=DEFAULT_LIMIT_BYTES if pcap_limit is None else pcap_limit,
        )
        run(options)
    except ServeOptionError as error:
        raise UsageError(str(error)) from None
    except ServeError as error:
        raise CommandError(str(error)) from None


@switch_app.command(
    "list",
    epilog=epilog(
        ("netsum switch list", "the switches of the controller"),
        (
            "netsum switch list --json | jq -r '.[] | select(.state != \"ready\") | .reason'",
            "what is wrong with which",
        ),
    ),
)
@as_operator
def list_switches(
    client: "OperatorClient",
    as_json: AsJson = False,
) -> None:
    """List the switches of a controller: whether they are ready, and what room they have."""
    from controller.service.client import as_dict
    from netsum.terminal import Rows, print_json

    views = client.switches()
    if as_json:
        print_json([as_dict(view) for view in views])
        return
    rows = Rows("switch", "state", "address", ">lanes", ">free slots", ">jobs", "~reason", "?P4Runtime")
    for view in views:
        free = f"{view.free_slots:,} of {view.slots:,}"
        rows.add(
            view.name,
            switch_state(view),
            view.ip,
            str(view.lanes),
            free,
            str(len(view.jobs)),
            view.reason,
            view.address,
        )
    rows.print()


@switch_app.command(
    "show",
    epilog=epilog(
        ("netsum switch show", "the only switch there is"),
        ("netsum switch show s1 --testbed star-4", "a switch of a testbed"),
    ),
)
@as_operator
def show(
    client: "OperatorClient",
    name: SwitchName = "",
    as_json: AsJson = False,
) -> None:
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
        ("netsum switch ports", "packets and bytes of every port, and what was dropped there"),
        ("netsum switch ports s1 --json | jq '.[] | {name, rx_dropped, tx_dropped}'", "what was dropped"),
    ),
)
def ports(
    name: SwitchName = "",
    controller: ControllerOption = None,
    testbed: ControllersTestbedOption = None,
    tls_ca: TlsCaOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    as_json: AsJson = False,
) -> None:
    """Show the ports of a switch: peer, packets, bytes, drops; also of a testbed without a controller.

    Packets and bytes are known where the switch runs on this machine, from the embedded engine or the interfaces' counters.
    """
    from controller.service.client import OperatorClient
    from netsum.cli.ports import ports_of, switch_of_testbed
    from netsum.terminal import Rows, echo, print_json
    from netsum_common.channel import TlsFiles

    choice = choose_controller(controller, testbed, alone=True)
    announce(choice)
    if choice.address:
        with OperatorClient(choice.address, tls=TlsFiles(tls_ca, tls_cert, tls_key)) as client:
            view = client.switch(name)
    else:
        assert choice.testbed is not None
        view = switch_of_testbed(choice.testbed, name)
    found = ports_of(view)
    if as_json:
        print_json(found)
        return
    rows = Rows(">port", "interface", "to", "state", "", ">packets", ">bytes", ">dropped", key=4)
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
        (
            "netsum switch counters",
            "what the P4 program counted, for each job and for packets that name none",
        ),
        ("netsum switch counters --json | jq .unadmitted.malformed", "malformed packets"),
    ),
)
@as_operator
def counters(
    client: "OperatorClient",
    name: SwitchName = "",
    as_json: AsJson = False,
) -> None:
    """Show the P4 program's counters: packets by outcome, for each job; unadmitted packets name no running job."""
    from netsum.terminal import Rows, print_json, visible

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
    rows = Rows("packets", *(f">{visible(job)}" for job in jobs), ">unadmitted")
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
