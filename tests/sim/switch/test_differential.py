"""The engine and BMv2 on the same program, entries and packets: the same frames must leave by the same ports."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sim.switch import Packets, Switch, load_program
from tests.engine.traffic import SWITCH_IP, SWITCH_MAC, BenchJob, contribution, install
from tests.sim.switch.bmv2_switch import Bmv2, commands_for_entry, describe
from tests.sim.switch.scenarios import PROGRAMS, SCENARIOS, Scenario

pytestmark = [
    pytest.mark.bmv2,
    pytest.mark.skipif(shutil.which("simple_switch") is None, reason="BMv2 is not installed"),
]

NETSUM = Path(__file__).parents[3] / "p4" / "build"


def _compare(switch: Switch, bmv2: Bmv2, frames: Iterator[bytes]) -> int:
    left = 0
    for number, frame in enumerate(frames):
        ours = list(switch.inject(Packets.of([(bmv2.ports[0], frame)]), number * 1_000_000))
        theirs = bmv2.send(frame, len(ours))
        assert describe(ours) == describe(theirs), f"packet {number}: {frame.hex()}"
        left += len(ours)
    time.sleep(0.2)
    assert bmv2.collect() == []
    return left


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
@pytest.mark.parametrize("seed", [1, 2])
def test_same_packets(scenario: Scenario, seed: int, tmp_path: Path) -> None:
    path = PROGRAMS / f"{scenario.name}.json"
    switch = Switch(load_program(path))
    commands = scenario.set_up(switch)
    with Bmv2(path, range(8), tmp_path) as bmv2:
        if commands:
            bmv2.command(*commands)
        assert _compare(switch, bmv2, scenario.frames(random.Random(seed))) > 0


def _mutated(rng: random.Random, frame: bytes) -> bytes:
    changed = bytearray(frame)
    for _ in range(rng.choice([1, 1, 2, 8])):
        changed[rng.randrange(min(len(changed), 70))] = rng.randrange(256)
    return bytes(changed)


def _netsum_frames(rng: random.Random, job: BenchJob) -> Iterator[bytes]:
    """Workers' packets in order and out of order, twice, mutated, cut, without lanes; ARP and ping for the switch."""
    sent: list[bytes] = []
    for step in range(500):
        chunk = max(
            0, step // job.workers + rng.choice([0, 0, 0, 0, -1, -job.slots, job.slots, 2 * job.slots])
        )
        lanes = b"".join(rng.choice([rng.randbytes(4), b"\x7f\xff\xff\xf0"]) for _ in range(job.lanes))
        frame = contribution(job, rng.randrange(job.workers), chunk, lanes)
        sent.append(frame)
        yield frame
        kind = rng.randrange(8)
        if kind == 0:
            yield rng.choice(sent[-8:])
        elif kind == 1:
            yield _mutated(rng, frame)
        elif kind == 2:
            yield frame[: rng.randrange(14, len(frame))]
        elif kind == 3:
            yield frame + rng.randbytes(rng.randrange(1, 20))
    ip, mac = SWITCH_IP.to_bytes(4, "big"), SWITCH_MAC.to_bytes(6, "big")
    arp = bytes.fromhex("0001080006040001020000000001") + job.ip(0).to_bytes(4, "big") + bytes(6) + ip
    yield b"\xff" * 6 + bytes.fromhex("0200000000010806") + arp
    yield mac + bytes.fromhex("0200000000010806") + arp


@pytest.mark.parametrize("lanes", [64, 256])
def test_netsum_itself(lanes: int, tmp_path: Path) -> None:
    path = NETSUM / f"netsum_v1model_{lanes}.json"
    switch = Switch(load_program(path))
    # One port for all workers: BMv2 reads one input at a time.
    job = BenchJob(3, lanes, slots=4, port=0)
    install(switch, job)
    commands = [
        command
        for name in switch.program.tables
        for entry in switch.table_entries(name)
        if not switch.program.tables[name].immutable
        for command in commands_for_entry(switch.program, name, entry)
    ]
    commands.append("mc_mgrp_create 1")
    for handle, (port, rid) in enumerate(switch.mcast_groups()[1]):
        commands += [f"mc_node_create {rid} {port}", f"mc_node_associate 1 {handle}"]
    with Bmv2(path, range(4), tmp_path) as bmv2:
        bmv2.command(*commands)
        assert _compare(switch, bmv2, _netsum_frames(random.Random(lanes), job)) > 50
