"""Run an embedded switch as a process: P4Runtime on one side, ports on the other.

``python -m sim.switch.serve --p4runtime 127.0.0.1:9559 --ports 4 --udp-base 28275`` has UDP ports on loopback,
``python -m sim.switch.serve --interface 1@s1-eth1 --interface 2@s1-eth2`` has network interfaces (root).
"""

import ipaddress
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from types import FrameType
from typing import Any, TextIO

from google.protobuf import text_format

from netsum_common.logs import VARIABLE, configure_logs, recorded
from netsum_common.loopback import is_loopback
from netsum_common.options import OptionError, options_of, parse
from netsum_common.p4rt import p4runtime_pb2
from netsum_common.switch_options import UDP_PORT, ServeError, ServeOptionError, ServeOptions
from sim.switch.bpf.pins import Pins
from sim.switch.bpf.ports import XdpChassis, XdpPorts
from sim.switch.p4runtime import (
    AddressUnavailableError,
    ChannelError,
    P4RuntimeError,
    P4RuntimeServer,
    TlsFiles,
)
from sim.switch.p4runtime.server import check_free
from sim.switch.ports import (
    Chassis,
    Forwarding,
    InterfacePorts,
    PortDriver,
    PortUnavailableError,
    UdpPorts,
)
from sim.switch.ports.pcap import Capture
from sim.switch.ports.status import StatusSocket

_LOOK_S = 0.2  # How often the main thread looks whether the data path still runs.


