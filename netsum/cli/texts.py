"""Common parts of all commands' help: examples and exit statuses."""

OK, FAULT, USAGE, INTERRUPTED = 0, 1, 2, 130  # Exit statuses; the same for every command.

EXIT_STATUSES = {
    OK: "done, and what was asked for holds",
    FAULT: "it could not be done, or what was checked does not hold; standard error says why",
    USAGE: "wrong arguments",
    INTERRUPTED: "Ctrl-C; nothing is left running",
}


def epilog(*examples: str, **particular: str) -> str:
    """Write the end of a help in Markdown.

    `examples`: command lines, each with its meaning as a comment. `particular`: the meaning of an exit status for this command,
    by its name in lower case: `ok`, `fault`, `interrupted`; empty if the command never ends with it.
    """
    pairs = [each.rsplit("  # ", 1) for each in examples]
    shown = "\n".join(f"    # {what}\n    {line}" for line, what in pairs)
    numbers = {"ok": OK, "fault": FAULT, "interrupted": INTERRUPTED}
    meanings = EXIT_STATUSES | {numbers[name]: meaning for name, meaning in particular.items()}
    statuses = "\n".join(f"- {number}: {meaning}" for number, meaning in meanings.items() if meaning)
    return f"**Examples**\n\n{shown}\n\n**Exit status**\n\n{statuses}"
