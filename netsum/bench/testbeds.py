"""A Mininet testbed for as long as a benchmark needs it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from netsum.allreduce.launch import Ranks
from netsum.allreduce.report import Message
from netsum.allreduce.session import local_sites, testbed_sites
from topologies.children import TestbedError
from topologies.run_folder import RunningTestbed, find_testbed

NETSUM = (sys.executable, "-P", "-c", "from netsum.cli import main; main()")
_UP_TIMEOUT_S = 600.0
_DOWN_TIMEOUT_S = 120.0


@contextmanager
def testbed(
    topology: str, *, switch: str, lanes: int, rate: str, loss_percent: str
) -> Iterator[RunningTestbed]:
    """Bring up a testbed and its controller; all of it is gone when the ``with`` block ends.

    Raises TestbedError if it does not come up; the message says why.
    """
    name = f"bench-{os.getpid()}"
    # By its own command: that forks, and gRPC's threads in this process would not survive it.
    _netsum(
        _UP_TIMEOUT_S,
        *("testbed", "up", topology, "--testbed", name, "--switch", switch, "--lanes", str(lanes)),
        *("--rate", rate, "--loss", loss_percent, "--json"),
    )
    try:
        yield find_testbed(name)
    finally:
        _netsum(_DOWN_TIMEOUT_S, "testbed", "down", "--testbed", name)


def run_ranks(
    module: str,
    plan: str,
    where: RunningTestbed | int,
    folder: Path,
    silence_s: float,
    on_message: Callable[[int, Message], None],
    per_host: int = 1,
) -> None:
    """Run `per_host` ranks of a benchmark that uses torch on each host of a testbed, or some on loopback, to their end.

    `module`: of `netsum.bench`; its options are those of `netsum.bench.torch_world.parse`. `silence_s`, `on_message`: as
    `Ranks.follow` takes them. Raises RankError if a rank failed.
    """
    if isinstance(where, int):
        sites, master, interfaces = local_sites(where), "127.0.0.1", ["lo"] * where
    else:
        hosts = where.state["hosts"]
        sites = testbed_sites(where, [host for host in hosts for _ in range(per_host)])
        master, interfaces = hosts[sites[0].name]["ip"], [hosts[site.name]["interface"] for site in sites]

    def command(rank: int) -> list[str]:
        return [
            *(sys.executable, "-m", f"netsum.bench.{module}", "--rank", str(rank)),
            *("--world-size", str(len(sites)), "--plan", plan),
            *("--master", master, "--interface", interfaces[rank]),
        ]

    with Ranks(command, sites, folder) as ranks:
        ranks.follow(silence_s, on_message)
        ranks.dismiss()


def _netsum(timeout_s: float, *arguments: str) -> None:
    done = subprocess.run(
        [*NETSUM, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        raise TestbedError(
            done.stderr.strip().removeprefix("netsum: ") or f"netsum {' '.join(arguments)} failed"
        )
