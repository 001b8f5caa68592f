"""The run of a training that `netsum sim record` records."""

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netsum.command_errors import CommandError, UsageError
from topologies.children import Child

_AGAIN_S = 0.1
_NOTES = ("rank*.*", "torch", ".observed*")
"""Files of recorders in the folder besides traces, while the training runs."""


@dataclass(frozen=True)
class Recorded:
    """A recording: a file for each rank, and each recorder's description."""

    place: str
    ranks: list[dict[str, Any]]


def record(
    command: Sequence[str], folder: Path, steps: int, timeout_s: float, progress: Callable[[int, int], None]
) -> Recorded:
    """Run a training until all its ranks are recorded, and end it then.

    `progress` is called with a rank's step and the last one that it records. Raises CommandError with the reason.
    """
    if shutil.which(command[0]) is None:
        raise UsageError(f"there is no program {command[0]}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove(folder, *_NOTES, "trace.*.et", "output.txt")
    except OSError as error:
        raise CommandError(f"cannot write to {folder}: {error.strerror}") from None
    try:
        return _run(command, folder, steps, timeout_s, progress)
    finally:
        _remove(folder, *_NOTES)


def _run(
    command: Sequence[str], folder: Path, steps: int, timeout_s: float, progress: Callable[[int, int], None]
) -> Recorded:
    output = folder / "output.txt"
    environment = {
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "1",
        "NETSUM_RECORD": os.fspath(folder.resolve()),
        "NETSUM_RECORD_STEPS": str(steps),
    }
    child = Child("the training", command, output, environment=environment)
    deadline = time.monotonic() + timeout_s
    step = -1
    try:
        while child.running:
            found = _all_ranks(folder)
            now = _step(folder)
            if now is not None and now[0] != step:
                step = now[0]
                progress(*now)
            if found is not None:
                return found
            if time.monotonic() > deadline:
                raise CommandError(
                    f"the training was not recorded within {timeout_s:g} s: it is at step {step + 1}"
                )
            time.sleep(_AGAIN_S)
    finally:
        child.stop()
    if (found := _all_ranks(folder)) is not None:
        return found
    if child.status:
        end = "\n".join(output.read_text(errors="replace").splitlines()[-5:])
        raise CommandError(f"the training ended with status {child.status}; the end of its output:\n{end}")
    raise CommandError(_why_nothing(folder))


def _remove(folder: Path, *patterns: str) -> None:
    for pattern in patterns:
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)


def _all_ranks(folder: Path) -> Recorded | None:
    """Return the recording, if all ranks are done; raises CommandError if one could not record."""
    for path in sorted(folder.glob("rank*.error")):
        raise CommandError(f"{path.stem}: {path.read_text()}")
    found = {path.stem: json.loads(path.read_text()) for path in folder.glob("rank*.json")}
    if not found or len(found) < next(iter(found.values()))["world_size"]:
        return None
    place = folder / ("trace.%d.et" if len(found) > 1 else "trace.0.et")
    return Recorded(str(place), [found[f"rank{rank}"] for rank in range(len(found))])


def _step(folder: Path) -> tuple[int, int] | None:
    with contextlib.suppress(OSError, ValueError):
        step, last = (folder / "rank0.step").read_text().split()
        return int(step), int(last)
    return None


def _why_nothing(folder: Path) -> str:
    """Return why a training that ended without an error has left no trace."""
    if not (folder / "torch").exists():
        return (
            "the training did not load PyTorch with netsum: expected a command that imports torch, in an environment that has "
            "both, and not TORCH_DEVICE_BACKEND_AUTOLOAD=0"
        )
    if (at := _step(folder)) is not None:
        taken, expected = at[0] + 1, at[1] + 1
        return f"the training ended after {taken} optimizer steps: expected {expected}; take fewer --steps, or train longer"
    return (
        "the training took no step of an optimizer of torch.optim in a process group: expected "
        "torch.distributed.init_process_group and a training"
    )
