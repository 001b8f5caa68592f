"""Direct counters and meters as entities of their own, beside the table entries they belong to."""

from collections.abc import Iterator
from typing import Any

from netsum_common.p4rt import p4runtime_pb2
from sim.switch import TableEntry
from sim.switch.p4runtime.catalog import Table
from sim.switch.p4runtime.direct import DirectResources, check_kind
from sim.switch.p4runtime.measures import refuse_colors
from sim.switch.p4runtime.status_errors import invalid
from sim.switch.p4runtime.tables import Tables


class DirectCounters:
    """The direct counters of a switch."""

    def __init__(self, tables: Tables, direct: DirectResources) -> None:
        self._tables = tables
        self._direct = direct

    def modify(self, message: Any) -> None:
        """Set the count of an entry."""
        asked = _table_entry(message)
        check_kind(self._tables.table(asked), asked, "counter")
        table, entry = self._tables.find(asked)
        if message.HasField("data"):
            self._direct.set_counter(table, entry, message.data)

    def read(self, message: Any) -> Iterator[Any]:
        """Yield the count of one entry, of all of a table, or of all of all tables."""
        asked = _table_entry(message)
        if asked.table_id:
            check_kind(self._tables.table(asked), asked, "counter")
        found = [
            (table, entry, self._direct.counter(table, entry))
            for table, entry in self._tables.selected(asked)
            if table.counter_id
        ]
        return (self._message(*each) for each in found)

    def _message(self, table: Table, entry: TableEntry, data: Any) -> Any:
        key = self._tables.key_message(table, entry)
        answer = p4runtime_pb2.DirectCounterEntry(table_entry=key, data=data)
        return p4runtime_pb2.Entity(direct_counter_entry=answer)


class DirectMeters:
    """The direct meters of a switch."""

    def __init__(self, tables: Tables, direct: DirectResources) -> None:
        self._tables = tables
        self._direct = direct

    def modify(self, message: Any) -> None:
        """Set the rates of an entry; without rates everything is green."""
        refuse_colors(message, "counter_data")
        asked = _table_entry(message)
        check_kind(self._tables.table(asked), asked, "meter")
        table, entry = self._tables.find(asked)
        self._direct.set_meter(table, entry, message.config if message.HasField("config") else None)

    def read(self, message: Any) -> Iterator[Any]:
        """Yield the rates of one entry, of all of a table, or of all of all tables."""
        refuse_colors(message, "counter_data")
        asked = _table_entry(message)
        if asked.table_id:
            check_kind(self._tables.table(asked), asked, "meter")
        found = [
            (table, entry, self._direct.meter(table, entry))
            for table, entry in self._tables.selected(asked)
            if table.meter_id
        ]
        return (self._message(*each) for each in found)

    def _message(self, table: Table, entry: TableEntry, config: Any | None) -> Any:
        key = self._tables.key_message(table, entry)
        answer = p4runtime_pb2.DirectMeterEntry(table_entry=key, config=config)
        return p4runtime_pb2.Entity(direct_meter_entry=answer)


def _table_entry(message: Any) -> Any:
    if not message.HasField("table_entry"):
        raise invalid("table_entry is missing: it says whose counter or meter is meant")
    return message.table_entry
