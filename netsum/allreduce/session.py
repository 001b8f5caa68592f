"""A whole all-reduce between hosts: of this machine over an embedded switch, of a testbed, or through a given controller.

Failures raise `TestbedError` with the reason.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from controller.errors import ControllerError
from controller.service.client import OperatorClient
from controller.session import PROGRAM_TIMEOUT_S
from netsum.allreduce.launch import Ranks, Site, rank_command, silence_of
from netsum.allreduce.plan import Plan
from netsum.allreduce.report import Message, ReportRow, make_rows
from netsum_common.programs import command_of
from topologies.announcing import START_TIMEOUT_S, start_announced
from topologies.children import Child, TestbedError
from topologies.run_folder import RunningTestbed

JOIN_TOKEN_VARIABLE = "NETSUM_JOIN_TOKEN"
SERVICE_TIMEOUT_S = START_TIMEOUT_S + PROGRAM_TIMEOUT_S + 20.0
"""So that the sentence of the part that did not start comes first: the switch, then the controller that programs it."""


@dataclass(frozen=True)
class MeasuredPlan:
    """Result of an all-reduce between hosts."""

    job: str  # Name at the controller.
    hosts: list[str]
    # slots, lanes: chunks in flight at most, and int32 values a packet carries.
    slots: int
    lanes: int
    rows: list[ReportRow]  # One for each exchange.
    counters: dict[str, int]  # The switch's counters of the job; empty if unknown.

    @property
    def correct(self) -> bool:
        """Whether all results were right bit for bit, and the same at all ranks."""
        return all(row.correct and row.same_bits for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        """Return it as `netsum allreduce --json` shows it."""
        return {
            "correct": self.correct,
            "job": self.job,
            "workers": len(self.hosts),
            "hosts": self.hosts,
            "slots": self.slots,
            "lanes": self.lanes,
            "results": [asdict(row) for row in self.rows],
            "switch": self.counters,
        }


@dataclass(frozen=True)
class JobPlan:
    """A job at a controller, which the ranks join."""

    controller: str  # Address of the controller service, as seen from the sites and from here.
    name: str | None = None  # None: one that no other job has.
    slots: str | None = None  # As `netsum.option_values` reads it; None: the controller's default.
    join_token: str = ""  # Secret of a job that an operator created with one.


def run_between(
    plan: Plan,
    sites: Sequence[Site],
    job: JobPlan,
    folder: Path,
    on_message: Callable[[int, Message], None] = lambda rank, message: None,
) -> MeasuredPlan:
    """Run a rank on each of several sites; logs go to `folder`. Raises RankError if a rank failed."""
    name = job.name or f"allreduce-{time.time_ns() // 1_000_000:x}"
    rounds: list[list[Message]] = [[] for _ in sites]
    joined: dict[int, Message] = {}

    def collect(rank: int, message: Message) -> None:
        if message["event"] == "round":
            rounds[rank].append(message)
        elif message["event"] == "joined":
            joined[rank] = message
        on_message(rank, message)

    def command(rank: int) -> Sequence[str]:
        return rank_command(plan, name, len(sites), controller=job.controller, slots=job.slots, rank=rank)

    if job.join_token:  # In the environment, where other users of the machine do not see it.
        sites = [
            replace(site, environment={**site.environment, JOIN_TOKEN_VARIABLE: job.join_token})
            for site in sites
        ]
    with Ranks(command, sites, folder) as ranks:
        ranks.follow(silence_of(plan), collect)
        counters = _counters(job.controller, name)
        ranks.dismiss()
    return MeasuredPlan(
        name,
        [str(joined[rank]["host"]) for rank in range(len(sites))],
        int(joined[0]["slots"]),
        int(joined[0]["lanes"]),
        make_rows(plan, rounds),
        counters,
    )


def _counters(controller: str, job: str) -> dict[str, int]:
    try:
        with OperatorClient(controller) as client:
            return dict(sorted(client.job(job).counters.items()))
    except ControllerError:  # The sums are right or wrong all the same.
        return {}


@contextmanager
def loopback_controller(workers: int, lanes: int, drop_ppm: int, folder: Path) -> Iterator[str]:
    """Run an embedded switch on loopback and its controller for the block's duration; yields the controller's address."""

    def start(ready_fd: int) -> Child:
        return Child(
            "the switch on loopback and its controller",
            [
                *(*command_of("service"), "--places", str(workers)),
                *("--lanes", str(lanes), "--drop-ppm", str(drop_ppm), "--ready-fd", str(ready_fd)),
            ],
            folder / "controller.log",
            pass_fds=(ready_fd,),
        )

    service, line = start_announced(start, SERVICE_TIMEOUT_S)
    try:
        message = json.loads(line)
        if "address" not in message:
            raise TestbedError(str(message.get("error", line)))
        yield str(message["address"])
    finally:
        service.stop()


def local_sites(workers: int) -> list[Site]:
    """Return sites for ranks that are all processes of this machine."""
    return [Site("here")] * workers


def testbed_sites(testbed: RunningTestbed, hosts: Sequence[str]) -> list[Site]:
    """Return the hosts of a testbed as sites. `hosts`: names; none: all of them."""
    there = list(testbed.state["hosts"])
    if unknown := sorted(set(hosts) - set(there)):
        raise TestbedError(
            f"the testbed {testbed.name} has no host {', '.join(unknown)}: expected {', '.join(there)}"
        )
    names = list(hosts) or there
    return [
        Site(name, ("mnexec", "-a", str(testbed.namespace_pid(name))), {"NETSUM_TESTBED": testbed.name})
        for name in names
    ]
