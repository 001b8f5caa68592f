"""Options that several commands take, each written once."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from netsum.cli.completions import testbeds
from netsum.command_errors import UsageError
from netsum_common.logs import VARIABLE
from netsum_common.names import check_name
from netsum_common.targets import PROCESS_TARGETS

if TYPE_CHECKING:
    SwitchKind = str  # The name of the target that runs the P4 program.
else:
    SwitchKind = Literal[tuple(PROCESS_TARGETS)]
# The engine that runs the P4 program of `netsum run`, on loopback or in Mininet.
DemoSwitch = Literal["embedded", "bmv2"]
Engine = Literal["embedded", "xdp"]  # Who runs the program of a switch on this host.
Sparse = Literal["auto", "always", "never"]  # Whether blocks that are zero at every worker are left out.
Bits = Literal["full", "16", "8", "4", "2"]  # Bits of an element on the wire.
Rounding = Literal["nearest", "stochastic"]  # How elements are rounded to few bits.
LogFormat = Literal["text", "json"]  # How a service writes its log.
Overlap = Literal["full", "random", "none"]  # Whether the blocks that are not zero are the same at all ranks.
Share = Literal["fixed", "fair", "weighted", "demand"]  # By what jobs share the slots of a switch.
IfFull = Literal["refuse", "queue", "take-less"]  # The treatment of a job whose slots are not free.

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document, for scripts.")]

TestbedOption = Annotated[
    str | None,
    typer.Option(
        "--testbed",
        metavar="NAME",
        help="The testbed that is meant. Default: NETSUM_TESTBED, else the only one.",
        autocompletion=testbeds,
    ),
]
ControllersTestbedOption = Annotated[
    str | None,
    typer.Option(
        "--testbed", metavar="NAME", help="The controller of this testbed.", autocompletion=testbeds
    ),
]

ControllerOption = Annotated[
    str | None,
    typer.Option(
        "--controller",
        metavar="HOST:PORT",
        envvar="NETSUM_CONTROLLER",
        help="Where the controller listens; also unix:PATH. Default: that of the testbed in NETSUM_TESTBED, else "
        "127.0.0.1:28276 if something listens there, else that of the only testbed that is up.",
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
    from netsum.option_values import parse_slots

    parse_slots(slots)
    return slots


def check_new_name(param: typer.CallbackParam, name: str | None) -> str | None:
    """Refuse an invalid name of a new job, switch or testbed while the arguments are read."""
    try:
        return name if name is None else check_name(name)
    except ValueError as expected:
        written = param.opts[-1] if param.opts[-1].startswith("--") else param.opts[-1].upper()
        raise UsageError(f"{written}: {expected}") from None


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
LogFormatOption = Annotated[
    LogFormat,
    typer.Option(
        "--log-format",
        envvar=VARIABLE,
        help="The log on standard error: lines of text, or a JSON object a line.",
    ),
]
JoinTokenOption = Annotated[
    str,
    typer.Option(envvar="NETSUM_JOIN_TOKEN", help="Secret that workers must have to join; empty: none."),
]
