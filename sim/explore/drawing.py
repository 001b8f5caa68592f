"""A schedule as a sequence diagram: time runs down, a line a packet from where it was sent to where it arrived."""

from html import escape

from host_agent.wire.header import FRAME_HEADERS_BYTES
from sim.explore.engine import step_codes as codes
from sim.explore.engine.world import DOWN, UP
from sim.explore.shape import ScenarioShape
from sim.explore.story import Packet, StoryEvent, sentence

_COLUMN, _ROW, _TOP, _LEFT = 230, 34, 70, 110
_LETTER, _LINE = 5.6, 12  # Width of a letter and height of a line of a label, in pixels.
_SHARES = (0.5, 0.75, 0.25)
_Box = tuple[float, float, int]
_HALO = ' stroke="white" stroke-width="3" paint-order="stroke"'


def text(events: list[StoryEvent], shape: ScenarioShape, title: str, ending: str) -> str:
    """Return a schedule as numbered lines."""
    lines = [title, ""]
    lines += [f"{number:3}. {sentence(event, shape)}" for number, event in enumerate(events, 1)]
    return "\n".join([*lines, "", ending, ""])


def svg(events: list[StoryEvent], shape: ScenarioShape, title: str, ending: str) -> str:
    """Return a schedule as an SVG document.

    A switch is in the middle of its children. A packet that never arrives ends in a cross.
    """
    hosts, columns = shape.hosts, shape.hosts + shape.switches
    places = {actor: place for place, actor in enumerate(shape.in_order())}
    width = 2 * _LEFT + _COLUMN * (columns - 1)
    height = _TOP + _ROW * (len(events) + 3)

    def x(actor: int) -> int:
        return _LEFT + _COLUMN * places[actor]

    def y(row: float) -> float:
        return _TOP + _ROW * row

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        "<defs>"
        '<marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{width / 2}" y="20" font-size="14" text-anchor="middle">{escape(title)}</text>',
    ]
    for actor in range(columns):
        name = shape.name(actor)
        parts.append(f'<text x="{x(actor)}" y="45" font-weight="bold" text-anchor="middle">{name}</text>')
        parts.append(
            f'<line x1="{x(actor)}" y1="55" x2="{x(actor)}" y2="{y(len(events) + 1)}" stroke="#bbb"/>'
        )
    names, boxes = [], []
    for row, event in enumerate(events):
        if event.step.packet is None or event.step.kind == codes.LOSE:
            actor = event.step.host + (hosts if event.step.kind in (codes.CONTROL, codes.RESTART) else 0)
            line = sentence(event, shape)
            said = line.partition("  ⇒")[0].partition(": ")[2] or line
            names.append(f'<circle cx="{x(actor)}" cy="{y(row)}" r="3"/>')
            names.append(
                f'<text x="{x(actor) + 6}" y="{y(row) + 4}" fill="#36c"{_HALO}>{escape(said)}</text>'
            )
            boxes.append((x(actor) + 6 + _LETTER * len(said) / 2, y(row) + 4, len(said)))
    for row, source, target, packet, arrived in _arrows(events, shape):
        end = arrived if arrived is not None else row + 0.7
        x1, x2 = float(x(source)), float(x(target))
        if arrived is None:
            x2 = x1 + (x2 - x1) * 0.45
        colour = "black" if arrived is not None else "#c44"
        head = ' marker-end="url(#a)"' if arrived is not None else ""
        parts.append(
            f'<line x1="{x1}" y1="{y(row)}" x2="{x2:.0f}" y2="{y(end):.0f}" stroke="{colour}"{head}/>'
        )
        if arrived is None:
            parts.append(f'<text x="{x2:.0f}" y="{y(end) + 4:.0f}" fill="{colour}">&#215;</text>')
        label = packet.text()
        middle = (x1 + (x2 if arrived is not None else float(x(target)))) / 2
        box = _free_place(middle, [y(row + (end - row) * share) - 3 for share in _SHARES], len(label), boxes)
        boxes.append(box)
        names.append(
            f'<text x="{box[0]:.0f}" y="{box[1]:.0f}" fill="{colour}" text-anchor="middle"{_HALO}>{escape(label)}</text>'
        )
    parts += names
    parts.append(
        f'<text x="{width / 2}" y="{y(len(events) + 1.8):.0f}" fill="#c00" text-anchor="middle">{escape(ending)}</text>'
    )
    return "\n".join([*parts, "</svg>", ""])


def _free_place(middle: float, heights: list[float], letters: int, boxes: list[_Box]) -> _Box:
    """Return the first place along a packet's way, or beside that, where its label covers no other."""
    shifts = (0.0, -_ROW / 3, _ROW / 3, -2 * _ROW / 3, 2 * _ROW / 3, -_ROW, _ROW)
    places = [(middle, height + shift, letters) for shift in shifts for height in heights]
    return next((place for place in places if not any(overlapping(place, box) for box in boxes)), places[0])


def overlapping(one: _Box, other: _Box) -> bool:
    """Whether two labels, each by its middle, its height and its number of letters, cover one another."""
    return abs(one[0] - other[0]) < _LETTER * (one[2] + other[2]) / 2 and abs(one[1] - other[1]) < _LINE


def _arrows(events: list[StoryEvent], shape: ScenarioShape) -> list[tuple[int, int, int, Packet, int | None]]:
    """Return (row sent, from, to, packet, row it arrived) for each packet that was sent and each arrival."""
    arrows: list[tuple[int, int, int, Packet, int | None]] = []
    sent: dict[tuple[int, int, bytes], int] = {}
    arrived: set[tuple[int, int, bytes]] = set()
    delivered = [
        (event.step.packet.way, event.step.packet.host, _plain(event.step.packet))
        for event in events
        if event.step.packet is not None and event.step.kind != codes.LOSE
    ]
    for row, event in enumerate(events):
        packet = event.step.packet
        if packet is not None and event.step.kind != codes.LOSE:
            key = packet.way, packet.host, _plain(packet)
            arrows.append((sent.get(key, row), *shape.ends(packet.way, packet.host), packet, row))
            arrived.add(key)
        for each in event.sent:
            key = each.way, each.host, _plain(each)
            sent.setdefault(key, row)
            if key not in delivered:
                arrows.append((row, *shape.ends(each.way, each.host), each, None))
    return arrows


def _plain(packet: Packet) -> bytes:
    """Return a frame without the number of a PROBE, which labels stand for."""
    at = FRAME_HEADERS_BYTES + 16
    return packet.frame[:at] + packet.frame[at + 2 :] if packet.way in (UP, DOWN) else packet.frame
