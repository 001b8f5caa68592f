"""The program, P4Info and table entries for each switch of a topology, checked before anything is started.

Failures raise `ConfigError` with the reason.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.errors import ConfigError, WrongProgramError
from controller.p4info import read_p4info
from controller.user_programs.runtime_file import RuntimeFile
from topologies.topology import SwitchSpec

FOLDER = "programs"  # The part of a run folder with the files that each switch gets at every start.
PROGRAM, P4INFO, ENTRIES = "program.json", "p4info.txtpb", "entries.json"

_P4INFO_SUFFIXES = (".p4info.txtpb", ".p4.p4info.txtpb", ".p4info.txt", ".p4.p4info.txt")
"""Suffixes that p4c and the tutorials add to the program's stem for the name of a P4Info."""


@dataclass(frozen=True)
class UserProgram:
    """The program and table entries for one switch."""

    # json, p4info: the program, compiled for BMv2, and its P4Info in text form.
    json: Path
    p4info: Path
    entries: Path | None  # The runtime file; None: the program starts with empty tables.
    updates: Sequence[Any]  # Contents of the runtime file as P4Runtime updates.


@dataclass(frozen=True)
class FileOptions:
    """Files of one kind that a command line names: for single switches, and for all others."""

    option: str  # The option's name, for messages.
    by_switch: Mapping[str, Path]  # Files written as ``s1=FILE``.
    default: Path | None  # The file written without a switch.

    @classmethod
    def read(cls, option: str, written: Sequence[str], switches: Sequence[str]) -> "FileOptions":
        """Read the values of an option on the command line, such as ``["basic.json", "s1=firewall.json"]``."""
        found: dict[str, Path] = {}
        for text in written:
            name, equals, file = text.partition("=")
            if not equals:
                name, file = "", text
            elif name not in switches:
                raise ConfigError(
                    f"{option} {text}: there is no switch {name!r}: expected {', '.join(switches)}"
                )
            if name in found:
                raise ConfigError(f"{option}: expected one file for {name or 'all switches'}, found two")
            found[name] = Path(file)
        return cls(option, {name: file for name, file in found.items() if name}, found.get(""))


def choose(
    switches: Mapping[str, SwitchSpec],
    folder: Path,
    programs: FileOptions,
    p4infos: FileOptions,
    entries: FileOptions,
) -> dict[str, UserProgram]:
    """Return the program and entries for each switch, by name; switches without a program of the user's own are left out.

    A file that the command line names for one switch takes precedence over the topology's file, and the topology's over one that
    the command line names for all switches. The program that a runtime file names is used only if nothing else names one.
    """
    found = {}
    for name, spec in switches.items():
        chosen = _chosen(spec, folder, programs, p4infos, entries)
        if chosen is not None:
            found[name] = chosen
    if not found:
        for options in (p4infos, entries):
            if options.default is not None:
                raise ConfigError(f"{options.option} {options.default}: expected --program FILE beside it")
    return found


def _chosen(
    spec: SwitchSpec, folder: Path, programs: FileOptions, p4infos: FileOptions, entries: FileOptions
) -> UserProgram | None:
    name, runtime = spec.name, _runtime_file(spec, folder, entries)
    p4info = p4infos.by_switch.get(name)
    files = [
        _Files(programs.by_switch.get(name)),
        _Files(spec.program, spec.p4info, folder, f"switches.{name}."),
        _Files(programs.default, p4infos.default),
    ]
    if runtime is not None:
        files.append(
            _Files(runtime.program, runtime.p4info, runtime.path.parent, f"{runtime.path}: ", "bmv2_json")
        )
    first = next((each for each in files if each.program), None)
    if first is None and runtime is not None:
        raise ConfigError(
            f"{runtime.path}: expected bmv2_json, or --program {name}=FILE: which program is it for?"
        )
    if first is None:
        if p4info is not None:
            raise ConfigError(f"{p4infos.option} {name}={p4info}: expected --program {name}=FILE beside it")
        return None
    program = first.find(first.program, first.key)
    if p4info is None and first.p4info:
        p4info = first.find(first.p4info, "p4info")
    _require_bmv2_json(program)
    p4info = p4info or _p4info_beside(name, program)
    try:
        names = read_p4info(p4info)
    except WrongProgramError as error:
        raise ConfigError(str(error)) from None
    if runtime is None:
        return UserProgram(program, p4info, None, ())
    return UserProgram(program, p4info, runtime.path, runtime.updates(names))


def _runtime_file(spec: SwitchSpec, folder: Path, entries: FileOptions) -> RuntimeFile | None:
    path = entries.by_switch.get(spec.name)
    if path is None and spec.runtime_json:
        path = _found(spec.runtime_json, folder, f"switches.{spec.name}.runtime_json")
    path = path or entries.default
    return None if path is None else RuntimeFile(path)


@dataclass(frozen=True)
class _Files:
    """A program and its P4Info as the command line names them, or as another file does, which is in `folder`."""

    program: str | Path | None
    p4info: str | Path | None = None
    folder: Path | None = None
    place: str = ""
    key: str = "program"

    def find(self, named: str | Path | None, key: str) -> Path:
        return Path(str(named)) if self.folder is None else _found(str(named), self.folder, self.place + key)


def _found(written: str, folder: Path, place: str) -> Path:
    """Find a file that another file names, from the working directory (the tutorials' way), `folder` or its parent."""
    bases = (Path(), folder, folder.parent)
    for base in bases:
        if (path := base / written).is_file():
            return path
    looked = ", ".join(dict.fromkeys(str(base.absolute()) for base in bases))
    raise ConfigError(f"{place}: there is no file {written}, looked for in {looked}")


def _require_bmv2_json(path: Path) -> None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the program {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON, which p4c writes for BMv2: {error}") from None
    if not isinstance(found, dict) or "pipelines" not in found:
        raise ConfigError(f"{path} is not a program that p4c compiled for BMv2: it has no pipelines")


def _p4info_beside(name: str, program: Path) -> Path:
    names = [program.stem + suffix for suffix in _P4INFO_SUFFIXES]
    for each in names:
        if (path := program.with_name(each)).is_file():
            return path
    raise ConfigError(
        f"expected the P4Info of {program} in {names[0]} or {names[1]} beside it, or --p4info {name}=FILE: "
        "`p4c --p4runtime-files` writes it"
    )


def keep_copies(folder: Path, chosen: Mapping[str, UserProgram]) -> None:
    """Copy the switches' files to a run folder, from which `controller.user_programs.load` reads them."""
    for name, program in chosen.items():
        own = folder / FOLDER / name
        own.mkdir(parents=True)
        shutil.copyfile(program.json, own / PROGRAM)
        shutil.copyfile(program.p4info, own / P4INFO)
        if program.entries is not None:
            shutil.copyfile(program.entries, own / ENTRIES)
