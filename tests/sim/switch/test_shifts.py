"""Shifts by an amount that a packet carries: less than the width of a value, exactly the width, and more."""

from pathlib import Path

import pytest

from sim.switch import Packets, Switch, load_program
from sim.switch.bpf.switch import XdpSwitch
from tests.dataplane.dataplane import xdp
from tests.sim.switch.minimal import document, field, hexstr, op, write

ENGINES = [
    pytest.param(Switch, id="embedded"),
    pytest.param(
        XdpSwitch,
        id="kernel",
        marks=[pytest.mark.root, pytest.mark.skipif(xdp.why_not() is not None, reason=str(xdp.why_not()))],
    ),
]
WIDTHS = (8, 16, 32, 64)


def shifting(width: int) -> dict[str, object]:
    """A packet's value of a width, shifted to the left and to the right by its last byte."""
    value, amount = field("i", "value"), field("i", "amount")
    all_bits = hexstr((1 << width) - 1)
    return document(
        [["value", width, False], ["amount", 8, False], ["rest", 128, False]],
        [["left", width, False], ["right", width, False], ["rest", 128, False]],
        [
            {"op": "assign", "parameters": [field("o", "left"), op("&", op("<<", value, amount), all_bits)]},
            {"op": "assign", "parameters": [field("o", "right"), op("&", op(">>", value, amount), all_bits)]},
        ],
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_value_is_shifted_by_any_amount(
    engine: type[Switch] | type[XdpSwitch], width: int, tmp_path: Path
) -> None:
    switch = engine(load_program(write(shifting(width), tmp_path / "shifting.json")))
    size = width // 8
    value = int.from_bytes(b"\xa5\x3c\x96\xff\x81\x42\x18\xe7"[:size], "big")
    for amount in (0, 1, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 127, 128, 255):
        frame = value.to_bytes(size, "big") + bytes([amount]) + bytes(16)
        packets = Packets.of([(0, frame)])
        ((_, left),) = switch.inject(packets, 0) if isinstance(switch, Switch) else switch.inject(packets)
        expected = (value << amount) % (1 << width), value >> amount
        assert (
            int.from_bytes(left[:size], "big"),
            int.from_bytes(left[size : 2 * size], "big"),
        ) == expected, amount
