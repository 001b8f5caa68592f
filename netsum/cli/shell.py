"""`netsum shell`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from netsum.cli.controller_choice import listens
from netsum.cli.options import running_testbed_option
from netsum.cli.texts import epilog
from netsum.command_errors import CommandError, UsageError
from netsum_common.options import argument, option

if TYPE_CHECKING:
    from netsum.shell import Target

CONTROLLER_VARIABLE = "NETSUM_CONTROLLER"
DEFAULT_P4RUNTIME = "127.0.0.1:9559"  # The default address of `netsum switch serve`.


EPILOG = epilog(
    "netsum shell  # a prompt on the only switch there is",
    "netsum shell s1 --testbed star-4  # a prompt on a switch of a testbed",
    "echo 'table_entry[\"worker_admission\"].read(print)' | netsum shell  # one thing from a script",
    "netsum shell --p4runtime 127.0.0.1:9559 --program my.json --p4info my.p4info.txtpb < fill.py  # with a program",
    ok="the prompt was left, or the script ran to its end",
)


@dataclass(frozen=True)
class ShellOptions:
    """The switch of a session, and its rights there."""

    switch: str | None = argument(
        "A switch of the testbed or the controller; default: its only one.", None, metavar="SWITCH"
    )
    p4runtime: str | None = option("The switch's P4Runtime server; also unix:PATH.", metavar="HOST:PORT")
    device_id: int = option("The switch's P4Runtime device id, with --p4runtime.", 1, within=(1, None))
    testbed: str | None = running_testbed_option()
    election_id: int | None = option(
        "Ask to be primary: the controller with the highest id may write.", within=(1, None), metavar="N"
    )
    program: Path | None = option("BMv2 JSON to give the switch first; needs --p4info.")
    p4info: Path | None = option("P4Info of that program, in text form.")
    tls_ca: Path | None = option("PEM file: trust a switch with a certificate from there.")
    tls_cert: Path | None = option("PEM file: client certificate, for a switch that requires one.")
    tls_key: Path | None = option("PEM file: the certificate's private key.")


def shell(options: ShellOptions) -> None:
    """Open p4runtime-shell on a running switch: a prompt, or a script of Python on standard input.

    Names are those of p4runtime-shell: `tables`, `table_entry["worker_admission"]`, `counter_entry["results"]`, and so on. The
    switch is that of `--p4runtime`; else of `--testbed`; else of the controller in NETSUM_CONTROLLER; else of the testbed that is
    up; else the one at 127.0.0.1:9559. Where a testbed is up and something listens there too, it has to be named.

    A switch obeys one controller, its primary. Where there is one, this session only reads, and leaves the switch to it; with
    `--election-id` above the primary's it takes over, and the controller stands by until the session ends. Where there is
    none, the session is primary with election id 1.
    """
    from dataclasses import replace

    from netsum.programs import warn_if_stale
    from netsum.shell import Target, find_out, run_shell
    from netsum_common.channel import TlsFiles

    program, p4info, election_id = options.program, options.p4info, options.election_id
    if options.p4runtime is not None and (options.switch is not None or options.testbed is not None):
        raise UsageError("--p4runtime is the switch itself: leave out its name and --testbed")
    if (program is None) != (p4info is None):
        raise UsageError("--program and --p4info must be given together")
    for file in (program, p4info):
        if file is not None and not file.is_file():
            raise UsageError(f"cannot read {file}: there is no such file")
    if program is not None:
        warn_if_stale(program)
    target = Target(options.p4runtime or "", options.device_id)
    if options.p4runtime is None:
        target = _find(options.switch, options.testbed)
    target = replace(target, tls=TlsFiles(options.tls_ca, options.tls_cert, options.tls_key))
    found = find_out(target)
    if election_id is None and found.primary is None:
        election_id = 1
    if election_id is not None and election_id == found.primary:
        raise CommandError(
            f"the primary of {target.address} has election id {election_id}: use a higher one, or none for reading only"
        )
    writes = election_id is not None and election_id > (found.primary or 0)
    if not writes:
        election_id = None
        if program is not None:
            raise CommandError(
                f"another controller is primary of {target.address} with election id {found.primary}: "
                "only with a higher --election-id can the switch be given a program"
            )
    if program is None and not found.has_program:
        raise CommandError(
            f"the switch at {target.address} has no program yet: give it one by --program and --p4info"
        )
    may = (
        "read and write" if writes else f"only read: a controller with election id {found.primary} is primary"
    )
    banner = f"P4Runtime shell on {target.address}, device {target.device_id}. You may {may}."
    run_shell(target, election_id, None if program is None or p4info is None else (p4info, program), banner)


def _find(switch: str | None, testbed: str | None) -> "Target":
    """Find the switch of a testbed or a controller; without either, the one that `netsum switch serve` runs."""
    import os

    from netsum.shell import Target
    from topologies.run_folder import find_testbed, running_testbeds

    if testbed is None and os.environ.get(CONTROLLER_VARIABLE):
        from controller.service.client import OperatorClient

        with OperatorClient() as client:
            view = client.switch(switch or "")
        return Target(view.address, view.device_id)
    if testbed is None and not running_testbeds():
        if switch is not None:
            raise CommandError(f"no testbed is up that could have a switch {switch}: name it by --p4runtime")
        return Target(DEFAULT_P4RUNTIME, 1)
    found = find_testbed(testbed)
    if not (testbed or os.environ.get("NETSUM_TESTBED")) and listens(DEFAULT_P4RUNTIME):
        raise CommandError(
            f"the switch at {DEFAULT_P4RUNTIME} and the testbed {found.name} are both up: name the switch by --p4runtime or "
            "--testbed"
        )
    switches = found.state["switches"]
    if switch is None and len(switches) > 1:
        raise CommandError(
            f"the testbed {found.name} has several switches; name one of {', '.join(switches)}"
        )
    name = switch or next(iter(switches))
    if name not in switches:
        raise CommandError(f"the testbed {found.name} has no switch {name!r}: expected {', '.join(switches)}")
    return Target(switches[name]["p4runtime"], switches[name]["device_id"])
