"""`netsum doctor`."""

from netsum.cli.faults import told_in_a_sentence


@told_in_a_sentence
def doctor() -> None:
    """Look at this machine for what netsum uses, and say what to do about what is missing."""
    from rich.console import Console
    from rich.markup import escape

    from netsum.doctor import examine

    console = Console(soft_wrap=True, highlight=False)
    for finding in examine():
        mark = "[green]ok[/green]" if finding.well else "[yellow]--[/yellow]"
        console.print(f"{mark}  [bold]{finding.subject}[/bold]: {escape(finding.found)}")
        if not finding.well:
            console.print(f"    needed for: {finding.needed_for}", markup=False)
            console.print(f"    to do: {finding.remedy}", markup=False)
