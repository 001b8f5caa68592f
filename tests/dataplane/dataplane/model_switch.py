"""Tofino's ASIC model, or its substitute, behind the embedded switch's P4Runtime server, for the controller's own code.

The server, its arbitration and its checks against the P4Info are those of `sim.switch.p4runtime`. `ModelSwitch` replaces the
embedded engine and passes writes on to a switch under test. The program is the one that was pushed.
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from google.protobuf import text_format

from netsum_common.p4rt import p4info_pb2
from sim.switch import Digest, DuplicateError, Exact, Lpm, Packets, TableEntry, UnknownNameError, ir
from sim.switch.control_plane import ControlPlane
from sim.switch.p4runtime import P4RuntimeServer, pipeline
from sim.switch.p4runtime.agreement import counting_hits, reconcile
from sim.switch.ports import UdpPorts
from sim.switch.ports.chassis import Chassis
from tests.controller.test_tofino_target import stratum_message

from .target import Entry, Target

Identity = tuple[tuple[Any, ...], int]


@dataclass(frozen=True)
class PushedProgram:
    """A program as the controller packs it for Stratum."""

    context: bytes
    binary: bytes
    digests: tuple[()] = ()

    @property
    def fingerprint(self) -> str:
        """Names the code."""
        return hashlib.sha256(self.binary + self.context).hexdigest()


Make = Callable[[PushedProgram], Target]


def unpacked(config: bytes) -> PushedProgram:
    """Read `BfPipelineConfig`."""
    message: Any = stratum_message()
    message.ParseFromString(config)
    (profile,) = message.profiles
    return PushedProgram(profile.context, profile.binary)


class ModelSwitch:
    """The interface of an engine for `sim.switch.p4runtime`, as far as the controller needs it.

    Parameters
    ----------
    program
        The pushed program.
    model
        The switch under test that runs the program.
    p4info
        The names of key fields and of parameters.
    """

    def __init__(self, program: PushedProgram, model: Target, p4info: Any) -> None:
        self.program = program
        self.model = model
        self.statistics: dict[str, int] = {}
        self.writes = 0
        """Number of table entries, other than default ones."""
        self._keys = {each.preamble.name: [key.name for key in each.match_fields] for each in p4info.tables}
        self._params = {each.preamble.name: [param.name for param in each.params] for each in p4info.actions}
        self._entries: dict[str, dict[Identity, TableEntry]] = {name: {} for name in self._keys}
        self._defaults: dict[str, tuple[str, tuple[int, ...]]] = {}
        self._groups: set[int] = set()
        self._written: dict[tuple[str, int], int] = {}

    def inject(self, packets: Packets, now_ns: int) -> Packets:
        """Send packets through the model."""
        del now_ns
        return Packets.of(self.model.send(list(packets)))

    def drain_digests(self) -> list[Digest]:
        """Return none: the program has none."""
        return []

    @property
    def tables(self) -> list[str]:
        """The program's tables."""
        return list(self._keys)

    @property
    def actions(self) -> list[str]:
        """The program's actions."""
        return list(self._params)

    # Tables.

    def table_insert(self, table: str, entry: TableEntry) -> None:
        """Add an entry."""
        if (entry.key, entry.priority) in self._entries[table]:
            raise DuplicateError(f"{table} has such an entry")
        self.model.insert([self._described(table, entry)])
        self._keep(table, entry)

    def table_modify(self, table: str, entry: TableEntry) -> None:
        """Replace an entry's action."""
        self.table_delete(table, entry)
        self.table_insert(table, entry)

    def table_delete(self, table: str, entry: TableEntry) -> None:
        """Remove an entry."""
        held = self.table_entry(table, entry.key, entry.priority)
        self.model.delete([self._described(table, held)])
        del self._entries[table][held.key, held.priority]
        self.writes += 1

    def table_entry(self, table: str, key: tuple[Any, ...], priority: int = 0) -> TableEntry:
        """Return an entry."""
        try:
            return self._entries[table][key, priority]
        except KeyError:
            raise UnknownNameError(f"{table} has no such entry") from None

    def table_entries(self, table: str) -> list[TableEntry]:
        """Return the controller's entries of a table."""
        return list(self._entries[table].values())

    def table_set_default(self, table: str, action: str, params: Sequence[int] = ()) -> None:
        """Set the action of a miss."""
        self.model.set_default(_last(table), _last(action), self._named(action, params))
        self._defaults[table] = action, tuple(params)

    def table_default(self, table: str) -> tuple[str, tuple[int, ...]] | None:
        """Return the action of a miss, if it was written."""
        return self._defaults.get(table)

    def direct_counter_read(self, table: str, entry: TableEntry) -> tuple[int, int]:
        """Return 0: the ASIC model's harness reads counters by index only."""
        del table, entry
        return 0, 0

    # Groups and counters.

    def mcast_set(self, group: int, replicas: Sequence[tuple[int, int]]) -> None:
        """Make or replace a multicast group."""
        if group in self._groups:
            self.model.delete_group(group)
        self.model.set_group(group, replicas)
        self._groups.add(group)

    def mcast_delete(self, group: int) -> None:
        """Remove a multicast group."""
        self.model.delete_group(group)
        self._groups.remove(group)

    def counter_read(self, name: str, index: int) -> tuple[int, int]:
        """Return a counter's packets."""
        return self._counted(name, index) - self._written.get((name, index), 0), 0

    def counter_write(self, name: str, index: int, packets: int, size: int) -> None:
        """Set a counter: the harness cannot, so its present count is subtracted later."""
        del size
        self._written[name, index] = self._counted(name, index) - packets

    def _counted(self, name: str, index: int) -> int:
        return self.model.counters([_last(name)], index)[_last(name)]

    def _keep(self, table: str, entry: TableEntry) -> None:
        self._entries[table][entry.key, entry.priority] = entry
        self.writes += 1

    def _described(self, table: str, entry: TableEntry) -> Entry:
        key: dict[str, int | tuple[int, int]] = {}
        for name, match in zip(self._keys[table], entry.key, strict=True):
            if isinstance(match, Lpm):
                key[name] = match.value, match.prefix_length
            else:
                assert isinstance(match, Exact), match
                key[name] = match.value
        return Entry(_last(table), key, _last(entry.action), self._named(entry.action, entry.params))

    def _named(self, action: str, params: Sequence[int]) -> Mapping[str, int]:
        return dict(zip(self._params[action], params, strict=True))


