"""Results of `netsum strategies bench`: a file for each training, so that an interrupted run goes on where it was."""

import gzip
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from netsum.bench.strategies_points import Curve, StrategyPoint


class Results:
    """A folder with a file for each training that was run."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder

    def missing(self, points: Iterable[StrategyPoint]) -> list[StrategyPoint]:
        """Return the points that were not run."""
        return [point for point in points if not (self.folder / point.file_name).is_file()]

    def keep(self, point: StrategyPoint, curve: Curve) -> None:
        """Write a result; a file is there whole or not at all."""
        path = self.folder / point.file_name
        partial = path.with_suffix(".partial")
        text = json.dumps({"point": asdict(point), "curve": asdict(curve)}) + "\n"
        partial.write_bytes(gzip.compress(text.encode(), mtime=0))
        partial.replace(path)

    def read(self, points: Iterable[StrategyPoint]) -> dict[StrategyPoint, Curve]:
        """Return the results that are there of some points."""
        there = {point: self.folder / point.file_name for point in points}
        return {
            point: Curve(**json.loads(gzip.decompress(path.read_bytes()))["curve"])
            for point, path in there.items()
            if path.is_file()
        }
