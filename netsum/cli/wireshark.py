"""`netsum wireshark`."""

from pathlib import Path

from netsum.cli.texts import epilog
from netsum.command_errors import CommandError, UsageError
from netsum_common.options import option

EPILOG = epilog(
    "netsum wireshark --install  # from now on Wireshark and tshark know the protocol",
    'tshark -X lua_script:"$(netsum wireshark)" -r port1.pcap -Y netsum.retransmission  # without installing it',
)


def wireshark(
    install: bool = option("Install it where Wireshark and tshark load plugins from.", False, "--install"),
    folder: Path | None = option("Where to install it. Default: your own folder for Lua plugins."),
) -> None:
    """Print the path of the dissector for Wireshark and tshark, or install it.

    The dissector shows every field of the protocol by name (filter fields `netsum.*`), the lanes as int32, which answer belongs
    to which request, retransmissions, which workers a STATUS misses, and marks malformed packets. Without `--install` the command
    prints the path of the file, and nothing else.
    """
    from netsum.packets.wireshark import PLUGIN, plugin_folder
    from netsum.packets.wireshark import install as put
    from netsum.terminal import echo

    if not install:
        if folder is not None:
            raise UsageError("--folder requires --install")
        print(PLUGIN)
        return
    target = folder or plugin_folder()
    try:
        echo(f"installed {put(target)}")
    except OSError as error:
        raise CommandError(f"cannot write to {target}: {error.strerror}") from None
