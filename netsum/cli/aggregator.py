"""`netsum aggregator`: a host that adds for jobs which no switch has slots for."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from netsum.cli.options import LogFormat, log_format_option, new_name_option
from netsum.cli.parameters import Commands
from netsum.cli.texts import epilog
from netsum_common.options import option

aggregator_app = Commands(help="Let a host aggregate when no switch has free slots.")


@dataclass(frozen=True)
class AggregatorOptions:
    """Options of an aggregator host."""

    controller: str | None = option(
        "HOST:PORT or unix:PATH. Default: NETSUM_CONTROLLER.", metavar="ADDRESS", env="NETSUM_CONTROLLER"
    )
    ip: str | None = option("Address that workers send to. Default: this host's.", metavar="ADDRESS")
    name: str | None = new_name_option("The host's name. Default: aggregator-ADDRESS.")
    udp_port: int = option("UDP port for contributions; 0: any.", 28275, within=(0, 65535))
    p4runtime: str | None = option(
        "HOST:PORT or unix:PATH at which the controller reaches the switch here. Default: a unix socket.",
        metavar="ADDRESS",
    )
    engine: Literal["embedded", "xdp"] = option(
        "What adds: a process, or the kernel (XDP, at an interface, root).", "embedded"
    )
    interface: str = option("With XDP: the network interface that leads to the workers.", "", metavar="NAME")
    workers: str = option(
        "Add for workers of this network alone (10.0.1.0/24), below a switch or another aggregator.",
        "",
        metavar="NETWORK",
    )
    allow_remote: bool = option("Let other machines write table entries.", False, "--allow-remote")


@aggregator_app.command(
    "serve",
    epilog=epilog(
        "netsum aggregator serve --ip 10.0.0.7  # register this host with the controller",
        "netsum controller serve --config network.toml  # the controller, on the same machine",
        "sudo netsum aggregator serve --engine xdp --interface eth0  # the switch runs in this host's kernel",
        ok="it was stopped by Ctrl-C",
    ),
)
def serve(options: AggregatorOptions, log_format: LogFormat = log_format_option()) -> None:
    """Register this host as an aggregator, and add for jobs until Ctrl-C.

    The controller has it start a switch, with the switches' own program, when the first job needs it.
    """
    import tempfile

    from host_agent.job_api import CONTROLLER_VARIABLE
    from host_agent.joining.addresses import interface_addresses, own_addresses
    from netsum.aggregator import Agent, AgentPlan
    from netsum.command_errors import UsageError
    from netsum.terminal import echo
    from netsum_common.channel import TlsFiles
    from netsum_common.logs import configure_logs, recorded
    from topologies.addresses import ipv4_prefix
    from topologies.children import ending_in_order

    configure_logs(log_format)
    target, interface, workers = options.controller, options.interface, options.workers
    if not target:
        raise UsageError(
            f"no controller is given: expected --controller HOST:PORT or unix:PATH, or {CONTROLLER_VARIABLE}"
        )
    if (options.engine == "xdp") != bool(interface):
        raise UsageError(
            "--engine xdp and --interface must be given together: a switch in the kernel needs an interface"
        )
    try:
        if workers:
            ipv4_prefix(workers)
    except ValueError as error:
        raise UsageError(f"--workers: {error}") from None
    own = [interface_addresses().get(interface, ("",))[0]] if interface else own_addresses()
    address = options.ip or next(iter(own), "")
    if not address:
        where = (
            f"the interface {interface} has no address"
            if interface
            else "this host has no address but loopback"
        )
        raise UsageError(f"{where}: give the one that workers reach by --ip")
    with (
        ending_in_order(),
        tempfile.TemporaryDirectory(prefix="netsum-aggregator-") as folder,
        Agent(
            AgentPlan(
                controller=target,
                name=options.name or f"aggregator-{address}",
                ip=address,
                p4runtime=options.p4runtime or f"unix:{folder}/p4runtime.sock",
                folder=Path(folder),
                udp_port=options.udp_port,
                tls=TlsFiles.from_environment(),
                allow_remote=options.allow_remote,
                leaf=bool(workers),
                workers=workers,
                interface=interface,
            )
        ) as agent,
    ):
        registered = f"registered with {target}: workers reach this host at {address}"
        agent.serve(lambda: None if recorded(registered) else echo(registered))
