"""Arrays that are read and written by index: counters, meters and registers."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from netsum_common.p4rt import p4data_pb2, p4runtime_pb2
from sim.switch.control_plane import ControlPlane
from sim.switch.p4runtime import bytestrings
from sim.switch.p4runtime.catalog import Array, Catalog, asked, lookup
from sim.switch.p4runtime.measures import decode_count, decode_rates, encode_count, refuse_colors
from sim.switch.p4runtime.status_errors import invalid, out_of_range
from sim.switch.p4runtime.stores import EntityStore
from sim.switch.table_layout import split


class Counters:
    """The indirect counters of a switch."""

    def __init__(self, catalog: Catalog, switch: ControlPlane) -> None:
        self._catalog = catalog
        self._switch = switch

    def modify(self, message: Any) -> None:
        """Set one count, or all of a counter if no index is given."""
        _refuse_direct(self._catalog.direct_counters, message.counter_id, "Counter")
        counter = lookup(self._catalog.counters, message.counter_id, "counter")
        indices = _indices(message, counter)
        if not message.HasField("data"):
            return
        packets, size = decode_count(message.data, counter.name)
        for index in indices:
            self._switch.counter_write(counter.name, index, packets, size)

    def read(self, message: Any) -> Iterator[Any]:
        """Yield one count, all of a counter, or all of all counters."""
        _refuse_direct(self._catalog.direct_counters, message.counter_id, "Counter")
        found = [
            (counter, index, self._switch.counter_read(counter.name, index))
            for counter in asked(self._catalog.counters, message.counter_id, "counter")
            for index in _indices(message, counter)
        ]
        return (self._message(*each) for each in found)

    @staticmethod
    def _message(counter: Array, index: int, counts: tuple[int, int]) -> Any:
        entry = p4runtime_pb2.CounterEntry(counter_id=counter.id, data=encode_count(counts, counter))
        entry.index.index = index
        return p4runtime_pb2.Entity(counter_entry=entry)


class Meters(EntityStore):
    """The indirect meters of a switch."""

    CHANGED = ("_configs",)

    def __init__(self, catalog: Catalog, switch: ControlPlane) -> None:
        self._catalog = catalog
        self._switch = switch
        # Rates are read back as they were written, which the engine's units do not keep to the last bit.
        self._configs: dict[tuple[int, int], Any] = {}

    def modify(self, message: Any) -> None:
        """Set the rates of one cell, or of all if no index is given; without rates everything is green."""
        _refuse_direct(self._catalog.direct_meters, message.meter_id, "Meter")
        meter = lookup(self._catalog.meters, message.meter_id, "meter")
        indices = _indices(message, meter)
        refuse_colors(message, "counter_data")
        rates = decode_rates(message.config, meter.name) if message.HasField("config") else None
        for index in indices:
            self._switch.meter_config(meter.name, index, rates)
            if rates is None:
                self._configs.pop((meter.id, index), None)
            else:
                self._configs[meter.id, index] = deepcopy(message.config)

    def read(self, message: Any) -> Iterator[Any]:
        """Yield the rates of one cell, all of a meter, or all of all meters."""
        refuse_colors(message, "counter_data")
        _refuse_direct(self._catalog.direct_meters, message.meter_id, "Meter")
        found = []
        for meter in asked(self._catalog.meters, message.meter_id, "meter"):
            for index in _indices(message, meter):
                entry = p4runtime_pb2.MeterEntry(
                    meter_id=meter.id, config=self._configs.get((meter.id, index))
                )
                entry.index.index = index
                found.append(p4runtime_pb2.Entity(meter_entry=entry))
        return iter(found)


class Registers:
    """The registers of a switch. BMv2 can neither read nor write them by P4Runtime."""

    def __init__(self, catalog: Catalog, switch: ControlPlane) -> None:
        self._catalog = catalog
        self._switch = switch

    def modify(self, message: Any) -> None:
        """Set one cell, or all of a register if no index is given."""
        register = lookup(self._catalog.registers, message.register_id, "register")
        indices = _indices(message, register)
        form = message.data.WhichOneof("data")
        if form != "bitstring":
            raise invalid(f"{register.name}: expected data of form bitstring, not {form or 'nothing'}")
        decode = bytestrings.decode_signed if register.signed else bytestrings.decode
        value = decode(message.data.bitstring, register.bitwidth, register.name) & (
            (1 << register.bitwidth) - 1
        )
        cells = self._switch.register_view(register.name)
        for index in indices:
            cells[index] = value if cells.ndim == 1 else split(value, cells.shape[1])

    def read(self, message: Any) -> Iterator[Any]:
        """Yield one cell, all of a register, or all of all registers."""
        found = []
        for register in asked(self._catalog.registers, message.register_id, "register"):
            indices = _indices(message, register)
            cells = self._switch.register_view(register.name)[indices.start : indices.stop]
            found.append((register, indices, cells.copy()))
        return (
            self._message(register, index, cell)
            for register, indices, cells in found
            for index, cell in zip(indices, cells.tolist(), strict=True)
        )

    @staticmethod
    def _message(register: Array, index: int, cell: int | list[int]) -> Any:
        value = cell if isinstance(cell, int) else sum(word << (64 * n) for n, word in enumerate(cell))
        if register.signed:
            negative = value >> (register.bitwidth - 1)
            data = bytestrings.encode_signed(value - (negative << register.bitwidth))
        else:
            data = bytestrings.encode(value)
        entry = p4runtime_pb2.RegisterEntry(register_id=register.id, data=p4data_pb2.P4Data(bitstring=data))
        entry.index.index = index
        return p4runtime_pb2.Entity(register_entry=entry)


def _refuse_direct(direct: Mapping[int, Array], identifier: int, kind: str) -> None:
    if identifier in direct:
        raise invalid(f"{kind}Entry is for indirect {kind.lower()}s; use Direct{kind}Entry for a direct one")


def _indices(message: Any, array: Array) -> range:
    """Find the cells a message means: one, or all if it has no index."""
    if not message.HasField("index"):
        return range(array.size)
    index = message.index.index
    if index < 0:
        raise invalid(f"{array.name}: an index must not be negative")
    if index >= array.size:
        raise out_of_range(f"{array.name} has the indices 0 to {array.size - 1}, not {index}")
    return range(index, index + 1)
