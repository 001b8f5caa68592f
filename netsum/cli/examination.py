"""`netsum doctor`."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from netsum.cli.faults import told_in_a_sentence
from netsum.cli.texts import epilog

if TYPE_CHECKING:
    from netsum.doctor import Finding


EPILOG = epilog(
    ("netsum doctor", "what is here, and what to do about the rest"),
    (
        "netsum doctor --json | jq -r '.checks[] | select(.well | not) | .remedy'",
        "what to do, and nothing else",
    ),
    ok="everything that every run needs is here; with --strict, everything",
    fault="something of that is missing",
)


@told_in_a_sentence
def doctor(
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail if anything is missing, not only what every run needs.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document, for scripts.")] = False,
) -> None:
    """Look at this machine for what netsum uses, and say what to do about what is missing.

    Looks at Python packages, the compiled P4 programs, sockets and their limits, privileges, network namespaces, queueing
    disciplines, p4c, BMv2, Mininet, tshark. Takes about a second and changes nothing. What is missing is marked `--`, with what
    it is needed for and what to do; what every run needs is marked `!!`.
    """
    from netsum.doctor import examine

    groups = examine()
    findings = [finding for group in groups.values() for finding in group]
    missing = [finding for finding in findings if not finding.well and (strict or finding.required)]
    if as_json:
        checks = [{"group": group, **one.to_json()} for group, found in groups.items() for one in found]
        print(json.dumps({"well": not missing, "checks": checks}, indent=2))
    else:
        _show(groups)
    if missing:
        raise typer.Exit(1)


def _show(groups: "dict[str, list[Finding]]") -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(soft_wrap=True, highlight=False)
    for group, findings in groups.items():
        console.print(f"[bold]{group}[/bold]")
        for finding in findings:
            mark = (
                "[green]ok[/green]"
                if finding.well
                else "[red]!![/red]"
                if finding.required
                else "[yellow]--[/yellow]"
            )
            console.print(f"{mark}  {finding.subject}: {escape(finding.found)}")
            if not finding.well:
                console.print(f"    needed for: {finding.needed_for}", markup=False)
                console.print(f"    to do: {finding.remedy}", markup=False)
