"""A program with its P4Info, running, and everything that controllers have put into it."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from netsum_common.errors import NetsumError
from netsum_common.p4rt import p4runtime_pb2
from sim.switch import (
    DuplicateError,
    EntryError,
    FullError,
    InUseError,
    SwitchError,
    UnknownNameError,
    UnsupportedProgramError,
    ir,
    load_program,
)
from sim.switch.control_plane import ControlPlane
from sim.switch.p4runtime.agreement import counting_hits, reconcile
from sim.switch.p4runtime.arrays import Counters, Meters, Registers
from sim.switch.p4runtime.catalog import Catalog
from sim.switch.p4runtime.device_config import device_data
from sim.switch.p4runtime.digests import DigestLists
from sim.switch.p4runtime.direct import DirectResources
from sim.switch.p4runtime.direct_entries import DirectEntries
from sim.switch.p4runtime.profiles import ActionProfiles
from sim.switch.p4runtime.replication import CloneSessions, MulticastGroups
from sim.switch.p4runtime.status_errors import Code, P4RuntimeError, invalid, unimplemented
from sim.switch.p4runtime.stores import EntityStore
from sim.switch.p4runtime.tables import Tables
from sim.switch.p4runtime.value_sets import ValueSets

_Update = p4runtime_pb2.Update
_NAMES = {_Update.INSERT: "insert", _Update.MODIFY: "modify", _Update.DELETE: "delete"}

_CODES: tuple[tuple[type[SwitchError], Code], ...] = (
    (DuplicateError, Code.ALREADY_EXISTS),
    (FullError, Code.RESOURCE_EXHAUSTED),
    (InUseError, Code.FAILED_PRECONDITION),
    (EntryError, Code.INVALID_ARGUMENT),
    (UnknownNameError, Code.NOT_FOUND),
)
"""Status codes of the engine's errors; the first that fits."""


class ForwardingPipeline:
    """A running program and the entities of P4Runtime that belong to it.

    `config`: a `ForwardingPipelineConfig`: the P4Info, and BMv2 JSON as device configuration. Raises P4RuntimeError:
    INVALID_ARGUMENT or UNIMPLEMENTED: the program is not supported, or is not the P4Info's.
    """

    def __init__(
        self, config: Any, clock_ns: Callable[[], int], engine: Callable[[ir.Program], ControlPlane]
    ) -> None:
        self.config = p4runtime_pb2.ForwardingPipelineConfig()
        self.config.CopyFrom(config)
        self.catalog = Catalog(config.p4info)
        program = _load(config.p4_device_config)
        reconcile(self.catalog, program)
        try:
            self.switch = engine(counting_hits(self.catalog, program))
        except NetsumError as error:
            raise invalid(f"the program cannot run here: {error}") from None
        self.digests = DigestLists(self.catalog)
        profiles = ActionProfiles(self.catalog, self.switch)
        direct = DirectResources(self.catalog, self.switch)
        self.tables = Tables(self.catalog, self.switch, profiles, direct, clock_ns)
        # The holder of each form's entities, and the end of its methods' names.
        self._entities: dict[str, tuple[Any, str]] = {
            "table_entry": (self.tables, ""),
            "action_profile_member": (profiles, "_member"),
            "action_profile_group": (profiles, "_group"),
            "counter_entry": (Counters(self.catalog, self.switch), ""),
            "direct_counter_entry": (DirectEntries(self.tables, direct, "counter"), ""),
            "meter_entry": (Meters(self.catalog, self.switch), ""),
            "direct_meter_entry": (DirectEntries(self.tables, direct, "meter"), ""),
            "register_entry": (Registers(self.catalog, self.switch), ""),
            "multicast_group_entry": (MulticastGroups(self.switch), ""),
            "clone_session_entry": (CloneSessions(self.switch), ""),
            "value_set_entry": (ValueSets(self.catalog, self.switch), ""),
            "digest_entry": (self.digests, ""),
        }
        held = {id(store): store for store, _ in self._entities.values() if isinstance(store, EntityStore)}
        self._stores: list[EntityStore] = [*held.values(), direct, self.tables.idle_watch]

    def same_program(self, other: "ForwardingPipeline") -> bool:
        """Whether both have the same P4Info and the same code."""
        same_code = self.switch.program.fingerprint == other.switch.program.fingerprint
        return same_code and self.config.p4info == other.config.p4info

    def write(self, update: Any) -> None:
        """Carry out one `Update`; `P4RuntimeError` if it cannot be carried out; nothing has changed."""
        form, entity = _unwrapped(update.entity)
        if form not in self._entities:
            raise unimplemented(f"writing {form} is not supported; v1model has no such extern")
        try:
            handle = self._method(form, _NAMES.get(update.type, ""))
            if handle is None:
                raise _wrong_type(update.type, form)
            handle(entity)
        except SwitchError as error:
            code = next((code for kind, code in _CODES if isinstance(error, kind)), Code.UNKNOWN)
            raise P4RuntimeError(code, str(error)) from None

    def read(self, entity: Any) -> Iterator[Any]:
        """Find the entities that one selects, as they are now; the iterator only writes them down."""
        form, wanted = _unwrapped(entity)
        read = self._method(form, "read")
        if read is None:
            raise unimplemented(f"reading {form} is not supported; v1model has no such extern")
        found: Iterator[Any] = read(wanted)
        return found

    def _method(self, form: str, name: str) -> Callable[[Any], Any] | None:
        """Return what inserts, modifies, deletes or reads entities of a form; None if nothing does."""
        store, suffix = self._entities.get(form, (None, ""))
        return getattr(store, f"{name}{suffix}", None)

    def save(self) -> Any:
        """Return what `restore` takes: everything the control plane and packets have done."""
        return self.switch.save_state(), [store.save() for store in self._stores]

    def restore(self, saved: Any) -> None:
        """Restore a saved state, which cannot be used afterwards."""
        state, kept = saved
        self.switch.restore_state(state)
        for store, each in zip(self._stores, kept, strict=True):
            store.restore(each)


def _load(compiled: bytes) -> ir.Program:
    """Load BMv2 JSON, bare or in a `P4DeviceConfig`; the engine reads files."""
    compiled = device_data(compiled)
    with tempfile.TemporaryDirectory(prefix="netsum-") as folder:
        path = Path(folder, "p4_device_config.json")
        path.write_bytes(compiled)
        try:
            return load_program(path)
        except UnsupportedProgramError as error:
            features = "; ".join(error.features)
            raise invalid(f"the program uses what the embedded switch does not support: {features}") from None
        except UnicodeDecodeError:
            raise invalid("the device configuration is not BMv2 JSON; compile with p4c-bm2-ss") from None


def _unwrapped(entity: Any) -> tuple[str, Any]:
    """Find the form of an entity and the message in it, that of the replication engine unpacked."""
    form = entity.WhichOneof("entity")
    if form is None:
        raise invalid("the entity is empty; set one of its fields")
    message = getattr(entity, form)
    if form == "packet_replication_engine_entry":
        form = message.WhichOneof("type")
        if form is None:
            raise invalid(
                "packet_replication_engine_entry is empty; set a multicast group or a clone session"
            )
        message = getattr(message, form)
    return form, message


def _wrong_type(update_type: int, form: str) -> P4RuntimeError:
    if update_type == _Update.UNSPECIFIED:
        return invalid("the update's type is not set; use INSERT, MODIFY or DELETE")
    return invalid(f"{form} can only be modified; use MODIFY")
