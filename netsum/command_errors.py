"""What commands raise; `netsum.cli.errors` makes sentences and exit statuses of it."""


class CommandError(Exception):
    """A command cannot do what was requested; the message is one sentence that says what to do."""


class UsageError(CommandError):
    """The command line is wrong whatever the machine is like; the message says what is expected."""