def run(options: ServeOptions) -> None:
    """Run a switch until SIGINT or SIGTERM; `ServeError` if it cannot run as asked, or stopped forwarding."""
    stop = threading.Event()

    def ask_to_stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        stop.set()

    before = {each: signal.signal(each, ask_to_stop) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        _serve(options, stop)
    except ChannelError as error:
        raise ServeOptionError(str(error)) from None
    except (P4RuntimeError, PortUnavailableError, AddressUnavailableError) as error:
        raise ServeError(str(error)) from None
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _serve(options: ServeOptions, stop: threading.Event) -> None:
    _check_values(options)
    _check_address(options)
    config = _config(options)
    with ExitStack() as stack:
        statistics = _statistics_file(options, stack)
        try:
            chassis, ports, forwarding = _engine(options, stack)
        except ValueError as error:
            raise ServeOptionError(str(error)) from None
        server = stack.enter_context(
            P4RuntimeServer(
                chassis,
                options.p4runtime,
                options.device_id,
                options.cache_dir,
                tls.server_credentials() if (tls := _tls(options)) else None,
            )
        )
        if isinstance(chassis, XdpChassis):
            chassis.take_over(server.device.resume)
        if config is not None:
            server.device.set_config(
                p4runtime_pb2.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT, config
            )
        forwarding.start()
        stack.callback(forwarding.stop)
        if options.status is not None:
            _serve_status(options, chassis, ports, server, stack)
        _announce(options, server, ports)
        while not stop.wait(_LOOK_S):
            if forwarding.fault is not None:
                raise ServeError(f"forwarding has stopped: {forwarding.fault!r}")
        if statistics is not None:
            counts = {"ports": ports.statistics(), "unforwarded": chassis.unforwarded}
            statistics.write(json.dumps(counts, indent=1) + "\n")


def _engine(options: ServeOptions, stack: ExitStack) -> tuple[Chassis, PortDriver | XdpPorts, Forwarding]:
    """Make the chassis of the engine that was asked for, its ports, and the thread that moves packets."""
    if options.engine == "xdp":
        assert bool(options.interface)
        pins = stack.enter_context(Pins(options.pin)) if options.pin is not None else None
        attached = stack.enter_context(
            XdpPorts(
                options.interface,
                pass_dropped=options.pass_dropped,
                captures=options.pcap is not None,
                pins=pins,
            )
        )
        in_kernel = XdpChassis(attached, options.cpu_port)
        _capture(options, in_kernel, attached, stack)
        return in_kernel, attached, Forwarding(in_kernel)
    ports = stack.enter_context(_ports(options))
    chassis = Chassis(ports, options.cpu_port)
    ports.warm_up()
    _capture(options, chassis, ports, stack)
    return chassis, ports, Forwarding(chassis)


def _statistics_file(options: ServeOptions, stack: ExitStack) -> TextIO | None:
    """Open the file for the counts now: at the end it would be too late to name another."""
    if options.statistics is None:
        return None
    try:
        return stack.enter_context(options.statistics.open("w", encoding="utf-8"))
    except OSError as error:
        raise ServeOptionError(f"cannot write counts to {options.statistics}: {error.strerror}") from None


def _capture(options: ServeOptions, chassis: Chassis, ports: PortDriver | XdpPorts, stack: ExitStack) -> None:
    if options.pcap is None:
        return
    names = {number: f"port{number}" for number in ports.names} if not options.interface else ports.names
    try:
        chassis.capture = Capture(options.pcap, names, options.pcap_limit)
    except OSError as error:
        raise ServeOptionError(f"cannot write packets to {options.pcap}: {error.strerror}") from None
    chassis.capture.warm_up()
    stack.callback(chassis.capture.close)


def _serve_status(
    options: ServeOptions,
    chassis: Chassis,
    ports: PortDriver | XdpPorts,
    server: P4RuntimeServer,
    stack: ExitStack,
) -> None:
    assert options.status is not None
    names = ports.names

    def report() -> dict[str, Any]:
        counts = ports.statistics()
        modes, reasons = (ports.modes, ports.reasons) if isinstance(ports, XdpPorts) else ({}, {})
        return {
            "device_id": options.device_id,
            "p4runtime": server.address,
            "ports": {
                n: {
                    "name": names[n],
                    "up": ports.is_up(n),
                    "mode": modes.get(n),
                    "mode_reason": reasons.get(n, ""),
                    **counts[n],
                }
                for n in names
            },
            "unforwarded": chassis.unforwarded,
            "program": chassis.program_statistics(),
        }

    try:
        stack.enter_context(StatusSocket(options.status, report))
    except OSError as error:
        raise ServeError(
            f"cannot make the status socket {options.status}: {error.strerror or error}"
        ) from None


def check(options: ServeOptions) -> None:
    """Refuse addresses that `run` would refuse when it starts.

    Raises
    ------
    ServeError
        With the reason that `run` would give.
    """
    _check_values(options)
    _check_address(options)
    try:
        if not options.p4runtime.startswith("unix:"):
            check_free(options.p4runtime)
        if options.engine == "xdp":
            XdpPorts(options.interface).close()
        else:
            _ports(options).close()
    except (AddressUnavailableError, PortUnavailableError) as error:
        raise ServeError(str(error)) from None


def _check_values(options: ServeOptions) -> None:
    """Refuse options that would have no effect; their ranges were checked when they were read."""
    at_interfaces, in_kernel = bool(options.interface), options.engine == "xdp"
    if in_kernel and not at_interfaces:
        raise ServeOptionError("XDP runs at network interfaces: give each port as --interface PORT@NAME")
    works = {
        "udp_ports": (not at_interfaces, "without --interface"),
        "memory": (not at_interfaces, "without --interface"),
        "spin_us": (at_interfaces and not in_kernel, "with --interface and the embedded engine"),
        "drop_ppm": (not in_kernel, "with the embedded engine: the engine xdp loses no packets on purpose"),
        "pass_dropped": (in_kernel, "with --engine xdp"),
        "pin": (in_kernel, "with --engine xdp"),
        "pcap_limit": (options.pcap is not None, "with --pcap"),
    }
    for each in options_of(ServeOptions):
        value = getattr(options, each.name)
        applies, where = works.get(each.name, (True, ""))
        if value != each.default and not applies:
            raise ServeOptionError(f"{each.flag} works only {where}")


def _tls(options: ServeOptions) -> TlsFiles:
    return TlsFiles(options.tls_ca, options.tls_cert, options.tls_key)


def _check_address(options: ServeOptions) -> None:
    if options.p4runtime.startswith("unix:"):
        return
    host, _, port = options.p4runtime.rpartition(":")
    host = host.strip("[]")
    if not host or not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise ServeOptionError(
            f"expected P4Runtime's address as HOST:PORT with a port up to 65535 or unix:PATH, not {options.p4runtime!r}"
        )
    if not (is_loopback(host) or options.allow_remote or _tls(options)):
        raise ServeOptionError(
            f"P4Runtime on {options.p4runtime} could be reached from other machines, and it has no authentication; "
            "use 127.0.0.1:PORT, give certificates, or allow remote controllers on purpose"
        )


def _ports(options: ServeOptions) -> PortDriver:
    if options.interface:
        return InterfacePorts(
            options.interface, drop_ppm=options.drop_ppm, seed=options.seed, spin_us=options.spin_us
        )
    if options.udp_ports is not None:
        udp_ports: Sequence[int] = options.udp_ports
    elif options.udp_base == 0:
        udp_ports = [0] * options.ports
    else:
        udp_ports = range(options.udp_base, options.udp_base + options.ports)
    if any(not 0 <= port < 1 << 16 for port in udp_ports):
        raise ServeOptionError(f"expected UDP ports between 0 and 65535, not {list(udp_ports)}")
    try:
        ipaddress.IPv4Address(options.udp_host)
    except ValueError:
        raise ServeOptionError(f"expected an IPv4 address for UDP ports, not {options.udp_host!r}") from None
    ports = UdpPorts(
        list(enumerate(udp_ports)), host=options.udp_host, drop_ppm=options.drop_ppm, seed=options.seed
    )
    if options.memory:
        ports.share_memory(ports.addresses, UDP_PORT)
    return ports


def _config(options: ServeOptions) -> Any | None:
    """Read the program to begin with as a `ForwardingPipelineConfig`."""
    if options.program is None and options.p4info is None:
        return None
    if options.program is None or options.p4info is None:
        raise ServeOptionError("a program is two files, its BMv2 JSON and its P4Info; give both")
    config = p4runtime_pb2.ForwardingPipelineConfig()
    try:
        config.p4_device_config = options.program.read_bytes()
        text_format.Parse(options.p4info.read_text(), config.p4info, allow_unknown_field=True)
    except OSError as error:
        raise ServeOptionError(f"cannot read {error.filename}: {error.strerror}") from None
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise ServeOptionError(f"{options.p4info} is no P4Info in text form: {error}") from None
    return config


def _announce(options: ServeOptions, server: P4RuntimeServer, ports: PortDriver | XdpPorts) -> None:
    listed = " ".join(f"{port}={name}" for port, name in ports.names.items())
    ready = f"ready: P4Runtime {server.address} device {options.device_id}, ports {listed}"
    if not recorded(ready):
        print(ready, flush=True)
    if options.ready_fd is not None:
        places = ports.addresses if isinstance(ports, UdpPorts) else ports.names
        line = {"p4runtime": server.address, "device_id": options.device_id, "ports": places}
        with os.fdopen(options.ready_fd, "w") as pipe:
            pipe.write(json.dumps(line) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a switch as the command line says; the exit status: 0 after a signal, 2 for a wrong option, 1 for another error."""
    configure_logs(os.environ.get(VARIABLE, "text"))
    try:
        run(parse(ServeOptions, arguments, "python -m sim.switch.serve", "Run an embedded switch."))
    except (ServeError, OptionError) as error:
        if not recorded(str(error), logging.ERROR):
            print(f"sim.switch: {error}", file=sys.stderr)
        return 2 if isinstance(error, ServeOptionError | OptionError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
