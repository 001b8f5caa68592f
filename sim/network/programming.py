"""A switch in this process: the engine with the P4 program, programmed by the controller's own code, without gRPC."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from controller.jobs import Job, WorkerEndpoint
from controller.ledger import JobLedger
from controller.switch_tables import SwitchTables
from host_agent.wire.constants import POOL_SLOTS, UDP_PORT
from sim.programming import InProcessWriter
from sim.switch import Switch, ir, load_program

__all__ = ["DEFAULT_IP", "DEFAULT_MAC", "TOKEN_STEP", "ProgrammedSwitch"]

DEFAULT_IP = "10.0.0.254"
DEFAULT_MAC = "02:00:0a:00:00:fe"
TOKEN_STEP = 0x9E3779B1
"""Odd, so that its multiples modulo 2^32 are tokens that do not repeat, the same in every run."""


@cache
def _load(program: Path, modified_ns: int) -> ir.Program:
    """Load a program once a process: to read it takes longer than many a run."""
    del modified_ns
    return load_program(program)


_compiled: dict[Path, Switch] = {}
"""A switch of each program, with whose machine code and layout others are made."""


def _make_switch(path: Path) -> Switch:
    program = _load(path, path.stat().st_mtime_ns)
    like = _compiled.get(path)
    if like is None or like.program is not program:
        like = _compiled[path] = Switch(program)
    return Switch(program, like=like)


class ProgrammedSwitch:
    """An aggregation switch that runs in this process.

    Parameters
    ----------
    program : path
        The compiled program (BMv2 JSON).
    lanes : int
        int32 values its packets carry.
    ip, mac : str
        The addresses at which workers reach it.
    token_seed : int
        From which jobs' tokens follow; the same seed gives the same packets.
    """

    def __init__(
        self, program: Path, lanes: int, *, ip: str = DEFAULT_IP, mac: str = DEFAULT_MAC, token_seed: int = 0
    ) -> None:
        self.lanes = lanes
        self.ip = ip
        self.mac = mac
        self.engine = _make_switch(program)
        self._ledger = JobLedger(POOL_SLOTS, lanes)
        self._token = token_seed
        self.tables = SwitchTables(InProcessWriter(self.engine), program)
        self.tables.set_switch_address(ip, mac)

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The jobs that have not ended."""
        return self._ledger.jobs

    def start_job(
        self, name: str, workers: Sequence[WorkerEndpoint], slots: int, *, epoch: int = 1, quorum: int = 0
    ) -> Job:
        """Admit a job.

        Parameters
        ----------
        name
            Of the job; one that runs under this name is restarted, with a new epoch and token on the same slots.
        workers
            Where they are.
        slots
            Chunks in flight, a power of two.
        epoch
            The least epoch.
        quorum
            So many contributions complete a roll call; 0: it has none.

        Raises
        ------
        JobRefusedError
            With the reason.
        """
        running = [job for job in self._ledger.jobs if job.name == name]
        if running and (running[0].slots.count, running[0].quorum) == (slots, quorum):
            job = self._ledger.renew(
                running[0], token=self._next_token(), unix_seconds=epoch, workers=self._placed(workers)
            )
        else:
            if running:
                self.end_job(running[0])
            job = self._ledger.admit(
                name,
                workers,
                slots,
                switch=(self.ip, UDP_PORT),
                token=self._next_token(),
                unix_seconds=epoch,
                quorum=quorum,
            )
        self.tables.install(job)
        return job

    def end_job(self, job: Job) -> None:
        """Take a job off the switch."""
        self.tables.withdraw(self._ledger.current(job))
        self._ledger.end(job)

    def forget(self, jobs: Iterable[Job]) -> None:
        """Lose what a restart of the switch loses: registers, and the entries of these jobs, which are all it has."""
        for job in jobs:
            self.tables.withdraw(job)
        for name in self.engine.program.registers:
            self.engine.register_view(name)[...] = 0

    def _placed(self, workers: Sequence[WorkerEndpoint]) -> list[WorkerEndpoint]:
        return [replace(worker, switch=worker.switch or (self.ip, UDP_PORT)) for worker in workers]

    def _next_token(self) -> int:
        self._token += 1
        return self._token * TOKEN_STEP & 0xFFFFFFFF
