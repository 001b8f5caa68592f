"""Writes manual pages from the commands' helps: ``python -m docs.man_pages`` writes docs/man/netsum.1 and one for each command.

They have neither a date nor a version, so that they change with the helps alone.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from docs.manual import Command, command_tree, names_of
from netsum.cli.parameters import metavar_of, options_of_command
from netsum_common.options import REQUIRED, Option

FOLDER = Path(__file__).resolve().parent / "man"


def pages() -> dict[str, str]:
    """Return the pages by their file's name."""
    root = command_tree()
    return {f"{each.path.replace(' ', '-')}.1": _page(each) for each in (root, *root.below)}


def _page(command: Command) -> str:
    name = command.path.replace(" ", "-")
    lines = [
        f".TH {name.upper()} 1",
        ".SH NAME",
        f"{_plain(name)} \\- {_text(command.summary.rstrip('.'))}",
        ".SH SYNOPSIS",
        _synopsis(command),
    ]
    if command.function:
        lines += [".SH DESCRIPTION", *_paragraphs(command.help), *_details(command, ".SH")]
    elif command.path == "netsum":
        lines += [".SH DESCRIPTION", *_paragraphs(command.help), ".SH COMMANDS"]
        for each in command.below:
            lines += [".TP", f"\\fB{_plain(each.path.replace(' ', '-'))}\\fR(1)", _text(each.summary)]
    else:
        lines += [".SH DESCRIPTION", *_paragraphs(command.help)]
        for each in command.below:
            lines += [f'.SH "{_plain(each.path)}"', _synopsis(each), ".PP", *_paragraphs(each.help)]
            lines += _details(each, ".SS")
    if command.path != "netsum":
        lines += [".SH SEE ALSO", "\\fBnetsum\\fR(1)"]
    return "\n".join(lines) + "\n"


def _synopsis(command: Command) -> str:
    if command.function is None:
        return f"\\fB{_plain(command.path)}\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]"
    given = [each for each in options_of_command(command.function).values() if each.declared.positional]
    words = [
        f"\\fI{_plain(metavar_of(each))}\\fR"
        if each.default is REQUIRED
        else f"[\\fI{_plain(metavar_of(each))}\\fR]"
        for each in given
    ]
    return " ".join([f"\\fB{_plain(command.path)}\\fR [\\fIOPTIONS\\fR]", *words])


def _details(command: Command, level: str) -> Iterator[str]:
    """Write options, examples and exit statuses under headings of a level; those of whole pages are in capitals."""
    if options := options_of_command(command.function):
        yield f"{level} {'OPTIONS' if level == '.SH' else 'Options'}"
        for each in options.values():
            yield from _option(each)
    for title, body in re.findall(r"\*\*(.+?)\*\*\n\n(.*?)(?=\n\n\*\*|\Z)", command.epilog, re.DOTALL):
        yield f'{level} "{title.upper() if level == ".SH" else title}"'
        for line in body.splitlines():
            if line.startswith("    # "):
                yield f".PP\n{_text(line[6:])}"
            elif line.startswith("    "):
                yield f".EX\n{_plain(line)}\n.EE"
            elif line.startswith("- "):
                status, _, meaning = line[2:].partition(": ")
                yield f".TP\n{status}\n{_text(meaning)}"


def _option(one: Option) -> Iterator[str]:
    metavar, declared = metavar_of(one), one.declared
    names = [] if declared.positional else [f"\\fB{_plain(name)}\\fR" for name in names_of(one)]
    yield ".TP"
    yield ", ".join(names) + (
        f" \\fI{_plain(metavar)}\\fR" if names and metavar else f"\\fI{_plain(metavar)}\\fR"
    )
    said = " ".join(declared.help.split())
    if one.kind is not bool and one.default not in (REQUIRED, None, "", ()):
        said += f" Default: {declared.shown or one.default}."
    if declared.env:
        said += f" Environment: {declared.env}."
    yield _text(said)


def _paragraphs(text: str) -> Iterator[str]:
    yield "\n.PP\n".join(_text(each) for each in text.split("\n\n"))


def _text(text: str) -> str:
    """Write a paragraph; what stands between backticks is bold."""
    return re.sub(r"`(.+?)`", r"\\fB\1\\fR", _plain(text))


def _plain(text: str) -> str:
    """Escape what roff would read as its own."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def write() -> None:
    """Write all pages."""
    FOLDER.mkdir(exist_ok=True)
    for name, content in pages().items():
        (FOLDER / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    write()
