"""An entry that was deleted matches no more, whatever else was inserted before and after it."""

import random
from pathlib import Path

from sim.switch import Exact, Packets, Switch, TableEntry, load_program

PROGRAM = Path(__file__).parents[3] / "p4" / "build" / "netsum_v1model_64.json"

TABLE = "NetsumIngress.forward.l2_forward"
ACTION = "NetsumIngress.forward.forward"


def _frame(station: int) -> bytes:
    return station.to_bytes(6, "big") + bytes(6) + b"\x12\x34" + bytes(50)


def test_lookups_follow_inserts_and_deletes() -> None:
    switch = Switch(load_program(PROGRAM))
    rng = random.Random(1)
    held: dict[int, int] = {}
    for _ in range(400):
        station = rng.randrange(64)
        if station in held:
            port = held.pop(station)
            switch.table_delete(TABLE, TableEntry(key=(Exact(station),), action=ACTION, params=(port,)))
        else:
            held[station] = port = rng.randrange(1, 8)
            switch.table_insert(TABLE, TableEntry(key=(Exact(station),), action=ACTION, params=(port,)))
        left = list(switch.inject(Packets.of([(0, _frame(s)) for s in range(64)]), 0))
        assert left == [(held[s], _frame(s)) for s in range(64) if s in held]
