"""Run an embedded switch as a process: P4Runtime on one side, ports on the other.

``python -m sim.switch.serve --p4runtime 127.0.0.1:9559 --ports 4 --udp-base 28275`` has UDP ports on loopback,
``python -m sim.switch.serve --interface 1@s1-eth1 --interface 2@s1-eth2`` has network interfaces (root).
"""

import argparse
import ipaddress
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from google.protobuf import text_format

from netsum_common.errors import NetsumError
from netsum_common.logs import VARIABLE, configure_logs, recorded
from netsum_common.loopback import is_loopback
from netsum_common.p4rt import p4runtime_pb2
from sim.switch.bpf.pins import Pins
from sim.switch.bpf.ports import XdpChassis, XdpPorts
from sim.switch.p4runtime import (
    PLAINTEXT,
    AddressUnavailableError,
    ChannelError,
    P4RuntimeError,
    P4RuntimeServer,
    TlsFiles,
)
from sim.switch.p4runtime.server import DEFAULT_ADDRESS, DEFAULT_DEVICE_ID, check_free
from sim.switch.ports import (
    Chassis,
    Forwarding,
    InterfacePorts,
    PortDriver,
    PortUnavailableError,
    UdpPorts,
)
from sim.switch.ports.chassis import DEFAULT_CPU_PORT, LAST_PORT
from sim.switch.ports.pcap import DEFAULT_LIMIT_BYTES, Capture
from sim.switch.ports.status import StatusSocket
from sim.switch.ports.udp import DEFAULT_BASE_PORT

_LOOK_S = 0.2  # How often the main thread looks whether the data path still runs.


def _option(meaning: str, default: Any = None, within: tuple[int, int] | None = None, **argument: Any) -> Any:
    """Return a field with its least and largest value and its help; `argument` is for argparse's `add_argument`."""
    return field(default=default, metadata={"help": meaning, "within": within, **argument})


class ServeError(NetsumError):
    """The switch cannot run as asked; the message is one sentence for the user."""


class ServeOptionError(ServeError):
    """An option cannot be used, or a file that it names; found before anything was started."""


def port_at_interface(text: str) -> tuple[int, str]:
    """Read a switch port on a network interface, such as 1@s1-eth1; ServeOptionError if it is none."""
    number, _, name = text.partition("@")
    if not (number.isascii() and number.isdigit() and name):
        raise ServeOptionError(f"--interface: expected PORT@NAME, such as 1@eth0, not {text!r}")
    return int(number), name


def port_numbers(text: str) -> tuple[int, ...]:
    """Read UDP ports, such as 5000,5001; ServeOptionError if they are none."""
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise ServeOptionError(f"--udp-ports: expected ports such as 5000,5001, not {text!r}")
    return tuple(map(int, parts))


