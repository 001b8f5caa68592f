"""An experiment: a file that names a question, settings, and which of them vary."""

import contextlib
import copy
import hashlib
import itertools
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, get_args, get_origin, get_type_hints

from host_agent.wire.lengths import frame_bytes
from sim.errors import SettingError
from sim.experiments.effects import Effects
from sim.experiments.models import model_path
from sim.experiments.settings import (
    JobTable,
    Settings,
    read_table,
)
from sim.experiments.summary import MEASURES
from sim.traces.graph import TraceError
from sim.traces.reading import read_trace, trace_files
from topologies.fields import FieldError, Fields, parse_toml, read_text, shown, text_field
from topologies.shaping import ETHERNET_HEADER_BYTES
from topologies.topology_file import topology_path

FILES: Final = Path(__file__).with_name("files")  # The experiments that come with netsum.

_TEXTS: Final = ("name", "question", "about", "x", "y", "lines")
MOST_POINTS: Final = 100_000

_HINTS: Final = get_type_hints(Settings)
_LISTS: Final = {name: get_args(hint)[0] for name, hint in _HINTS.items() if get_origin(hint) is tuple}
_SINGLE: Final = {name: hint for name, hint in _HINTS.items() if name not in _LISTS}


@dataclass(frozen=True)
class Point:
    """One run: settings and a seed."""

    settings: Settings
    seed: int
    # The values of what varies, as the file wrote them, by its key there.
    varied: tuple[tuple[str, Any], ...]

    def key(self, stamp: str) -> str:
        """Return a hash of everything that determines the results; `stamp` is that of programs and sources.

        The files that the settings name count with their content, as they are now.
        """
        described = {
            "settings": asdict(self.settings),
            "files": _contents(self.settings),
            "seed": self.seed,
            "stamp": stamp,
        }
        text = json.dumps(described, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def __str__(self) -> str:
        shown = [f"{name} = {value}" for name, value in self.varied]
        return ", ".join([*shown, f"seed {self.seed}"])


@dataclass(frozen=True)
class Experiment:
    """An experiment."""

    name: str
    question: str
    about: str
    # x, y, lines: the columns of the results that the plot shows.
    x: str
    y: str
    lines: str
    varies: tuple[str, ...]
    # In the order of the file's keys, the last one varying fastest, seeds fastest of all.
    points: tuple[Point, ...]
    text: str
    overrides: Mapping[str, Any]  # Values in place of those in the file, by key as in ``[sweep]``.


def _contents(settings: Settings) -> dict[str, str]:
    """Return a hash of each file that settings name; one that cannot be read has none, and its point fails."""
    paths = []
    for job in settings.job:
        if job.model:
            with contextlib.suppress(SettingError):
                paths.append(model_path(job.model))
        if job.workload:
            with contextlib.suppress(TraceError):
                read_trace(job.workload, job.workers)  # A wrong one has no hash, however long it is.
                paths += trace_files(job.workload)
    if settings.topology.file:
        paths.append(topology_path(settings.topology.file))
    return {str(path): _digest(path) for path in paths if path.is_file()}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def shipped_experiments() -> list[str]:
    """Return the names of the experiments that come with netsum."""
    return sorted(path.stem for path in FILES.glob("*.toml"))


def load_experiment(name_or_path: str, overrides: Mapping[str, Any] | None = None) -> Experiment:
    """Read an experiment that comes with netsum, by name, or any other, by its file's path.

    `overrides`: values in place of those in the file, by key as in ``[sweep]``. Raises SettingError: there is no such
    experiment, or it is wrong; the message says where.
    """
    path = Path(name_or_path)
    if path.suffix != ".toml" and len(path.parts) == 1:
        if name_or_path not in shipped_experiments():
            raise SettingError(
                f"there is no experiment {name_or_path!r}: expected {', '.join(shipped_experiments())}, or a file's path "
                "that ends in .toml"
            )
        path = FILES / f"{name_or_path}.toml"
    try:
        return parse_experiment(read_text(path), path.stem, overrides)
    except OSError as error:
        raise SettingError(f"cannot read the experiment {path}: {error.strerror}") from None
    except (FieldError, SettingError) as error:
        raise SettingError(f"{path}: {error}") from None


def parse_experiment(text: str, name: str, overrides: Mapping[str, Any] | None = None) -> Experiment:
    """Read an experiment from a file's text; raises `SettingError`."""
    try:
        return _parse(parse_toml(text), text, name, overrides)
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"not TOML: {error}") from None
    except FieldError as error:
        raise SettingError(str(error)) from None