def _last(name: str) -> str:
    return name.rpartition(".")[2]


class ModelChassis(Chassis):
    """A place for what `make` makes of a program; `p4info` is that of the programs it will be given."""

    def __init__(self, ports: UdpPorts, p4info: Path, make: Make) -> None:
        super().__init__(ports)
        self._make = make
        self._p4info = text_format.Parse(p4info.read_text(), p4info_pb2.P4Info())
        self.made: list[ModelSwitch] = []

    @property
    def switch(self) -> ModelSwitch:
        """The running program."""
        return self.made[-1]

    def engine(self, program: ir.Program, cache_dir: Path | None) -> ControlPlane:
        del cache_dir
        pushed = cast(PushedProgram, program)
        self.made.append(ModelSwitch(pushed, self._make(pushed), self._p4info))
        return cast(ControlPlane, self.made[-1])


@contextlib.contextmanager
def model_server(ports: UdpPorts, p4info: Path, make: Make, address: str) -> Iterator[ModelChassis]:
    """Serve P4Runtime at an address, for a switch that has no program yet."""
    chassis = ModelChassis(ports, p4info, make)
    with pytest.MonkeyPatch.context() as patch:
        load = pipeline._load

        def pushed(program: Any) -> bool:
            return isinstance(program, PushedProgram)

        # BMv2's JSON is for what stands for the model: an embedded switch with a server of its own.
        patch.setattr(pipeline, "_load", lambda code: load(code) if code[:1] == b"{" else unpacked(code))
        patch.setattr(
            pipeline, "reconcile", lambda info, code: None if pushed(code) else reconcile(info, code)
        )
        patch.setattr(
            pipeline, "counting_hits", lambda info, code: code if pushed(code) else counting_hits(info, code)
        )
        try:
            with P4RuntimeServer(chassis, address):
                yield chassis
        finally:
            for each in chassis.made:
                each.model.close()
