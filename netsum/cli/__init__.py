"""The `netsum` command."""

import sys

from netsum.extras import install_command


def main() -> None:
    """Run the command; the entry point of the installed script."""
    try:
        from netsum.cli.app import app

        app(prog_name="netsum")
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in ("typer", "rich"):
            raise
        sys.exit(f"netsum: the command needs the Python package {package}: {install_command(package)}")
    except (
        KeyboardInterrupt
    ):  # While the command's modules are imported; afterwards `netsum.cli.errors` handles it.
        print("netsum: interrupted", file=sys.stderr)
        sys.exit(130)
