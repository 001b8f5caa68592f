"""The last collectives of a process, in the format of PyTorch's flight recorder, which ``torchfrtrace`` reads.

The format: PyTorch tutorial "Flight Recorder for Debugging Stuck Jobs". PyTorch's variables apply: TORCH_FR_BUFFER_SIZE, the
number of collectives kept, and TORCH_FR_DUMP_TEMP_FILE, the prefix of the files that failures write.
"""

import os
import pickle
import threading
import time
import warnings
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from host_agent.errors import ArrayError, MisuseError, SumOverflowError

FORMAT: Final = "2.10"
_LIBRARY: Final = "gloo"
"""The prefix of all operations' names: PyTorch 2.13's torchfrtrace knows libraries of its own list only."""
_DESCRIPTION: Final = (
    "netsum"  # The groups' description; the tool compares operations only between groups of the same one.
)
_MS: Final = 1e6

Tensors = Sequence[tuple[torch.Size | tuple[int, ...], torch.dtype]]  # Shapes and types.


def described(tensors: Sequence[Tensor], parts: int = 1) -> Tensors:
    """Return the shapes and types of tensors, each of which stands for as many `parts` of its shape as there are ranks."""
    return [((parts, *each.shape) if parts > 1 else each.shape, each.dtype) for each in tensors]


@dataclass(frozen=True, slots=True)
class RecordedGroup:
    """A process group: its name, and the ranks in the world of its ranks."""

    name: str
    ranks: tuple[int, ...]
    timeout_ms: int


@dataclass(slots=True)
class Recorded:
    """A collective; `completed_ns` is 0 until it has ended well. Times are Unix times in nanoseconds."""

    record: int
    group: RecordedGroup
    sequence: int
    operation: str
    inputs: Tensors
    outputs: Tensors
    created_ns: int
    through_gloo: bool = False
    completed_ns: int = 0

    def ended(self, error: BaseException | None) -> None:
        """Record that it has ended; a failure after which the group can go on is none for the recorder."""
        if error is None or isinstance(error.__cause__, SumOverflowError | ArrayError):
            self.completed_ns = time.time_ns()
        else:
            recorder.failed(self)

    def entry(self) -> dict[str, Any]:
        """Return the entry of a file for this collective."""
        done = self.completed_ns > 0
        kind, _, peers = self.operation.partition(" ")
        return {
            "record_id": self.record,
            "pg_id": 0,
            "process_group": (self.group.name, _DESCRIPTION),
            "library": "gloo" if self.through_gloo else "netsum",  # torchfrtrace does not read it.
            "collective_seq_id": self.sequence,
            "p2p_seq_id": self.sequence if peers else 0,
            "op_id": self.sequence,
            "profiling_name": f"{_LIBRARY}:{self.operation}",
            "is_p2p": kind in ("send", "recv"),
            "time_created_ns": self.created_ns,
            "duration_ms": (self.completed_ns - self.created_ns) / _MS if done else None,
            "input_sizes": [list(shape) for shape, _ in self.inputs],
            "input_dtypes": [str(dtype) for _, dtype in self.inputs],
            "output_sizes": [list(shape) for shape, _ in self.outputs],
            "output_dtypes": [str(dtype) for _, dtype in self.outputs],
            "state": "completed" if done else "started",
            "time_discovered_started_ns": self.created_ns,
            "time_discovered_completed_ns": self.completed_ns or None,
            "retired": done,
            "timeout_ms": self.group.timeout_ms,
            "frames": [],
        }


class FlightRecorder:
    """Keeps the newest collectives of all process groups of this process. `capacity`: how many; 0: none."""

    def __init__(self, capacity: int) -> None:
        self._kept: deque[Recorded] = deque(maxlen=capacity)
        self._groups: dict[str, RecordedGroup] = {}
        self._rank = 0
        self._records = 0
        self._written: set[str] = set()
        self._lock = threading.Lock()

    def add_group(self, name: str, ranks: Sequence[int], rank: int, timeout_s: float) -> RecordedGroup:
        """Add a process group, of which this process has the given rank; one of the same name is forgotten."""
        group = self._groups[name] = RecordedGroup(name, tuple(ranks), round(timeout_s * 1e3))
        self._rank = ranks[rank]
        self._written.discard(name)
        return group

    def begin(
        self,
        group: RecordedGroup,
        sequence: int,
        operation: str,
        inputs: Tensors,
        outputs: Tensors,
        through_gloo: bool = False,
    ) -> Recorded:
        """Record that a collective begins, the `sequence`-th of its group, and return the record."""
        with self._lock:
            self._records += 1
            made = Recorded(
                self._records, group, sequence, operation, inputs, outputs, time.time_ns(), through_gloo
            )
            self._kept.append(made)
        return made

    def failed(self, record: Recorded) -> None:
        """Write a file if TORCH_FR_DUMP_TEMP_FILE is set, once for each group: later failures follow from the first."""
        prefix = os.environ.get("TORCH_FR_DUMP_TEMP_FILE", "")
        with self._lock:
            first = record.group.name not in self._written
            self._written.add(record.group.name)
        if first and prefix:
            try:
                self.write(prefix)
            except OSError as error:
                warnings.warn(
                    f"cannot write the flight recorder's file {error.filename}: {error.strerror}",
                    stacklevel=2,
                )

    def write(self, prefix: str) -> Path:
        """Write the kept collectives to the file named by the prefix and this process's rank in the world.

        Raises OSError if the file cannot be written.
        """
        with self._lock:
            kept = list(self._kept)
        groups = {
            name: {"name": name, "desc": _DESCRIPTION, "ranks": str(list(group.ranks))}
            for name, group in self._groups.items()
        }
        content = {"version": FORMAT, "pg_config": groups, "entries": [each.entry() for each in kept]}
        path = Path(f"{prefix}{self._rank}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(content))
        return path


def _from_environment() -> FlightRecorder:
    given = os.environ.get("TORCH_FR_BUFFER_SIZE", "2000")
    if not (given.isascii() and given.isdigit()):
        raise MisuseError(f"TORCH_FR_BUFFER_SIZE: expected a whole number, not {given!r}")
    return FlightRecorder(int(given))


recorder: Final = _from_environment()


def write_flight_recorder(prefix: str) -> Path:
    """Write the last collectives of this process, for ``torchfrtrace``.

    `prefix`: of the file's path; the rank in the world follows. ``torchfrtrace FOLDER`` reads the files of all ranks.
    Returns the file. Raises OSError if it cannot be written.
    """
    return recorder.write(prefix)
