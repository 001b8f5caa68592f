"""The store of an experiment's results: one Parquet file for each point, and one for all.

A point's file is named by a hash of everything that determines its result, so that no point is computed twice and an
interrupted run resumes.

Failures raise `ResultStoreError`; the message says what is wrong.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from host_agent.environment import CONGESTION_WINDOW, is_on
from netsum_common.sources import sources_stamp
from sim.errors import SimulationError
from sim.experiments import running
from sim.experiments.experiment import Experiment, Point, parse_experiment
from sim.experiments.limits import Limit
from sim.experiments.running import PointResult
from sim.experiments.scenario import Programs


class ResultStoreError(SimulationError):
    """Results cannot be written or read; the message says where and why."""


def _arrow() -> Any:
    import pyarrow.parquet

    return pyarrow


def code_stamp(programs: tuple[tuple[int, str], ...]) -> str:
    """Return a hash of the compiled programs, of all modules that a point's run imports, and of a variable that it reads."""
    digest = hashlib.sha256(sources_stamp(Path(running.__file__)).encode())
    if is_on(CONGESTION_WINDOW):
        digest.update(CONGESTION_WINDOW.encode())
    for _, program in sorted(programs):
        digest.update(Path(program).read_bytes())
    return digest.hexdigest()


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]], notes: Mapping[str, Any]) -> None:
    """Write rows as a Parquet file, with notes in its metadata; either the whole file is there afterwards, or none."""
    arrow = _arrow()
    table = arrow.Table.from_pylist(list(rows))
    table = table.replace_schema_metadata({"netsum": json.dumps(notes, sort_keys=True)})
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        arrow.parquet.write_table(table, temporary)
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise ResultStoreError(f"cannot write {path}: {error.strerror or error}") from None


def read_rows(path: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the rows of a Parquet file, and its notes."""
    arrow = _arrow()
    if not path.is_file():
        raise ResultStoreError(f"cannot read {path}: there is no such file")
    try:
        table = arrow.parquet.read_table(path)
    except (OSError, arrow.ArrowException) as error:
        raise ResultStoreError(
            f"cannot read {path}: {error}; without it, its results are computed again"
        ) from None
    notes = json.loads((table.schema.metadata or {}).get(b"netsum", b"{}"))
    return table.to_pylist(), notes


def load_run(folder: Path) -> Experiment:
    """Return the experiment whose results a folder holds. Raises SettingError, ResultStoreError if it holds none."""
    return _read_settings(folder)[0]


def _read_settings(folder: Path) -> tuple[Experiment, dict[str, Any]]:
    """Return an experiment, and what `ResultStore` wrote beside its file."""
    try:
        text = (folder / "experiment.toml").read_text(encoding="utf-8")
        chosen = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        said = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else error
        raise ResultStoreError(f"{folder} holds no experiment's results: {said}") from None
    if isinstance(chosen, dict):
        chosen = {"stamp": "", "points": "points", **chosen}
    expected = {"name": str, "overrides": dict, "stamp": str, "points": str}
    if not isinstance(chosen, dict) or not all(
        isinstance(chosen.get(key), kind) for key, kind in expected.items()
    ):
        raise ResultStoreError(
            f"{folder / 'settings.json'}: expected an object with {', '.join(expected)}, as `netsum sim run` writes it"
        )
    return parse_experiment(text, chosen["name"], chosen["overrides"]), chosen


def load_store(folder: Path, programs: Programs) -> "ResultStore":
    """Return the store of results that are there, whatever programs and sources they were computed with.

    Raises SettingError, ResultStoreError if there are none.
    """
    experiment, chosen = _read_settings(folder)
    points = folder / chosen["points"]
    stamps = [chosen["stamp"]]
    collected = folder / "results.parquet"
    if collected.is_file():  # Perhaps of other sources than those of the last run, which was interrupted.
        stamps.append(read_rows(collected)[1].get("stamp", ""))
    for stamp in stamps:
        store = ResultStore(folder, experiment, programs, stamp=stamp, points=points)
        if any(store.computed()):
            return store
    raise ResultStoreError(f"{folder} holds no results yet: run the experiment first")


class ResultStore:
    """The folder of an experiment's results.

    `stamp`: of the programs and sources whose results are meant, if not those that are here. `points`: folder of the points'
    files. Default: ``points`` in `folder`.
    """

    def __init__(
        self,
        folder: Path,
        experiment: Experiment,
        programs: Programs,
        *,
        stamp: str | None = None,
        points: Path | None = None,
    ) -> None:
        self.folder = folder
        self._points = points or folder / "points"
        self.experiment = experiment
        self.stamp = stamp or code_stamp(tuple(sorted(programs.items())))
        _arrow()
        try:
            self._points.mkdir(parents=True, exist_ok=True)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "experiment.toml").write_text(experiment.text, encoding="utf-8")
            chosen = {
                "name": experiment.name,
                "overrides": dict(experiment.overrides),
                "stamp": self.stamp,
                "points": os.path.relpath(self._points, folder),
            }
            (folder / "settings.json").write_text(json.dumps(chosen, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise ResultStoreError(f"cannot write to {folder}: {error.strerror or error}") from None

    def path_of(self, point: Point) -> Path:
        """Return where the results of a point are."""
        return self._points / f"{point.key(self.stamp)}.parquet"

    def has(self, point: Point) -> bool:
        """Whether a point has been computed, and its file can be read."""
        arrow, path = _arrow(), self.path_of(point)
        try:
            return path.is_file() and arrow.parquet.read_metadata(path).num_rows > 0
        except (OSError, arrow.ArrowException):
            return False

    def put(self, point: Point, result: PointResult) -> None:
        """Keep the results of a point."""
        path = self.path_of(point)
        if result.series:
            write_rows(path.with_suffix(".series.parquet"), result.series, {})
        limits = {name: [asdict(limit) for limit in found] for name, found in result.limits.items()}
        write_rows(path, result.rows, {"limits": limits, "point": str(point)})

    def get(self, point: Point) -> tuple[list[dict[str, Any]], dict[str, list[Limit]]]:
        """Return the rows of a point that has been computed, and what limited its jobs."""
        rows, notes = read_rows(self.path_of(point))
        limits = {name: [Limit(**each) for each in found] for name, found in notes.get("limits", {}).items()}
        return rows, limits

    def collect(self) -> Path:
        """Write the rows of all points that have been computed into one file; returns it.

        Without any, a file that is there is kept: it is that of other settings or sources.
        """
        path = self.folder / "results.parquet"
        rows = [row for point in self.computed() for row in self.get(point)[0]]
        if not rows and path.exists():
            return path
        write_rows(path, rows, {"experiment": self.experiment.name, "stamp": self.stamp})
        return path

    def computed(self) -> Iterable[Point]:
        """Iterate over the points that have been computed, in order."""
        return (point for point in self.experiment.points if self.has(point))
