"""A schedule as a sequence diagram: time runs down, a line a packet from where it was sent to where it arrived."""

from __future__ import annotations

from html import escape

from sim.explore.engine import step_codes as codes
from sim.explore.engine.world import DOWN, UP
from sim.explore.shape import Shape
from sim.explore.story import Event, Packet, sentence

__all__ = ["svg", "text"]

_COLUMN, _ROW, _TOP, _LEFT = 230, 34, 70, 110
_HALO = ' stroke="white" stroke-width="3" paint-order="stroke"'


def text(events: list[Event], shape: Shape, title: str, ending: str) -> str:
    """Return a schedule as numbered lines."""
    lines = [title, ""]
    lines += [f"{number:3}. {sentence(event, shape)}" for number, event in enumerate(events, 1)]
    return "\n".join([*lines, "", ending, ""])


def svg(events: list[Event], shape: Shape, title: str, ending: str) -> str:
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
    names = []
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
        # A packet that was under way for long is named where it arrives, so that names of others do not cover it.
        share = 0.5 if arrived is None or end - row <= 2 else 0.75
        at = (x1 + x2) / 2 if arrived is not None else (x1 + float(x(target))) / 2
        names.append(
            f'<text x="{at:.0f}" y="{y(row + (end - row) * share) - 3:.0f}" fill="{colour}" text-anchor="middle"{_HALO}>'
            f"{escape(packet.text())}</text>"
        )
    parts += names
    for row, event in enumerate(events):
        if event.step.packet is None or event.step.kind == codes.LOSE:
            actor = event.step.host + (hosts if event.step.kind in (codes.CONTROL, codes.RESTART) else 0)
            told = sentence(event, shape)
            said = told.partition("  ⇒")[0].partition(": ")[2] or told
            parts.append(f'<circle cx="{x(actor)}" cy="{y(row)}" r="3"/>')
            parts.append(f'<text x="{x(actor) + 6}" y="{y(row) + 4}" fill="#36c">{escape(said)}</text>')
    parts.append(
        f'<text x="{width / 2}" y="{y(len(events) + 1.8):.0f}" fill="#c00" text-anchor="middle">{escape(ending)}</text>'
    )
    return "\n".join([*parts, "</svg>", ""])


def _arrows(events: list[Event], shape: Shape) -> list[tuple[int, int, int, Packet, int | None]]:
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
    at = 42 + 16
    return packet.frame[:at] + packet.frame[at + 2 :] if packet.way in (UP, DOWN) else packet.frame
