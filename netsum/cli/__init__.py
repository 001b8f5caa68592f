"""The `netsum` command."""

import sys


def main() -> None:
    """Run the command; the entry point of the installed script."""
    try:
        from netsum.cli.app import app

        app(prog_name="netsum")
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in ("typer", "rich"):
            raise
        sys.exit(f"netsum: the command needs {missing.name}: pip install 'netsum[cli]'")
    except (
        KeyboardInterrupt
    ):  # While the command's modules are imported; afterwards `netsum.cli.errors` handles it.
        print("netsum: interrupted", file=sys.stderr)
        sys.exit(130)
