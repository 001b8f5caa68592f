"""The capabilities of a compiled P4 program, which p4/build.py and p4/tofino.py write beside its P4Info."""

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

from netsum_common.targets.target import ProgramFileError


@dataclass(frozen=True)
class Capabilities:
    """The abilities and sizes of a compiled program."""

    architecture: str = "v1model"  # The P4 architecture that it is compiled for; see `Target.architectures`.
    lanes: int = 64  # int32 values a packet carries.
    slots: int = 4096  # Slots of its registers.
    passes: int = 1  # How often a packet passes through it; above 1, packets are recirculated.
    trees: bool = True  # Whether the switch may have a parent.
    header_only: bool = False  # Whether it leaves out lanes of a RESULT that a worker does not need.
    lanes_in_quorums: bool = True  # Whether contributions to a slot that a quorum completes may have lanes.
    congestion_marks: bool = True  # Whether a RESULT says that a queue has marked a contribution.


def capabilities_file(file: Path) -> Path:
    """Return the path of the capabilities of a program, given its P4Info or BMv2 JSON, beside which they are."""
    return file.with_name(file.name.partition(".p4info")[0].removesuffix(".json") + ".capabilities.toml")


def read_capabilities(file: Path) -> Capabilities:
    """Read the capabilities of a program, given its P4Info or BMv2 JSON.

    Raises
    ------
    ProgramFileError
        They are not there, or of another netsum.
    """
    path = capabilities_file(file)
    remedy = "write it with `python p4/build.py --describe P4INFO`, in a source checkout of this netsum"
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProgramFileError(
            f"the program's capabilities {path} cannot be read ({error.strerror}): {remedy}"
        ) from None
    except ValueError as error:
        raise ProgramFileError(f"{path} is not TOML ({error}): {remedy}") from None
    expected = {field.name: type(field.default) for field in fields(Capabilities)}
    if {name: type(value) for name, value in found.items()} != expected:
        raise ProgramFileError(f"{path} does not have the keys {', '.join(expected)}: {remedy}")
    return Capabilities(**found)
