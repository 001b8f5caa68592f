"""The embedded engine with the netsum program in it, and the control plane's part done directly."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from host_agent import Admission
from host_agent.wire.constants import POOL_SLOTS
from sim.switch import Exact, Packets, Switch, TableEntry, load_program

from .frames import SWITCH_IP, SWITCH_MAC, WORKER_UDP_PORT, worker_ip, worker_mac

BUILD = Path(__file__).resolve().parents[3] / "p4" / "build"


class VirtualSwitch:
    """One switch for all schedules of a test: epochs keep them apart, as they do in life."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        program = load_program(BUILD / f"netsum_v1model_{lanes}.json")
        self.switch = Switch(program)
        self._names = {
            name.rpartition(".")[2]: name
            for name in [
                *program.tables,
                *program.counters,
                *(action.name for action in program.actions.values()),
            ]
        }
        self._epoch = 0
        self._entries: dict[int, list[tuple[str, TableEntry]]] = {}
        self.switch.table_insert(*self.entry("switch_address", (SWITCH_IP,), "own_address", (SWITCH_MAC,)))

    def start_job(
        self,
        workers: int,
        slots: int,
        job_id: int = 1,
        slot_base: int = 0,
        first_port: int = 0,
        places: Sequence[tuple[int, int]] | None = None,
    ) -> list[Admission]:
        """Admit a job with a new epoch and token.

        Worker w is at switch port first_port + w; `places` gives IPv4 address and UDP port of each.
        """
        assert slot_base + slots <= POOL_SLOTS
        self.end_job(job_id)
        self._epoch += 1
        token = (self._epoch * 0x9E3779B1) & 0xFFFFFFFF
        entries = []
        if places is None:
            places = [(worker_ip(first_port + worker), WORKER_UDP_PORT) for worker in range(workers)]
        for worker, (ip, udp_port) in enumerate(places):
            port = first_port + worker
            key = (port, ip, job_id, worker, token)
            params = (1 << worker, (1 << workers) - 1, workers, self._epoch, 2 * slot_base, 2 * slots, job_id)
            rewrite = (worker_mac(port), ip, udp_port)
            entries += [
                self.entry("worker_admission", key, "admit", params),
                self.entry("copy_rewrite", (job_id, worker), "rewrite", rewrite),
            ]
        for table, entry in entries:
            self.switch.table_insert(table, entry)
        self.switch.mcast_set(job_id, [(first_port + worker, worker + 1) for worker in range(workers)])
        self._entries[job_id] = entries
        return [
            Admission(job_id, token, self._epoch, worker, workers, slots, self.lanes)
            for worker in range(workers)
        ]

    def end_job(self, job_id: int) -> None:
        for table, entry in self._entries.pop(job_id, []):
            self.switch.table_delete(table, entry)

    def counter(self, name: str, job_id: int = 1) -> int:
        return self.switch.counter_read(self._names[name], job_id)[0]

    def entry(
        self, table: str, key: tuple[int, ...], action: str, params: tuple[int, ...]
    ) -> tuple[str, TableEntry]:
        entry = TableEntry(tuple(map(Exact, key)), action=self._names[action], params=params)
        return self._names[table], entry

    def inject(self, port: int, frame: bytes, now_ns: int) -> list[tuple[int, bytes]]:
        row = np.frombuffer(frame, np.uint8).reshape(1, -1)
        packets = Packets(np.array([port], np.uint16), np.array([len(frame)], np.int32), row)
        return list(self.switch.inject(packets, now_ns, copy=False))


@cache
def virtual_switch(lanes: int) -> VirtualSwitch:
    """The switch that all tests of a run share."""
    return VirtualSwitch(lanes)
