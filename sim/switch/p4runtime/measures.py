"""Counter values and meter rates as messages."""

from typing import Any

from netsum_common.p4rt import p4runtime_pb2
from sim.switch.p4runtime.catalog import Array
from sim.switch.p4runtime.status_errors import invalid, unimplemented

Rates = tuple[tuple[float, int], tuple[float, int]]
"""As the engine takes them: (units per microsecond, burst), committed before peak."""

MAX_BURST = (1 << 32) - 1
_UNLIMITED = -1


def encode_count(counts: tuple[int, int], counter: Array) -> Any:
    """Write an engine's (packets, bytes) as `CounterData`, only in the counter's units."""
    data = p4runtime_pb2.CounterData()
    if counter.packets:
        data.packet_count = counts[0]
    if counter.bytes:
        data.byte_count = counts[1]
    return data


def decode_count(data: Any, what: str) -> tuple[int, int]:
    """Read `CounterData` as (packets, bytes). Raises P4RuntimeError: INVALID_ARGUMENT: a negative count."""
    if data.packet_count < 0 or data.byte_count < 0:
        raise invalid(f"{what}: counts must not be negative")
    return data.packet_count, data.byte_count


def decode_rates(config: Any, what: str) -> Rates:
    """Read a `MeterConfig`, rates in units per second.

    As on BMv2, -1 stands for no limit.

    Raises P4RuntimeError: INVALID_ARGUMENT or UNIMPLEMENTED: not the rates of a two rate three color meter.
    """
    for name in ("cir", "cburst", "pir", "pburst"):
        if getattr(config, name) < _UNLIMITED:
            raise invalid(f"{what}: {name} must not be negative")
    if config.eburst:
        raise invalid(f"{what}: eburst is for meters with a single rate; this one has two")
    if max(config.cburst, config.pburst) > MAX_BURST:
        raise unimplemented(f"{what}: bursts above {MAX_BURST} are not supported")
    committed, peak = _rate(config.cir), _rate(config.pir)
    if committed > peak:
        raise invalid(f"{what}: the committed rate {config.cir} is above the peak rate {config.pir}")
    return (committed, _burst(config.cburst)), (peak, _burst(config.pburst))


def refuse_colors(message: Any, field: str) -> None:
    """Refuse counts by meter color, which the switch does not keep."""
    if message.HasField(field):
        raise unimplemented(f"the switch does not count packets by meter color; leave {field} unset")


def _rate(per_second: int) -> float:
    return 1e18 if per_second == _UNLIMITED else per_second / 1e6


def _burst(burst: int) -> int:
    return MAX_BURST if burst == _UNLIMITED else burst
