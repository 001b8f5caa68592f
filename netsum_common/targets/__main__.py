"""Pack a compiled Tofino program into one file, as a P4Runtime server takes it."""

import argparse
import sys
from pathlib import Path

from netsum_common.targets.target import ProgramFileError
from netsum_common.targets.tofino import SERVERS, read_program


def main() -> int:
    """Pack the program that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m netsum_common.targets", description=__doc__)
    parser.add_argument("conf", type=Path, help="the .conf that p4c wrote")
    parser.add_argument("--server", choices=SERVERS, default="stratum", help="whose form (default: stratum)")
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    arguments = parser.parse_args()
    try:
        arguments.out.write_bytes(SERVERS[arguments.server](read_program(arguments.conf)))
    except (ProgramFileError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
