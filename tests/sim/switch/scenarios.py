"""Programs with entries and seeded random packets, for running on two switches side by side."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sim.switch import DuplicateError, Exact, Lpm, Match, Optional, Range, Switch, TableEntry, Ternary
from tests.sim.switch.bmv2_switch import commands_for_entry

__all__ = ["PROGRAMS", "SCENARIOS", "Scenario"]

PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Scenario:
    """A program of `PROGRAMS`, what to write into a switch, and packets.

    `set_up` writes the entries into the engine and returns the commands that do the same on BMv2; `frames` yields
    frames for port 0, none of which makes BMv2 read what it leaves undefined (fields of invalid headers, say).
    """

    name: str
    set_up: Callable[[Switch], list[str]]
    frames: Callable[[random.Random], Iterator[bytes]]


def _nothing(switch: Switch) -> list[str]:
    return []


def _insert(switch: Switch, table: str, entry: TableEntry) -> list[str]:
    try:
        switch.table_insert(table, entry)
    except DuplicateError:
        return []
    return commands_for_entry(switch.program, table, entry)


def _arithmetic(rng: random.Random) -> Iterator[bytes]:
    for _ in range(150):
        edges = bytes(rng.choice([0, 1, 127, 128, 255]) for _ in range(90))
        frame = rng.choice([edges, rng.randbytes(90), rng.randbytes(90)])
        yield frame[: rng.choice([90, 90, 90, 86, 40])]


def _hashing(rng: random.Random) -> Iterator[bytes]:
    for _ in range(150):
        yield rng.randbytes(rng.choice([19, 20, 21, 40, 64, 301]))


def _stacks(rng: random.Random) -> Iterator[bytes]:
    for _ in range(300):
        labels = b"".join(
            (rng.getrandbits(20) << 12 | rng.randrange(8) << 9 | rng.randrange(2) << 8 | ttl).to_bytes(
                4, "big"
            )
            for ttl in rng.choices([0, 1, 9, 200, 255], [1, 10, 10, 20, 10], k=rng.choice([1, 1, 2, 3, 4, 5]))
        )
        bottom = bytes([labels[-2] | 1])
        body = rng.choice([0x40, 0x41, 0x42, 0x4A, 0x4B, 0x4F, 0x50, 0x63, 0x90, 0xA0])
        yield labels[:-2] + bottom + labels[-1:] + bytes([body]) + rng.randbytes(rng.randrange(60))


def _prefix(rng: random.Random) -> Lpm:
    length = rng.randrange(33)
    mask = 0xFFFFFFFF ^ (0xFFFFFFFF >> length)
    return Lpm(rng.getrandbits(32) & 0x0F0F0000 & mask, length)


def _masked(rng: random.Random, width: int, masks: list[int]) -> Ternary:
    mask = rng.choice(masks)
    return Ternary(rng.getrandbits(width) & mask, mask)


def _span(rng: random.Random) -> Range:
    low, high = sorted((rng.getrandbits(16), rng.getrandbits(16)))
    return Range(low, high)


def _set_up_matching(switch: Switch) -> list[str]:
    rng = random.Random(3)
    commands = []
    for priority in range(1, 41):
        any_of = [None, 0, 1, 2, 3]
        keys: dict[str, tuple[Match, ...]] = {
            "exact": (Exact(rng.randrange(16)), Exact(rng.randrange(4))),
            "lpm": (_prefix(rng),),
            "ternary": (
                _masked(rng, 32, [0, 0xFF000000, 0x0F000000, 0x00010000]),
                _masked(rng, 16, [0, 0xF000, 3]),
            ),
            "range": (_span(rng), Exact(rng.randrange(4))),
            "optional": (Optional(rng.choice(any_of)), Optional(rng.choice(any_of))),
            "mixed": (Exact(rng.choice([0, 0x010000000001])), _prefix(rng)),
        }
        for kind, key in keys.items():
            params = (rng.randrange(256), *([rng.getrandbits(48)] if kind == "mixed" else []))
            rank = priority if kind in ("ternary", "range", "optional") else 0
            commands += _insert(switch, f"I.t_{kind}", TableEntry(key, rank, f"I.set_{kind}", params))
    return commands + _insert(switch, "I.t_exact", TableEntry((Exact(15), Exact(15)), 0, "I.leave"))


def _matching(rng: random.Random) -> Iterator[bytes]:
    for _ in range(400):
        ab = rng.randrange(16) << 4 | rng.randrange(4) if rng.random() < 0.9 else 0x00FF
        ip = rng.getrandbits(32) & rng.choice([0x0F0F0000, 0x0F0F00FF])
        mac = rng.choice([b"\1\0\0\0\0\1", bytes(6), rng.randbytes(6)])
        kind = rng.choice([0, 1, 2, 3, 7, 0x80, 0xC5, 0x99])
        frame = ab.to_bytes(2, "big") + ip.to_bytes(4, "big") + mac + rng.randbytes(2) + bytes([kind])
        yield frame + rng.randbytes(rng.randrange(10))


def _set_up_traffic(switch: Switch) -> list[str]:
    switch.mcast_set(1, [(1, 10), (2, 10), (3, 11)])
    switch.mcast_set(2, [(4, 5)])
    switch.clone_set(5, [(6, 0)])
    switch.clone_set(6, [(7, 0)])
    nodes = ["mc_node_create 10 1 2", "mc_node_create 11 3", "mc_node_create 5 4"]
    groups = ["mc_mgrp_create 1", "mc_mgrp_create 2", "mc_mgrp_create 3"]
    members = ["mc_node_associate 1 0", "mc_node_associate 1 1", "mc_node_associate 2 2"]
    return [*groups, *nodes, *members, "mirroring_add 5 6", "mirroring_add 6 7"]


def _traffic(rng: random.Random) -> Iterator[bytes]:
    for _ in range(400):
        ask = [
            rng.randrange(12),
            rng.randrange(8),
            0,
            rng.randrange(4),
            rng.randrange(256),
            rng.randrange(70),
        ]
        yield bytes(ask) + rng.randbytes(rng.randrange(64))


def _set_up_externs(switch: Switch) -> list[str]:
    commands = []
    for index, rates in ((3, [(1e-9, 4), (2e-9, 7)]), (4, [(0.0, 1), (0.0, 30)])):
        switch.meter_config("I.policer", index, rates)
        text = " ".join(f"{rate:.10f}:{burst}" for rate, burst in rates)
        commands.append(f"meter_set_rates I.policer {index} {text}")
    for handle, index in enumerate((3, 5)):
        entry = TableEntry((Exact(index),), 0, "I.metered")
        commands += _insert(switch, "I.t_meter", entry)
        switch.direct_meter_config("I.t_meter", entry, [(0.0, 300), (0.0, 900)])
        commands.append(f"meter_set_rates I.direct {handle} 0:300 0:900")
    for member in range(4):
        switch.member_insert("I.selector", member, "I.choose", (member + 1,))
        commands.append(f"act_prof_create_member I.selector I.choose {member + 1}")
    for group, members in enumerate(((0, 1, 3), (2,))):
        switch.group_insert("I.selector", group, [(m, 1) for m in members])
        commands.append("act_prof_create_group I.selector")
        commands += [f"act_prof_add_member_to_group I.selector {m} {group}" for m in members]
    for key, chosen in ((1, 0), (2, 1)):
        commands += _insert(switch, "I.t_select", TableEntry((Exact(key),), group=chosen))
    commands += _insert(switch, "I.t_select", TableEntry((Exact(3),), member=3))
    return commands


def _externs(rng: random.Random) -> Iterator[bytes]:
    for _ in range(300):
        ask = bytes([rng.choice([0, 1, 1, 1, 2, 3, 7, 9]), rng.randrange(7)])
        yield ask + rng.randbytes(18) + rng.randbytes(rng.randrange(40))


def _sets(rng: random.Random) -> Iterator[bytes]:
    for _ in range(150):
        items = b"".join(rng.choice([b"\1", b"\2" + rng.randbytes(2)]) for _ in range(rng.randrange(5)))
        yield rng.randbytes(6) + items + rng.choice([b"", b"\2", b"\0abc"])


SCENARIOS = (
    Scenario("arithmetic", _nothing, _arithmetic),
    Scenario("hashing", _nothing, _hashing),
    Scenario("stacks", _nothing, _stacks),
    Scenario("matching", _set_up_matching, _matching),
    Scenario("traffic", _set_up_traffic, _traffic),
    Scenario("sets", _nothing, _sets),
    Scenario("externs", _set_up_externs, _externs),
)
