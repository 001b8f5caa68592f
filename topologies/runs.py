"""Run ids: each names its owner, so that remains of crashed runs can be distinguished from running ones."""

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
    """Return an id no other testbed on this machine has: our process id, its start time, a count."""
    pid = os.getpid()
    return f"{pid}-{_start_time(pid)}-{next(_count)}"


def owner_is_gone(run_id: str) -> bool:
    """Whether the process that made the id has ended, also if another has taken its process id since."""
    match = _RUN_ID.fullmatch(run_id)
    if match is None:
        return False
    pid, start_time = map(int, match.groups())
    return _start_time(pid) != start_time


def runs_as(pid: int) -> bool:
    """Whether a process of that id runs; a zombie does not."""
    return _start_time(pid) is not None


@contextlib.contextmanager
def run_folder(keep_on_error: Path) -> Iterator[Path]:
    """Offer a folder for a run's files; it goes with the run, unless that fails.

    `keep_on_error`: where the folder is moved if the block raises an `Exception`; Ctrl-C is none.
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
    """Make a folder, ours alone; temporary and thus short, as a socket's path has at most 107 characters."""
    folder = Path(tempfile.gettempdir()) / f"netsum-{run_id}"
    folder.mkdir(mode=0o700)
    return folder


def delete_leftover_folders() -> None:
    """Delete the socket folders of our own runs whose owner is gone."""
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
