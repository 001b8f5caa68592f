"""Direct counters and meters: those that belong to table entries and are made and removed with them."""

from copy import deepcopy
from typing import Any, Literal

from sim.switch import TableEntry
from sim.switch.control_plane import ControlPlane
from sim.switch.p4runtime.catalog import Catalog, Table
from sim.switch.p4runtime.measures import decode_count, decode_rates, encode_count, refuse_colors
from sim.switch.p4runtime.status_errors import invalid, unimplemented
from sim.switch.p4runtime.stores import EntityStore

Kind = Literal["counter", "meter"]
_Cell = tuple[str, object]


class DirectResources(EntityStore):
    """The direct counters and meters of a switch."""

    CHANGED = ("_configs",)

    def __init__(self, catalog: Catalog, switch: ControlPlane) -> None:
        self._catalog = catalog
        self._switch = switch
        # Rates are read back as they were written, which the engine's units do not keep to the last bit.
        self._configs: dict[_Cell, Any] = {}

    def check(self, message: Any, table: Table) -> None:
        """Refuse the `counter_data` and `meter_config` of a `TableEntry` that the table cannot have."""
        refuse_colors(message, "meter_counter_data")
        if message.HasField("counter_data"):
            check_kind(table, message, "counter")
            decode_count(message.counter_data, table.name)
        if message.HasField("meter_config"):
            check_kind(table, message, "meter")
            decode_rates(message.meter_config, table.name)

    def write(self, message: Any, table: Table, entry: TableEntry) -> None:
        """Set the resources as a written `TableEntry` says; no `meter_config` is everything green, as specified."""
        if message.HasField("counter_data"):
            self.set_counter(table, entry, message.counter_data)
        if table.meter_id:
            self.set_meter(table, entry, message.meter_config if message.HasField("meter_config") else None)

    def evict(self, table: Table, entry: TableEntry) -> None:
        """Drop the resources of an entry that is gone."""
        self._configs.pop(_cell(table, entry), None)

    def counter(self, table: Table, entry: TableEntry) -> Any:
        """Read the count of an entry as `CounterData`."""
        counter = self._catalog.direct_counters[table.counter_id]
        return encode_count(self._switch.direct_counter_read(table.name, entry), counter)

    def set_counter(self, table: Table, entry: TableEntry, data: Any) -> None:
        """Set the count of an entry."""
        self._switch.direct_counter_write(table.name, entry, *decode_count(data, table.name))

    def meter(self, table: Table, entry: TableEntry) -> Any | None:
        """Read the rates of an entry as `MeterConfig`; None if everything is green."""
        return self._configs.get(_cell(table, entry))

    def set_meter(self, table: Table, entry: TableEntry, config: Any | None) -> None:
        """Set the rates of an entry; None for everything green."""
        rates = None if config is None else decode_rates(config, table.name)
        self._switch.direct_meter_config(table.name, entry, rates)
        if config is None:
            self.evict(table, entry)
        else:
            self._configs[_cell(table, entry)] = deepcopy(config)


def resource_id(table: Table, kind: Kind) -> int:
    """Return the id of a table's direct counter or meter, or 0."""
    return table.counter_id if kind == "counter" else table.meter_id


def check_kind(table: Table, entry: Any, kind: Kind) -> None:
    """Refuse a table without a direct counter or meter, and the default entry, whose hits the switch does not measure."""
    if not resource_id(table, kind):
        raise invalid(f"{table.name} has no direct {kind}")
    if entry.is_default_action:
        raise unimplemented(f"{table.name}: a {kind} is for hits of entries, not of the default one")


def _cell(table: Table, entry: TableEntry) -> _Cell:
    return table.name, entry.identity
