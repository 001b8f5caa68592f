"""Options that several commands take, each written once."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from netsum.cli.completions import testbeds


class SwitchKind(StrEnum):
    """Which switch runs the P4 program."""

    embedded = "embedded"
    xdp = "xdp"
    bmv2 = "bmv2"


class DemoSwitch(StrEnum):
    """Which switch runs the P4 program of `netsum run`, on loopback or in Mininet."""

    embedded = "embedded"
    bmv2 = "bmv2"


class Engine(StrEnum):
    """Who runs the program of a switch on this host."""

    embedded = "embedded"
    xdp = "xdp"


class Lanes(StrEnum):
    """Values a packet carries; a compiled program each."""

    narrow = "64"
    wide = "256"


class Sparse(StrEnum):
    """Whether blocks that are zero at every worker are left out."""

    auto = "auto"
    always = "always"
    never = "never"


class Bits(StrEnum):
    """Bits of an element on the wire."""

    full = "full"
    sixteen = "16"
    eight = "8"
    four = "4"
    two = "2"


class Rounding(StrEnum):
    """How elements are rounded to few bits."""

    nearest = "nearest"
    stochastic = "stochastic"


class Overlap(StrEnum):
    """Whether the blocks that are not zero are the same at all ranks."""

    full = "full"
    random = "random"
    none = "none"


class Share(StrEnum):
    """By what jobs share the slots of a switch."""

    fixed = "fixed"
    fair = "fair"
    weighted = "weighted"
    demand = "demand"


class IfFull(StrEnum):
    """What to do with a job whose slots are not free."""

    refuse = "refuse"
    queue = "queue"
    take_less = "take-less"


AsJson = Annotated[bool, typer.Option("--json", help="One JSON document, for scripts.")]

TestbedOption = Annotated[
    str | None,
    typer.Option(
        "--testbed",
        metavar="NAME",
        help="The controller, or the hosts, of this testbed.",
        autocompletion=testbeds,
    ),
]

ControllerOption = Annotated[
    str | None,
    typer.Option(
        "--controller",
        metavar="HOST:PORT",
        envvar="NETSUM_CONTROLLER",
        help="Where the controller listens; also unix:PATH. Default: that of the testbed in NETSUM_TESTBED, else of the one "
        "that is up, else 127.0.0.1:28276.",
    ),
]

TlsCaOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-ca", envvar="NETSUM_TLS_CA", help="PEM file: trust servers with a certificate from there."
    ),
]
TlsCertOption = Annotated[
    Path | None,
    typer.Option("--tls-cert", envvar="NETSUM_TLS_CERT", help="PEM file: our certificate, for mutual TLS."),
]
TlsKeyOption = Annotated[
    Path | None, typer.Option("--tls-key", envvar="NETSUM_TLS_KEY", help="PEM file: the private key to it.")
]


def _check_slots(slots: str | None) -> str | None:
    """Refuse a wrong number of slots while the arguments are read: before a controller or a testbed is looked up."""
    from netsum.slots_text import parse_slots

    parse_slots(slots)
    return slots


SlotsOption = Annotated[
    str | None,
    typer.Option(
        metavar="SLOTS",
        callback=_check_slots,
        help="Chunks in flight: a power of two; or a share of the switch's slots, such as 25%; or a link to be filled, its "
        "rate and round-trip time, such as 10gbit*50us. Default: the controller's (64).",
    ),
]
IfFullOption = Annotated[
    IfFull,
    typer.Option(
        help="If that many slots are not free: say so, wait for them, or take the largest power of two that is."
    ),
]
JoinTokenOption = Annotated[
    str,
    typer.Option(envvar="NETSUM_JOIN_TOKEN", help="Secret that workers must have to join; empty: none."),
]
