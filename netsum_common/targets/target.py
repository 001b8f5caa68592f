"""A target: a kind of switch that runs a compiled P4 program, with its limits and what starts it."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from netsum_common.errors import NetsumError

DROP_PORT: Final = 511  # Also in v1model's programs.


class ProgramFileError(NetsumError):
    """A file of a compiled program cannot be read, or is not what its place says."""


class Target:
    """A kind of switch. The defaults are those of v1model's targets; tables, groups and counters are the same on all."""

    name: ClassVar[str]  # The users' name.
    title: ClassVar[str]  # The name in sentences.
    architectures: ClassVar[tuple[str, ...]] = ("v1model",)  # The architectures whose programs it runs.
    growth_bytes: ClassVar[int] = 0xFFFF  # Bytes by which an answer may be larger than the packet it answers.
    shortest_frame: ClassVar[int] = 14  # Least bytes of a frame from its ports; shorter ones are padded.
    # Whether its program sees what is behind a packet; if not, a packet that is too short may take in padding.
    sees_where_frames_end: ClassVar[bool] = True

    def device_config(self, program: Path) -> bytes:
        """Return a compiled program in the form that the switch takes in ``SetForwardingPipelineConfig``.

        Raises
        ------
        ProgramFileError
            A file cannot be read, or does not describe a program.
        """
        return read_file(program)

    def why_apart(self, ports: Iterable[int]) -> str | None:
        """Return why packets of some ports would not meet in one register; None if they would."""
        del ports
        return None


@dataclass(frozen=True)
class SwitchSetup:
    """One switch for which a testbed starts a process."""

    interfaces: Mapping[int, str]  # The interface of each port.
    p4runtime: str  # The gRPC address of its P4Runtime server.
    device_id: int
    cpu_port: int
    status: Path  # A file for its status.
    notifications: Path  # A socket file of its own.
    pcaps: Path | None  # Folder for the packets of every port; None: they are not captured.


class ProcessTarget(Target, ABC):
    """A target that runs as a process on this machine, as in testbeds."""

    # Whether the process says by a file descriptor that it is ready; if not, its socket shows it.
    announces: ClassVar[bool] = True
    usual_lanes: ClassVar[int] = 1024  # Most lanes of a testbed's packets, unless its user asks for more.

    @abstractmethod
    def command(self, setup: SwitchSetup, ready_fd: int | None) -> Sequence[str]:
        """Return the command line that starts a switch.

        `ready_fd`: the file descriptor by which the process says that it is ready, if it `announces` that.
        """

    def lacking(self) -> str | None:
        """Return why this machine cannot run it, or None."""
        return None

    def host_setup(self, interface: str) -> str:
        """Return the command that lets a host's interface receive from the switch; empty: none is needed."""
        del interface
        return ""


def read_file(path: Path) -> bytes:
    """Read a file of a compiled program.

    Raises
    ------
    ProgramFileError
        It cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise ProgramFileError(f"cannot read the compiled program {path}: {error.strerror}") from None
