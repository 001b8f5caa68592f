"""The `netsum` command."""

import sys


def main() -> None:
    """Run the command; the entry point of the installed script."""
    try:
        from topologies.interruptions import Unwinding

        with Unwinding():  # From the first second on: an interrupted import would end in a traceback.
            from netsum.cli.app import app

            app(prog_name="netsum")
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in ("typer", "rich"):
            raise
        from netsum.extras import install_command

        sys.exit(f"netsum: the command needs the Python package {package}: {install_command(package)}")
    except KeyboardInterrupt:  # Before `netsum.cli.exits` is there to handle it.
        print("netsum: interrupted", file=sys.stderr)
        sys.exit(130)
