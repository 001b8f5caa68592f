"""Results of long benchmarks: a file for each point, so that an interrupted run goes on where it was; and how far it is."""

import gzip
import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from host_agent.errors import ArgumentError
from netsum.terminal import ProgressRows


class Kept(Protocol):
    """A point: a dataclass that names the file of its result."""

    @property
    def file_name(self) -> str:
        """Name of the file of its result; compressed if it ends in ``.gz``."""


PointKind = TypeVar("PointKind", bound=Kept)
Record = TypeVar("Record")


class Results(Generic[PointKind, Record]):
    """A folder with a file for each point that was run."""

    def __init__(self, folder: Path, record: type[Record]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._record = record

    def missing(self, points: Iterable[PointKind]) -> list[PointKind]:
        """Return the points that were not run."""
        return [point for point in points if not (self.folder / point.file_name).is_file()]

    def keep(self, point: PointKind, record: Record) -> None:
        """Write a result; a file is there whole or not at all."""
        path = self.folder / point.file_name
        partial = path.with_suffix(".partial")
        content: Mapping[str, Any] = {"point": asdict(point), "curve": asdict(record)}  # type: ignore[call-overload]
        text = (json.dumps(content) + "\n").encode()
        partial.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
        partial.replace(path)

    def read(self, points: Iterable[PointKind]) -> dict[PointKind, Record]:
        """Return the results that are there of some points."""
        found = {}
        for point in points:
            path = self.folder / point.file_name
            if path.is_file():
                data = path.read_bytes()
                text = gzip.decompress(data) if path.suffix == ".gz" else data
                found[point] = self._record(**json.loads(text)["curve"])
        return found


def print_table(headings: Sequence[str], lines: Iterable[Sequence[str]], *, key: int) -> str:
    """Print a table as `ProgressRows` does, and return it as Markdown."""
    rows = ProgressRows(*headings, key=key)
    plain = [heading.lstrip(">?").replace("\n", " ") for heading in headings]
    text = [plain, ["---"] * len(plain)]
    for line in lines:
        rows.add(*line)
        text.append(list(line))
    rows.print()
    return "".join("| " + " | ".join(each) + " |\n" for each in text)


class BenchProgress:
    """Says on standard error how many points are done, and how long the others will take."""

    def __init__(self, total: int) -> None:
        self._total, self._done = total, 0
        self._began = time.monotonic()

    @property
    def left(self) -> int:
        """Points that are not done."""
        return self._total - self._done

    def done(self, what: str) -> None:
        """Note that a point is done."""
        self._done += 1
        left = (time.monotonic() - self._began) / self._done * self.left
        print(
            f"{self._done} of {self._total}: {what}; about {left / 60:.0f} min left",
            file=sys.stderr,
            flush=True,
        )


def require(kind: str, name: str, known: Iterable[str]) -> None:
    """Check a name. Raises ArgumentError if it is unknown; the message lists those that are known."""
    if name not in known:
        raise ArgumentError(f"unknown {kind} {name!r}: expected one of {', '.join(known)}")
