"""The options of an embedded switch as a process, which its own command line and `netsum switch serve` take alike."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from netsum_common.errors import NetsumError
from netsum_common.options import OptionError, option

LAST_PORT: Final = 509  # The last usable port; 511 drops.
CPU_PORT: Final = 510
UDP_PORT: Final = 28275  # UDP port of switch port 0, and the one shown to the program: 0x6e73, "ns".
CAPTURE_BYTES: Final = 1 << 30
PORTS, RECORDS, TLS = "Ports", "What it writes down", "TLS"


class ServeError(NetsumError):
    """The switch cannot run as asked; the message is one sentence for the user."""


class ServeOptionError(ServeError, OptionError):
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
    """The options with their meanings; a tuple of values that are read from texts is given by several options."""

    p4runtime: str = option(
        "Where P4Runtime listens; port 0: any. Also unix:PATH.", "127.0.0.1:9559", metavar="HOST:PORT"
    )
    device_id: int = option("P4Runtime device id of the switch.", 1, within=(0, (1 << 64) - 1))
    cpu_port: int = option(
        "The port by which packets go from and to the controller.", CPU_PORT, within=(1, CPU_PORT)
    )
    program: Path | None = option("BMv2 JSON of a program to begin with; needs --p4info.")
    p4info: Path | None = option("P4Info of that program, in text form.")
    cache_dir: Path | None = option(
        "Where compiled programs are kept. Default: NETSUM_CACHE_DIR.", metavar="FOLDER"
    )
    engine: Literal["embedded", "xdp"] = option(
        "What runs the program: this process, or the kernel (XDP, at interfaces, root).", "embedded"
    )
    ports: int = option("Number of switch ports, from 0.", 4, within=(0, LAST_PORT), panel=PORTS)
    udp_base: int = option(
        "UDP port of switch port 0, of port 1 the next; 0: any.", UDP_PORT, within=(0, 65535), panel=PORTS
    )
    udp_ports: tuple[int, ...] | None = option(
        "UDP port of each switch port, such as 5000,5001, in place of --ports and --udp-base.",
        panel=PORTS, metavar="PORT,PORT...", read=port_numbers,
    )  # fmt: skip
    udp_host: str = option(
        "IPv4 address of the UDP ports, of this machine.", "127.0.0.1", panel=PORTS, metavar="ADDRESS"
    )
    memory: bool = option("Beside UDP: workers of this machine share memory.", False, "--memory", panel=PORTS)
    interface: tuple[tuple[int, str], ...] = option(
        "A network interface as a port, instead of UDP; several times (root).", (),
        panel=PORTS, metavar="PORT@NAME", read=port_at_interface,
    )  # fmt: skip
    spin_us: int = option(
        "At interfaces: poll this many microseconds before sleeping.", 0, within=(0, 1_000_000), panel=PORTS
    )
    drop_ppm: int = option("Packets per million to lose, each way.", 0, within=(0, 1_000_000), panel=PORTS)
    seed: int = option("Seed of the lost packets.", 0, within=(0, (1 << 63) - 1), panel=PORTS)
    pass_dropped: bool = option(
        "With XDP: what the program drops goes to this host's own stack.",
        False,
        "--pass-dropped",
        panel=PORTS,
    )
    pin: Path | None = option(
        "With XDP: the switch stays in this folder of a BPF filesystem, and the next process takes it over.",
        panel=PORTS, metavar="FOLDER",
    )  # fmt: skip
    pcap: Path | None = option(
        "Write the packets of every port to files there.", panel=RECORDS, metavar="FOLDER"
    )
    pcap_limit: int = option(
        "Most bytes of such a file.",
        CAPTURE_BYTES,
        within=(24, (1 << 63) - 1),
        panel=RECORDS,
        metavar="BYTES",
    )
    statistics: Path | None = option("File for counts of packets, written at the end.", panel=RECORDS)
    status: Path | None = option("Unix socket that serves the counts of packets as JSON.", panel=RECORDS)
    tls_cert: Path | None = option("PEM certificate of P4Runtime.", panel=TLS)
    tls_key: Path | None = option("Its private key.", panel=TLS)
    tls_ca: Path | None = option("Accept only controllers with a certificate from this CA.", panel=TLS)
    allow_remote: bool = option(
        "Listen where other machines can reach it, unauthenticated.", False, "--allow-remote"
    )
    ready_fd: int | None = option(
        "Descriptor to write a line of JSON to when the switch is ready.", None, within=(0, (1 << 31) - 1)
    )
