"""Gives switches of a testbed the programs of its run folder: ``python -m controller.user_programs.load FOLDER s1 s2``.

The loading has a process of its own, so that the testbed's keeper holds no gRPC connection. On failure, the last line of the
process's output gives the reason.
"""

import sys
from pathlib import Path

from controller.errors import ControllerError
from controller.p4info import read_p4info
from controller.program import reading_programs
from controller.service.network import network_of_testbed
from controller.session import P4RuntimeSession, Update
from controller.user_programs.files import ENTRIES, FOLDER, P4INFO, PROGRAM
from controller.user_programs.runtime_file import RuntimeFile
from netsum_common.targets.target import read_file

ELECTION_ID = 1
"""The election id of p4lang's tutorials: a controller that starts later, with this id or a higher one, is primary."""
TIMEOUT_S = 30.0


def load(folder: Path, switch: str) -> None:
    """Give one switch its program and table entries, and leave it to other controllers.

    Raises ControllerError if the switch refused something, or does not answer.
    """
    own = folder / FOLDER / switch
    site = network_of_testbed(folder).switches[switch]
    p4info = read_p4info(own / P4INFO)
    updates = RuntimeFile(own / ENTRIES).updates(p4info) if (own / ENTRIES).is_file() else []
    session = P4RuntimeSession(site.p4runtime, site.device_id, ELECTION_ID, TIMEOUT_S)
    try:
        with reading_programs():
            program = read_file(own / PROGRAM)
        session.configure(p4info, program)
        for kind in (Update.MODIFY, Update.INSERT):
            entities = [update.entity for update in updates if update.type == kind]
            session.apply(kind, entities, f"the table entries of {switch}")
    finally:
        session.tear_down()


def main() -> None:
    """Load the switches that the command line names; exit with status 1 and a sentence if one cannot be loaded."""
    folder, *switches = sys.argv[1:]
    for switch in switches:
        try:
            load(Path(folder), switch)
        except ControllerError as error:
            sys.exit(f"switch {switch}: {error}")


if __name__ == "__main__":
    main()
