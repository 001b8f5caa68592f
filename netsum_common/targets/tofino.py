"""Tofino: a compiled program in the forms its P4Runtime servers take, and the names of front-panel ports.

A Tofino program consists of three kinds of files: the binary and the context of each pipeline, and the BF-Runtime description of
the program. The ``.conf`` that the compiler writes beside these files names them.

``python -m netsum_common.targets netsum.conf --server pi --out netsum.bin`` packs them into one file.

Failures raise `ProgramFileError` with the reason.
"""

import json
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from netsum_common.targets.target import ProgramFileError, Target, read_file

_PM_SHOW_ROW = re.compile(r"^\s*(\d+/\d+)\s*\|\s*\d+/\s*\d+\s*\|\s*(\d+)\s*\|")


@dataclass(frozen=True)
class TofinoPipeline:
    """One pipeline of a program."""

    name: str  # The pipeline's name in the P4 program.
    # context, binary: contents of ``context.json``, and of ``tofino.bin`` or ``tofino2.bin``.
    context: bytes
    binary: bytes
    pipes: tuple[int, ...]  # The chip's pipes that run it.


@dataclass(frozen=True)
class TofinoProgram:
    """A compiled program."""

    name: str  # The compiler's name for the program.
    bfrt: bytes  # Contents of ``bf-rt.json``.
    pipelines: tuple[TofinoPipeline, ...]  # At least one.


class Tofino(Target):
    """Tofino and Tofino 2."""

    name = "tofino"
    title = "Tofino"
    architectures = ("tna", "t2na")
    shortest_frame = 60
    sees_where_frames_end = False

    def device_config(self, program: Path) -> bytes:
        """Return a program as Stratum takes it; `program`: its ``.conf``, or a file that is packed already, for any server."""
        return for_stratum(read_program(program)) if program.suffix == ".conf" else read_file(program)

    def why_apart(self, ports: Iterable[int]) -> str | None:
        """Return why packets of some ports would not meet: each pipe of the chip has registers of its own.

        `ports`: device ports, whose bits from 7 on are the pipe.
        """
        by_pipe: dict[int, list[int]] = {}
        for port in sorted(set(ports)):
            by_pipe.setdefault(port >> 7, []).append(port)
        if len(by_pipe) < 2:
            return None
        where = "; ".join(f"pipe {pipe}: ports {', '.join(map(str, held))}" for pipe, held in by_pipe.items())
        return (
            f"the job's ports are on several pipes of the switch, which do not share memory ({where}): "
            "use ports of one pipe"
        )


def read_program(conf: Path) -> TofinoProgram:
    """Read a program by the ``.conf`` that the compiler wrote for the switch driver.

    `conf`: the file. The compiler writes paths of the machine on which it ran, so files that do not exist at these paths are
    looked for beside the ``.conf``.
    """
    try:
        described = json.loads(read_file(conf))["p4_devices"][0]["p4_programs"][0]
        pipelines = tuple(
            TofinoPipeline(
                name=one["p4_pipeline_name"],
                context=read_file(_beside(conf, one["context"])),
                binary=read_file(_beside(conf, one["config"])),
                pipes=tuple(one.get("pipe_scope", (0, 1, 2, 3))),
            )
            for one in described["p4_pipelines"]
        )
        return TofinoProgram(
            described["program-name"], read_file(_beside(conf, described["bfrt-config"])), pipelines
        )
    except (ValueError, LookupError, TypeError) as error:
        raise ProgramFileError(
            f"{conf} does not describe a Tofino program ({error!r}): give the .conf that p4c wrote for it"
        ) from None


def for_stratum(program: TofinoProgram) -> bytes:
    """Pack a program for Stratum: its message ``BfPipelineConfig``.

    Source: stratum/hal/lib/barefoot/bf.proto of https://github.com/stratum/stratum. The two messages have only four kinds of
    fields, so this function encodes them itself; Stratum's ``bf_pipeline_builder`` makes the same.
    """
    packed = _text(1, program.name) + _delimited(2, program.bfrt)
    for one in program.pipelines:
        pipes = b"".join(_varint(pipe) for pipe in one.pipes)
        profile = _text(1, one.name) + _delimited(2, one.context) + _delimited(3, one.binary)
        packed += _delimited(3, profile + _delimited(4, pipes))
    return packed


def for_pi(program: TofinoProgram) -> bytes:
    """Pack a program for the P4Runtime server of P4 Studio, which is p4lang's PI.

    The form is name, binary and context, each behind its length in 4 bytes, little endian. Raises ProgramFileError if the
    program has several pipelines, for which this form has no place.
    """
    if len(program.pipelines) != 1:
        raise ProgramFileError(
            f"{program.name} has {len(program.pipelines)} pipelines; the server of P4 Studio takes one"
        )
    (pipeline,) = program.pipelines
    parts = (program.name.encode(), pipeline.binary, pipeline.context)
    return b"".join(struct.pack("<i", len(part)) + part for part in parts)


SERVERS = {"stratum": for_stratum, "pi": for_pi}  # P4Runtime server to packing function.


def front_panel_ports(pm_show: str) -> Mapping[str, int]:
    """Return the device port of each front-panel port, from the output of ``pm show`` in the driver's shell.

    `pm_show`: the output. P4Runtime servers know only device ports (column D_P), whose assignment to front-panel ports differs
    from box to box. Returns a mapping such as ``{"5/0": 164}``. Raises ValueError if the output has no port.
    """
    ports = {found[1]: int(found[2]) for found in map(_PM_SHOW_ROW.match, pm_show.splitlines()) if found}
    if not ports:
        raise ValueError(
            "expected the table that `pm show` prints in bf_shell, with the columns PORT, MAC, D_P"
        )
    return ports


def _beside(conf: Path, named: str) -> Path:
    """Find a file that the ``.conf`` names: by its path, or by the last parts of its path beside the ``.conf``."""
    parts = Path(named).parts
    shorter: Iterator[Path] = (conf.parent.joinpath(*parts[start:]) for start in range(len(parts)))
    return next((path for path in (Path(named), *shorter) if path.is_file()), Path(named))


def _varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _delimited(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _text(number: int, text: str) -> bytes:
    return _delimited(number, text.encode())
