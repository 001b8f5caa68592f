"""`netsum doctor`."""

from typing import TYPE_CHECKING

import typer

from netsum.cli.texts import epilog
from netsum.options import json_option
from netsum_common.options import option

if TYPE_CHECKING:
    from netsum.doctor import Finding


EPILOG = epilog(
    "netsum doctor  # what is here, and what to do about the rest",
    "netsum doctor --json | jq -r '.checks[] | select(.well | not) | .remedy'  # what to do, and nothing else",
    ok="everything that every run needs is here; with --strict, everything",
    fault="something of that is missing",
)


def doctor(
    strict: bool = option("Fail if anything is missing, not only what every run needs.", False, "--strict"),
    as_json: bool = json_option(),
) -> None:
    """Check this machine for everything that netsum uses, and say how to install missing parts.

    Looks at Python packages, the compiled P4 programs, sockets and their limits, privileges, network namespaces, queueing
    disciplines, p4c, BMv2, Mininet, tshark. Takes about a second and changes nothing. Missing
    parts are marked `--`, with their use and how to install them; parts that every run needs are marked `!!`; parts that could
    not be tried are marked `??`.
    """
    from netsum.doctor import examine
    from netsum.terminal import print_json

    groups = examine()
    findings = [finding for group in groups.values() for finding in group]
    missing = [finding for finding in findings if not finding.well and (strict or finding.required)]
    if as_json:
        checks = [{"group": group, **one.to_json()} for group, found in groups.items() for one in found]
        print_json({"well": not missing, "checks": checks})
    else:
        _show(groups)
    if missing:
        raise typer.Exit(1)


def _show(groups: "dict[str, list[Finding]]") -> None:
    from rich.text import Text

    from netsum.terminal import console, echo, wrapped

    screen = console()
    for group, findings in groups.items():
        echo(group, style="bold")
        for finding in findings:
            mark, style = _mark(finding)
            line = Text(wrapped(f"{mark}  {finding.subject}: {finding.found}", screen, "    "))
            line.stylize(style, 0, len(mark))
            screen.print(line, soft_wrap=True)
            if finding.needed_for:
                echo(f"    needed for: {finding.needed_for}")
            if finding.remedy:
                echo(f"    to do: {finding.remedy}")


def _mark(finding: "Finding") -> tuple[str, str]:
    """Return the mark of a finding and its style."""
    if not finding.tried:
        return "??", "yellow"
    if finding.well:
        return "ok", "green"
    return ("!!", "red") if finding.required else ("--", "yellow")
