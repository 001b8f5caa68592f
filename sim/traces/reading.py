"""A trace's files: which there are, and which reader reads them."""

import re
from functools import lru_cache
from pathlib import Path
from typing import Final

from sim.traces.aicb import POLICIES, read_aicb
from sim.traces.chakra import read_chakra
from sim.traces.goal import read_goal
from sim.traces.graph import MOST_NODES, Trace, TraceError, link

_SHIPPED: Final = Path(__file__).parents[1] / "experiments" / "files"
_BEGINNING: Final = 4096  # Bytes of a file that show its format.
_PRINTABLE: Final = frozenset(b"\t\n\r") | frozenset(range(0x20, 0x7F))
_COMMENT: Final = re.compile(rb"//.*|/\*.*?\*/")


def trace_files(place: str) -> list[Path]:
    """Return the files of a trace: a file, those of a folder with names like NAME.3.et, or of a pattern with %d for a rank.

    Files of ranks are in the order of the ranks. Raises TraceError if that of a rank is missing.
    """
    path = Path(place)
    if not path.exists() and len(path.parts) == 1 and (_SHIPPED / path).is_file():
        path = _SHIPPED / path
    if path.is_file():
        return [path]
    folder, pattern = (path, "%d.et") if path.is_dir() else (path.parent, path.name)
    before, rank, after = pattern.partition("%d")
    if not rank:
        raise TraceError(f"{path}: there is no such file")
    name = re.compile((re.escape(before) or ".*?") + r"(\d+)" + re.escape(after))
    found = [(int(match[1]), each) for each in folder.glob("*") if (match := name.fullmatch(each.name))]
    for at, number in enumerate(sorted(number for number, _ in found) or [1]):
        if number != at:
            what = f"{at} is missing" if number > at else f"{number} has two files"
            raise TraceError(f"{path}: rank {what}: expected one for each rank")
    return [each for _, each in sorted(found)]


def read_trace(place: str, workers: int) -> Trace:
    """Read a trace for this many workers; it is read again when a file has changed.

    A single Chakra file is run by every worker. Raises TraceError.
    """
    files = trace_files(place)
    changed = tuple((each.stat().st_mtime_ns, each.stat().st_size) for each in files)
    return _read(tuple(files), workers, "%d" in place or Path(place).is_dir(), changed)


@lru_cache(maxsize=8)
def _read(files: tuple[Path, ...], workers: int, of_ranks: bool, changed: object) -> Trace:
    path = files[0]
    try:
        with path.open("rb") as file:
            beginning = file.read(_BEGINNING)
        words = _COMMENT.sub(b"", beginning).split() if set(beginning) <= _PRINTABLE else [b""]
        if words[:1] == [b"num_ranks"]:
            ranks = read_goal(path)
        elif words and words[0].decode() in POLICIES:
            ranks = read_aicb(path, workers)
        elif words[:1] == [b""]:
            ranks, room = [], MOST_NODES
            for rank, path in enumerate(files):
                ranks.append(read_chakra(path, rank, workers, room))
                room -= len(ranks[-1])
            if of_ranks and len(ranks) < workers:
                raise TraceError(
                    f"rank {len(ranks)} is missing: expected a file for each of {workers} workers, found {len(ranks)}"
                )
            ranks *= 1 if of_ranks else workers
        else:
            raise TraceError(
                "expected a Chakra trace, GOAL (num_ranks …) or a workload of AICB, found another text"
            )
        if len(ranks) != workers:
            raise TraceError(
                f"the trace has {len(ranks)} ranks: expected workers = {len(ranks)}, found {workers}"
            )
        path = files[0]
        return link(ranks)
    except OSError as error:
        raise TraceError(f"cannot read the trace {path}: {error.strerror}") from None
    except TraceError as error:
        raise TraceError(f"{path}: {error}") from None
