"""Switches in the kernel on the testbed's links that lose packets, a star and a tree: sums are right, also after kill -9."""

import random
import shlex
from pathlib import Path

import pytest

from tests.dataplane.dataplane import xdp
from tests.integration.testbed_faults import WORKERS, kill_a_switch, running, steady_job
from topologies.shaping import loss_commands

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(xdp.why_not() is not None, reason=str(xdp.why_not())),
]


@pytest.mark.parametrize(("topology", "switches"), [("star-4", 1), ("leaf-spine-4", 3)])
def test_sums_under_loss(topology: str, switches: int, tmp_path: Path) -> None:
    """Each link loses 2 % of the packets to the switch, and 2 % of those to a host where no discipline is passed."""
    with running("xdp", topology, tmp_path, "--loss", "2") as bed:
        for host in WORKERS:
            _, lose = loss_commands(bed.testbed.state["hosts"][host]["interface"], 20_000)
            bed.run(host, *shlex.split(lose.replace(" egress ", " ingress ")))
        with steady_job(bed, WORKERS) as job:
            job.goes_on(20)
            assert len(bed.adding(job.name)) == switches
            kill_a_switch(bed, job, random.Random(1))
            job.goes_on(20)
            with bed.client() as client:
                view = client.job(job.name)
            counters = [each.counters for each in view.tree] or [view.counters]
            again = (
                "probes",
                "duplicates_dropped",
                "duplicates_answered",
                "duplicates_passed_up",
                "probes_passed_up",
            )
            assert sum(each.get(name, 0) for each in counters for name in again) > 0
            job.finish()