def _parse(
    whole: dict[str, Any], text: str, name: str, overrides: Mapping[str, Any] | None = None
) -> Experiment:
    table = Fields("", whole, form="a table")
    table.only(*sorted((*_SINGLE, *_LISTS, *_TEXTS, "sweep")))
    name, question, about, x, y, lines = (
        table.get(key, text_field, default)
        for key, default in zip(_TEXTS, (name, "", "", "", "goodput_bps", ""), strict=True)
    )
    sweep = _axes(whole.get("sweep", {}))
    for key, value in (overrides or {}).items():
        sweep[key] = value if isinstance(value, list) else [value]
    tables = {key: value for key, value in whole.items() if key in _SINGLE or key in _LISTS}
    effects = Effects(sweep, overrides)
    points = tuple(_points(tables, sweep, effects))
    effects.check()
    varies = tuple(key for key, values in sweep.items() if len(values) > 1)
    for key in (*x.split(), *lines.split()):
        if key not in sweep:
            raise SettingError(f"x, lines: expected keys of [sweep] ({', '.join(sweep)}), found {key!r}")
    for measure in y.replace(",", " ").split():
        if measure not in MEASURES:
            raise SettingError(f"y: expected one of {', '.join(MEASURES)}, found {measure!r}")
    return Experiment(
        name=name,
        question=question,
        about=about.strip(),
        x=x,
        y=y,
        lines=lines,
        varies=varies,
        points=points,
        text=text,
        overrides=dict(overrides or {}),
    )


def _axes(found: object) -> dict[str, list[Any]]:
    if not isinstance(found, Mapping):
        raise SettingError(f"sweep: expected a table, found {shown(found)}")
    axes: dict[str, list[Any]] = {}
    for key, values in found.items():
        if isinstance(values, Mapping):
            values = _range(f"sweep.{key}", values)
        if not isinstance(values, list) or not values:
            raise SettingError(
                f"sweep.{key}: expected a list of values, or a range {{from, to, step or times}}, found {shown(values)}"
            )
        axes[key] = values
    return axes


def _range(place: str, found: Mapping[str, Any]) -> list[Any]:
    keys = set(found)
    if keys not in ({"from", "to", "step"}, {"from", "to", "times"}) or not all(
        isinstance(each, (int, float)) and not isinstance(each, bool) for each in found.values()
    ):
        raise SettingError(
            f"{place}: expected numbers from, to and step, or from, to and times, found {shown(dict(found))}"
        )
    first, last = found["from"], found["to"]
    step, times = found.get("step", 0), found.get("times", 1)
    if (step <= 0 and times <= 1) or first > last or (times > 1 and first <= 0):
        raise SettingError(f"{place}: expected a range that goes up, found {shown(dict(found))}")
    values: list[Any] = []
    while first <= last and len(values) <= MOST_POINTS:
        values.append(first)
        first = first * times + step
    return values


def _points(tables: dict[str, Any], sweep: Mapping[str, list[Any]], effects: Effects) -> Iterator[Point]:
    count = 0
    for combination in itertools.product(*sweep.values()):
        chosen = copy.deepcopy(tables)
        varied = tuple(zip(sweep, combination, strict=True))
        for key, value in varied:
            _set(chosen, key, value)
        settings = _settings(chosen, effects)
        count += settings.run.seeds
        if count > MOST_POINTS:
            raise SettingError(f"sweep, run.seeds: expected at most {MOST_POINTS:,} points, found more")
        for seed in range(1, settings.run.seeds + 1):
            yield Point(settings, seed, varied)


