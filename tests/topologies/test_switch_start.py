"""BMv2 as a testbed's switch, in a namespace that is there for one test."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from netsum_common.targets import PROCESS_TARGETS
from topologies.children import TestbedError
from topologies.leftovers import end_processes
from topologies.mininet_testbed import missing_for_mininet
from topologies.namespaces import inside_of, run
from topologies.runs import new_run_id
from topologies.switch_process import SwitchProcess
from topologies.topology import SwitchSpec

pytestmark = [pytest.mark.root, pytest.mark.bmv2]


@pytest.fixture(name="namespace_pid")
def namespace() -> Iterator[int]:
    """A process in a network namespace with one interface, eth1, that is up."""
    lacking = missing_for_mininet() or PROCESS_TARGETS["bmv2"].lacking()
    if lacking is not None:
        pytest.skip(lacking)
    with subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "echo; exec sleep 1000"], stdout=subprocess.PIPE
    ) as held:
        assert held.stdout is not None
        held.stdout.readline()
        run(*inside_of(held.pid), "ip", "link", "add", "eth1", "type", "veth", "peer", "name", "eth2")
        for name in ("eth1", "eth2"):
            run(*inside_of(held.pid), "ip", "link", "set", name, "up")
        yield held.pid
        held.kill()


def test_a_port_that_bmv2_cannot_open_is_named(namespace_pid: int, tmp_path: Path) -> None:
    """The switch runs on without that port, and the worker there would get nothing through for ever."""
    (tmp_path / "logs").mkdir()
    run_id = new_run_id()
    spec = SwitchSpec("s1", "10.0.0.254", "02:00:0a:00:00:fe", 1)
    process = SwitchProcess(
        PROCESS_TARGETS["bmv2"], spec, run_id, tmp_path / "s1.sock", tmp_path, capture=False
    )
    try:
        with pytest.raises(TestbedError, match="BMv2 s1 finds no interface eth9, see .*s1.log"):
            process.start(namespace_pid, {1: "eth1", 2: "eth9"})
        run(*inside_of(namespace_pid), "ip", "link", "set", "eth2", "down")
        with pytest.raises(
            TestbedError, match="BMv2 s1 could not open the interface eth2, which is down, see .*s1.log"
        ):
            process.start(namespace_pid, {1: "eth1", 2: "eth2"})
        assert "Add port operation failed" in process.log.read_text()
        process.start(namespace_pid, {1: "eth1"})
        assert process.child.running
    finally:
        process.stop()
        end_processes(run_id)
