"""Direct counters and meters as entities of their own, beside the table entries they belong to."""

from collections.abc import Iterator
from typing import Any

from netsum_common.p4rt import p4runtime_pb2
from sim.switch import TableEntry
from sim.switch.p4runtime.catalog import Table
from sim.switch.p4runtime.direct import DirectResources, Kind, check_kind, resource_id
from sim.switch.p4runtime.measures import refuse_colors
from sim.switch.p4runtime.status_errors import invalid
from sim.switch.p4runtime.tables import Tables


class DirectEntries:
    """The direct counters, or the direct meters, of a switch."""

    def __init__(self, tables: Tables, direct: DirectResources, kind: Kind) -> None:
        self._tables, self._direct, self._kind = tables, direct, kind

    def modify(self, message: Any) -> None:
        """Set the count or the rates of an entry; without rates everything is green."""
        asked = self._asked(message)
        check_kind(self._tables.table(asked), asked, self._kind)
        table, entry = self._tables.find(asked)
        if self._kind == "meter":
            self._direct.set_meter(table, entry, message.config if message.HasField("config") else None)
        elif message.HasField("data"):
            self._direct.set_counter(table, entry, message.data)

    def read(self, message: Any) -> Iterator[Any]:
        """Yield the count or the rates of one entry, of all of a table, or of all of all tables."""
        asked = self._asked(message)
        if asked.table_id:
            check_kind(self._tables.table(asked), asked, self._kind)
        read = self._direct.meter if self._kind == "meter" else self._direct.counter
        found = [
            (table, entry, read(table, entry))
            for table, entry in self._tables.selected(asked)
            if resource_id(table, self._kind)
        ]
        return (self._message(*each) for each in found)

    def _message(self, table: Table, entry: TableEntry, value: Any) -> Any:
        key = self._tables.key_message(table, entry)
        if self._kind == "meter":
            rates = p4runtime_pb2.DirectMeterEntry(table_entry=key, config=value)
            return p4runtime_pb2.Entity(direct_meter_entry=rates)
        count = p4runtime_pb2.DirectCounterEntry(table_entry=key, data=value)
        return p4runtime_pb2.Entity(direct_counter_entry=count)

    def _asked(self, message: Any) -> Any:
        """Return what says whose counter or meter is meant."""
        if self._kind == "meter":
            refuse_colors(message, "counter_data")
        if not message.HasField("table_entry"):
            raise invalid("table_entry is missing: it says whose counter or meter is meant")
        return message.table_entry
