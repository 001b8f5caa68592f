"""The compiled P4 programs: their place, and whether they are those of the P4 sources beside them."""

import logging
import sys
import sysconfig
from dataclasses import dataclass
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from host_agent.errors import NetsumError
from host_agent.wire.lengths import packet_bytes
from netsum.command_errors import UsageError
from netsum_common.lane_counts import SOFTWARE_LANES
from netsum_common.logs import recorded
from netsum_common.targets.capabilities import capabilities_file

BUILD = Path(__file__).resolve().parents[1] / "p4" / "build"  # In a source checkout.
INSTALLED = Path(sysconfig.get_path("data")) / "share" / "netsum"
"""Folder of a wheel's data files (pyproject.toml, data-files)."""


class ProgramMissingError(NetsumError):
    """A compiled program is not where it should be."""


def usual_lanes(most: int, mtu: int) -> int:
    """Return the most lanes, up to a target's `usual_lanes`, of which a network's packets have room."""
    fitting = [lanes for lanes in SOFTWARE_LANES if lanes <= most and packet_bytes(lanes) <= mtu]
    return max(fitting, default=min(SOFTWARE_LANES))


def check_lanes(lanes: int, mtu: int, network: str) -> None:
    """Raise UsageError if packets with so many lanes are longer than a network's MTU."""
    needed = packet_bytes(lanes)
    if needed > mtu:
        fewer = usual_lanes(lanes, mtu)
        raise UsageError(
            f"packets with {lanes} lanes need an MTU of at least {needed:,} bytes, and {network} has {mtu:,}: use "
            + (f"--lanes {fewer}, or a larger mtu" if fewer < lanes else "a larger mtu")
        )


@dataclass(frozen=True)
class CompiledProgram:
    """A compiled P4 program."""

    json: Path  # p4c's output for BMv2; the embedded engine reads the same file.
    p4info: Path  # The names and numbers of its tables, for P4Runtime.


def compiled_program(lanes: int) -> CompiledProgram:
    """Return the aggregation program with `lanes` values a packet.

    Raises ValueError if it is not built for that many. Raises ProgramMissingError if the files are not there. Says
    so where they are not those of the sources: `warn_if_stale`.
    """
    if lanes not in SOFTWARE_LANES:
        *others, last = map(str, SOFTWARE_LANES)
        raise ValueError(f"the program is built for {', '.join(others)} or {last} lanes, not {lanes}")
    stem = (BUILD if BUILD.is_dir() else INSTALLED) / f"netsum_v1model_{lanes}"
    program = CompiledProgram(stem.with_suffix(".json"), stem.with_suffix(".p4info.txtpb"))
    for file in (program.json, program.p4info, capabilities_file(program.json)):
        if not file.is_file():
            raise ProgramMissingError(
                f"{file} is missing: install netsum again, or run `make p4` in its source checkout (needs p4c)"
            )
    warn_if_stale(program.json)
    return program


def warn_if_stale(program: Path) -> None:
    """Say, once in a process, that a program of this checkout was compiled from other sources than those beside it."""
    if program.resolve().parent == BUILD:
        _warn(fault_of_build())


@cache
def _warn(fault: str) -> None:
    warning = f"{fault}; until then the program of p4/build runs as it is"
    if fault and not recorded(warning, logging.WARNING):
        print(f"netsum: {warning}", file=sys.stderr, flush=True)


@cache
def fault_of_build() -> str:
    """Return why compiled programs are not those of the P4 sources beside them, as p4/build.py says it; empty if they are.

    A wheel has no sources, and nothing to compare.
    """
    script = BUILD.parent / "build.py"
    if not script.is_file():
        return ""
    spec = spec_from_file_location("netsum_p4_build", script)
    assert spec is not None
    assert spec.loader is not None
    builder = module_from_spec(spec)
    spec.loader.exec_module(builder)
    try:
        builder.check_stamp()
    except builder.BuildError as fault:
        return str(fault)
    return ""