@dataclass(frozen=True)
class ServeOptions:
    """The options of the command line, with their meanings, for `run`."""

    tls: TlsFiles = PLAINTEXT
    p4runtime: str = _option(
        "where P4Runtime listens; port 0: any", DEFAULT_ADDRESS, metavar="HOST:PORT|unix:PATH"
    )
    allow_remote: bool = _option("listen on addresses others can reach, without TLS", False)
    ports: int = _option("number of switch ports", 4, (0, LAST_PORT), type=int)
    udp_base: int = _option(
        "UDP port of switch port 0, of port 1 the next, …; 0: any", DEFAULT_BASE_PORT, (0, 65535), type=int
    )
    udp_ports: tuple[int, ...] | None = _option(
        "UDP port of each switch port, as in 5000,5001", type=port_numbers
    )
    udp_host: str = _option("their IPv4 address, one of this machine's", "127.0.0.1")
    interfaces: tuple[tuple[int, str], ...] | None = _option(
        "a switch port on a network interface, as in 1@s1-eth1; several times, instead of UDP ports",
        flag="--interface",
        type=port_at_interface,
        action="append",
        metavar="PORT@INTERFACE",
    )
    engine: str = _option(
        "who runs the program: this process, or the kernel at network interfaces",
        "embedded",
        choices=("embedded", "xdp"),
    )
    pass_dropped: bool = _option("what XDP drops goes to this host's stack", False)
    pin: Path | None = _option(
        "with XDP: keep the switch in this folder of a BPF filesystem when the process ends; the next one takes it over",
        type=Path,
        metavar="FOLDER",
    )
    spin_us: int = _option(
        "poll for packets this long before sleeping (interfaces)", 0, (0, 1_000_000), type=int
    )
    device_id: int = _option(
        "what controllers know the switch by", DEFAULT_DEVICE_ID, (0, (1 << 64) - 1), type=int
    )
    cpu_port: int = _option(
        "switch port to and from the controller", DEFAULT_CPU_PORT, (1, DEFAULT_CPU_PORT), type=int
    )
    drop_ppm: int = _option("packets per million to lose, each way", 0, (0, 1_000_000), type=int)
    seed: int = _option("which packets to lose", 0, (0, (1 << 63) - 1), type=int)
    json: Path | None = _option("BMv2 JSON of a program to begin with", type=Path)
    p4info: Path | None = _option("P4Info of that program, in text form", type=Path)
    cache_dir: Path | None = _option(
        "where compiled programs are kept, if not in the default place", type=Path
    )
    ready_fd: int | None = _option("descriptor to write a line of JSON to, and close, when ready", type=int)
    statistics: Path | None = _option("file for counts of packets, as JSON, written at the end", type=Path)
    memory: bool = _option("let workers of this machine share memory", False)
    status: Path | None = _option(
        "unix socket that sends port counters, as a line of JSON", type=Path, metavar="SOCKET"
    )
    pcap: Path | None = _option("write every port's packets there", type=Path, metavar="FOLDER")
    pcap_limit: int = _option(
        "most bytes of such a file", DEFAULT_LIMIT_BYTES, (24, (1 << 63) - 1), type=int, metavar="BYTES"
    )


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
                options.tls.server_credentials() if options.tls else None,
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
        assert options.interfaces is not None
        pins = stack.enter_context(Pins(options.pin)) if options.pin is not None else None
        attached = stack.enter_context(
            XdpPorts(
                options.interfaces,
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
    names = {number: f"port{number}" for number in ports.names} if options.interfaces is None else ports.names
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
            XdpPorts(options.interfaces or ()).close()
        else:
            _ports(options).close()
    except (AddressUnavailableError, PortUnavailableError) as error:
        raise ServeError(str(error)) from None


def _check_values(options: ServeOptions) -> None:
    """Refuse numbers out of range, and options that would have no effect."""
    at_interfaces, in_kernel = options.interfaces is not None, options.engine == "xdp"
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
    for each in fields(ServeOptions):
        value, flag = getattr(options, each.name), f"--{each.name.replace('_', '-')}"
        applies, where = works.get(each.name, (True, ""))
        if value != each.default and not applies:
            raise ServeOptionError(f"{flag} works only {where}")
        least, most = each.metadata.get("within") or (None, None)
        if least is not None and not least <= value <= most:
            raise ServeOptionError(f"{flag}: expected a number between {least:,} and {most:,}, not {value}")


def _check_address(options: ServeOptions) -> None:
    if options.p4runtime.startswith("unix:"):
        return
    host, _, port = options.p4runtime.rpartition(":")
    host = host.strip("[]")
    if not host or not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise ServeOptionError(
            f"expected P4Runtime's address as HOST:PORT with a port up to 65535 or unix:PATH, not {options.p4runtime!r}"
        )
    if not (is_loopback(host) or options.allow_remote or options.tls):
        raise ServeOptionError(
            f"P4Runtime on {options.p4runtime} could be reached from other machines, and it has no authentication; "
            "use 127.0.0.1:PORT, give certificates, or allow remote controllers on purpose"
        )


def _ports(options: ServeOptions) -> PortDriver:
    if options.interfaces is not None:
        return InterfacePorts(
            options.interfaces, drop_ppm=options.drop_ppm, seed=options.seed, spin_us=options.spin_us
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
        ports.share_memory(ports.addresses, DEFAULT_BASE_PORT)
    return ports


def _config(options: ServeOptions) -> Any | None:
    """Read the program to begin with as a `ForwardingPipelineConfig`."""
    if options.json is None and options.p4info is None:
        return None
    if options.json is None or options.p4info is None:
        raise ServeOptionError("a program is two files, its BMv2 JSON and its P4Info; give both")
    config = p4runtime_pb2.ForwardingPipelineConfig()
    try:
        config.p4_device_config = options.json.read_bytes()
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


def parse_options(arguments: Sequence[str] | None) -> ServeOptions:
    """Read the command line; None reads that of the process."""
    parser = argparse.ArgumentParser(prog="python -m sim.switch.serve", description="Run an embedded switch.")
    for each in fields(ServeOptions):
        if each.name != "tls":
            how: dict[str, Any] = {"default": each.default, "dest": each.name, **each.metadata}
            how.pop("within")
            if each.default is False:
                how["action"] = "store_true"
            parser.add_argument(how.pop("flag", f"--{each.name.replace('_', '-')}"), **how)
    parser.add_argument("--tls-cert", type=Path, help="PEM certificate of the P4Runtime server")
    parser.add_argument("--tls-key", type=Path, help="its private key")
    parser.add_argument("--tls-ca", type=Path, help="take only controllers with a certificate from this CA")
    chosen = vars(parser.parse_args(arguments))
    if chosen["interfaces"] is not None:
        chosen["interfaces"] = tuple(chosen["interfaces"])
    chosen["tls"] = TlsFiles(chosen.pop("tls_ca"), chosen.pop("tls_cert"), chosen.pop("tls_key"))
    return ServeOptions(**chosen)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a switch as the command line says; the exit status: 0 after a signal, 2 for a wrong option, 1 for another error."""
    configure_logs(os.environ.get(VARIABLE, "text"))
    try:
        run(parse_options(arguments))
    except ServeError as error:
        if not recorded(str(error), logging.ERROR):
            print(f"sim.switch: {error}", file=sys.stderr)
        return 2 if isinstance(error, ServeOptionError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
