"""Run ids: each contains its owner's process id and start time, which tell a crashed run's remains from a live run."""

import contextlib
import itertools
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_RUN_ID = re.compile(r"(\d+)-(\d+)-\d+")
_count = itertools.count()


def new_run_id() -> str:
    """Return an id that no other run on this machine has: this process's id and start time, and a count."""
    pid = os.getpid()
    return f"{pid}-{_start_time(pid)}-{next(_count)}"


def owner_is_gone(run_id: str) -> bool:
    """Whether the process that made the run id has ended, even if its process id has been reused since."""
    match = _RUN_ID.fullmatch(run_id)
    if match is None:
        return False
    pid, start_time = map(int, match.groups())
    return _start_time(pid) != start_time


def runs_as(pid: int) -> bool:
    """Whether process `pid` runs; a zombie does not."""
    return _start_time(pid) is not None


@contextlib.contextmanager
def run_folder(keep_on_error: Path) -> Iterator[Path]:
    """Make a folder for a run's files; delete it at the end of the block, unless the block fails.

    `keep_on_error`: the folder to which the run's is moved if the block raises an `Exception`, which Ctrl-C does not.
    """
    delete_leftover_folders()
    run_id = new_run_id()
    folder = socket_folder(run_id)
    try:
        yield folder
    except Exception as error:
        kept = keep_on_error / f"failed-{run_id}"
        with contextlib.suppress(OSError):
            keep_on_error.mkdir(exist_ok=True)
            shutil.move(folder, kept)
            error.add_note(f"Its logs are in {kept}.")
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def socket_folder(run_id: str) -> Path:
    """Make a private temporary folder; its path is short, as a socket's path has at most 107 characters."""
    folder = Path(tempfile.gettempdir()) / f"netsum-{run_id}"
    folder.mkdir(mode=0o700)
    return folder


def delete_leftover_folders() -> None:
    """Delete this user's socket folders whose owner is gone."""
    for folder in Path(tempfile.gettempdir()).glob("netsum-*-*-*"):
        with contextlib.suppress(OSError):
            ours = folder.lstat().st_uid == os.geteuid() and not folder.is_symlink()
            if ours and owner_is_gone(folder.name.removeprefix("netsum-")):
                shutil.rmtree(folder, ignore_errors=True)


def _start_time(pid: int) -> int | None:
    """Return the start time of a process, in clock ticks since boot (field 22 of /proc/PID/stat); None if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return (
        None if fields[0] in "ZX" else int(fields[19])
    )  # A zombie has ended; only its status has not been read.