def _set(tables: dict[str, Any], key: str, value: Any) -> None:
    """Set a key such as ``topology.rate``, ``job.workers`` (of all jobs) or ``job.1.workers`` (of the second)."""
    table, *rest = key.split(".")
    where: Any
    if table in _SINGLE and len(rest) == 1:
        where = [tables.setdefault(table, {})]
    elif table in _LISTS and len(rest) in (1, 2):
        where = tables.setdefault(table, [{}])
        if len(rest) == 2:
            if not rest[0].isdigit() or int(rest[0]) >= len(where):
                raise SettingError(f"sweep.{key}: there is no {table} {rest[0]}, they are numbered from 0 on")
            where = [where[int(rest[0])]]
    else:
        raise SettingError(
            f"sweep.{key}: expected TABLE.KEY or TABLE.NUMBER.KEY with one of {', '.join([*_SINGLE, *_LISTS])}"
        )
    for each in where:
        each[rest[-1]] = value


def _copies(job: JobTable) -> Iterator[JobTable]:
    """Iterate over the jobs that a table of a job stands for."""
    for number in range(job.copies):
        name = job.name if job.copies == 1 else f"{job.name}{number + 1}"
        first_host = job.first_host + (number * job.workers if job.apart else 0)
        yield replace(job, name=name, first_host=first_host, copies=1)


def _settings(tables: Mapping[str, Any], effects: Effects) -> Settings:
    values: dict[str, Any] = {
        name: read_table(kind, tables.get(name, {}), name) for name, kind in _SINGLE.items()
    }
    for name, kind in _LISTS.items():
        found = tables.get(name, [])
        if not isinstance(found, list):
            raise SettingError(
                f"{name}: expected [[{name}]], a list of tables, found a {type(found).__name__}"
            )
        values[name] = tuple(read_table(kind, each, f"{name}[{at}]") for at, each in enumerate(found))
    written = dict(values)
    values["job"] = tuple(copy for job in values["job"] for copy in _copies(job))
    if not values["job"]:
        raise SettingError("job: expected at least one [[job]]")
    names = [job.name for job in values["job"]]
    if len(set(names)) != len(names):
        raise SettingError(f"job: expected each job to have a name of its own, found {', '.join(names)}")
    settings = Settings(**values)
    _check(settings)
    for name in _SINGLE:
        effects.add_table(settings, name, None, tables.get(name, {}), written[name])
    for name in _LISTS:
        for at, found in enumerate(tables.get(name, ())):
            effects.add_table(settings, name, at, found, written[name][at])
    return settings


def _check(settings: Settings) -> None:
    """Refuse settings that nothing could come of."""
    for job in settings.job:
        if job.straggler >= job.workers:
            raise SettingError(
                f"job {job.name}: straggler: expected a worker from 0 to {job.workers - 1}, found {job.straggler}"
            )
    for at, flow in enumerate(settings.background):
        if flow.source == flow.target:
            raise SettingError(f"background[{at}]: expected another target than its source, {flow.source}")
        if (flow.rate > 0) == (flow.flow != ""):
            raise SettingError(f"background[{at}]: expected either a rate or a flow")
    if settings.topology.kind != "file":
        check_packets(settings, settings.topology.mtu)


def check_packets(settings: Settings, mtu: int) -> None:
    """Raise SettingError if a packet is longer than the links' MTU."""
    for job in settings.job:
        ours = job.contender == "netsum"
        frame = frame_bytes(job.lanes) if ours else settings.transport.segment + settings.transport.headers
        if frame - ETHERNET_HEADER_BYTES > mtu:
            what = f"{job.lanes} lanes" if ours else "the transport's segments"
            raise SettingError(
                f"topology.mtu: expected {frame - ETHERNET_HEADER_BYTES} or more for packets of {what}, found {mtu}"
            )
    for at, flow in enumerate(settings.background):
        if flow.packet - ETHERNET_HEADER_BYTES > mtu:
            raise SettingError(
                f"background[{at}].packet: expected at most {mtu + ETHERNET_HEADER_BYTES} bytes, found {flow.packet}"
            )
